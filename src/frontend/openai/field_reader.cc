#include "frontend/openai/field_reader.h"

#include <cmath>
#include <utility>

#include "base/strings.h"
#include "frontend/openai/near_name.h"

namespace baton {

std::string ElementPath(std::string_view list, size_t index) { return StrCat(list, "[", index, "]"); }

absl::Status WrongType(std::string_view path, std::string_view expected, const Json& got) {
  return absl::InvalidArgumentError(StrCat(path, ": expected ", expected, ", got ", ShowJson(got)));
}

std::optional<int64_t> AsInteger(const Json& value, int64_t low, int64_t high) {
  if (value.is_number_float()) {
    constexpr double kMaxExact = 1LL << std::numeric_limits<double>::digits;
    const double number = value.get<double>();
    if (std::trunc(number) != number || std::abs(number) > kMaxExact) return std::nullopt;
    return AsInteger(static_cast<int64_t>(number), low, high);
  }
  if (!value.is_number_integer()) return std::nullopt;
  if (value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()}) {
    return std::nullopt;
  }
  const auto number = value.get<int64_t>();
  if (number < low || number > high) return std::nullopt;
  return number;
}

FieldReader::FieldReader(const Json& object, std::string where) : where_(std::move(where)) {
  if (object.is_object()) {
    object_ = &object;
    seen_.resize(object.size());
  } else {
    status_ = WrongType(where_, "an object", object);
  }
}

const Json* FieldReader::Any(std::string_view name) {
  names_.push_back(name);
  return Refused(name);
}

const Json* FieldReader::Refused(std::string_view name) {
  if (object_ == nullptr) return nullptr;
  const Json::object_t::Container& members = object_->get_ref<const Json::object_t&>();
  for (size_t i = 0; i < members.size(); ++i) {
    if (members[i].first != name) continue;
    seen_[i] = true;
    return members[i].second.is_null() ? nullptr : &members[i].second;
  }
  return nullptr;
}

const Json* FieldReader::Object(std::string_view name) {
  const Json* value = Any(name);
  if (value == nullptr || value->is_object()) return value;
  RefuseType(name, "an object", *value);
  return nullptr;
}

const Json* FieldReader::Array(std::string_view name) {
  const Json* value = Any(name);
  if (value == nullptr || value->is_array()) return value;
  RefuseType(name, "a list", *value);
  return nullptr;
}

const std::string* FieldReader::Text(std::string_view name) {
  const Json* value = Any(name);
  if (value == nullptr) return nullptr;
  if (value->is_string()) return &value->get_ref<const std::string&>();
  RefuseType(name, "a string", *value);
  return nullptr;
}

std::optional<bool> FieldReader::Bool(std::string_view name) {
  const Json* value = Any(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_boolean()) return value->get<bool>();
  RefuseType(name, "true or false", *value);
  return std::nullopt;
}

std::optional<int64_t> FieldReader::Integer(std::string_view name, int64_t low, int64_t high) {
  const Json* value = Any(name);
  if (value == nullptr) return std::nullopt;
  const std::optional<int64_t> number = AsInteger(*value, low, high);
  if (number) return number;
  using Limits = std::numeric_limits<int64_t>;
  const bool any = low == Limits::min() && high == Limits::max() && !value->is_number_integer();
  RefuseType(name, any ? "an integer" : StrCat("an integer in [", low, ", ", high, "]"), *value);
  return std::nullopt;
}

std::optional<int32_t> FieldReader::Integer32(std::string_view name, int32_t low, int32_t high) {
  const auto number = Integer(name, low, high);
  if (!number) return std::nullopt;
  return static_cast<int32_t>(*number);
}

std::optional<double> FieldReader::Number(std::string_view name) {
  const Json* value = Any(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_number()) return value->get<double>();
  RefuseType(name, "a number", *value);
  return std::nullopt;
}

std::string FieldReader::Path(std::string_view name) const {
  return where_.empty() ? std::string(name) : StrCat(where_, ".", name);
}

void FieldReader::Refuse(std::string_view name, std::string_view why) {
  Check(absl::InvalidArgumentError(StrCat(Path(name), ": ", why)));
}

void FieldReader::RefuseType(std::string_view name, std::string_view expected, const Json& got) {
  Check(WrongType(Path(name), expected, got));
}

void FieldReader::Check(const absl::Status& status) {
  if (status_.ok()) status_ = status;
}

absl::Status FieldReader::Finish() {
  if (!status_.ok()) return status_;
  const Json::object_t::Container& members = object_->get_ref<const Json::object_t&>();
  for (size_t i = 0; i < members.size(); ++i) {
    if (seen_[i] || members[i].second.is_null()) continue;
    constexpr size_t kShownBytes = 64;
    const std::string_view name = members[i].first, near = NearestName(name, names_);
    Refuse(name.substr(0, kShownBytes),
           near.empty() ? "is not supported" : StrCat("is not supported. Did you mean '", near, "'?"));
    break;
  }
  return status_;
}

}  // namespace baton
