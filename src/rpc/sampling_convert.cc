#include "rpc/sampling_convert.h"

#include <string>

#include "base/check.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "google/protobuf/reflection.h"

namespace baton {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Reflection;

const FieldDescriptor& WireField(const SamplingField& field) {
  const FieldDescriptor* found = v1::Sampling::descriptor()->FindFieldByName(std::string(field.name));
  BATON_CHECK(found != nullptr, "a sampling parameter has no field in baton.v1.Sampling");
  return *found;
}

// Reads one field of a message. The overload for the type of the value does the read. Leaves the
// value unchanged if the field is not set.
struct WireReader {
  const v1::Sampling& proto;
  const FieldDescriptor& field;
  const Reflection& reflection = *proto.GetReflection();

  bool has() const { return reflection.HasField(proto, &field); }

  void operator()(float& value) const {
    if (has()) value = reflection.GetFloat(proto, &field);
  }
  void operator()(int32_t& value) const {
    if (has()) value = reflection.GetInt32(proto, &field);
  }
  void operator()(bool& value) const {
    if (has()) value = reflection.GetBool(proto, &field);
  }
  void operator()(std::optional<int32_t>& value) const {
    if (has()) value = reflection.GetInt32(proto, &field);
  }
  void operator()(std::optional<uint64_t>& value) const {
    if (has()) value = reflection.GetUInt64(proto, &field);
  }
  void operator()(std::vector<TokenBias>& values) const {
    values.clear();
    for (const v1::TokenBias& bias : reflection.GetRepeatedFieldRef<v1::TokenBias>(proto, &field)) {
      values.push_back({bias.id(), bias.bias()});
    }
  }
  template <typename T>
  void operator()(std::vector<T>& values) const {
    const auto list = reflection.GetRepeatedFieldRef<T>(proto, &field);
    values.assign(list.begin(), list.end());
  }
};

struct WireWriter {
  v1::Sampling& proto;
  const FieldDescriptor& field;
  const Reflection& reflection = *proto.GetReflection();

  void operator()(float value) const { reflection.SetFloat(&proto, &field, value); }
  void operator()(int32_t value) const { reflection.SetInt32(&proto, &field, value); }
  void operator()(bool value) const { reflection.SetBool(&proto, &field, value); }
  void operator()(const std::optional<int32_t>& value) const {
    if (value) reflection.SetInt32(&proto, &field, *value);
  }
  void operator()(const std::optional<uint64_t>& value) const {
    if (value) reflection.SetUInt64(&proto, &field, *value);
  }
  void operator()(const std::vector<TokenBias>& values) const {
    const auto list = reflection.GetMutableRepeatedFieldRef<v1::TokenBias>(&proto, &field);
    for (const auto& [id, bias] : values) {
      v1::TokenBias added;
      added.set_id(id);
      added.set_bias(bias);
      list.Add(added);
    }
  }
  template <typename T>
  void operator()(const std::vector<T>& values) const {
    const auto list = reflection.GetMutableRepeatedFieldRef<T>(&proto, &field);
    for (const T& value : values) list.Add(value);
  }
};

}  // namespace

SamplingParams FromProto(const v1::Sampling& proto, SamplingParams defaults) {
  SamplingParams params = std::move(defaults);
  for (const SamplingField& field : SamplingFields()) VisitValue(params, field, WireReader{proto, WireField(field)});
  return params;
}

v1::Sampling ToProto(const SamplingParams& params) {
  v1::Sampling proto;
  for (const SamplingField& field : SamplingFields()) SetField(params, field, proto);
  return proto;
}

void SetField(const SamplingParams& from, const SamplingField& field, v1::Sampling& to) {
  VisitValue(from, field, WireWriter{to, WireField(field)});
}

}  // namespace baton
