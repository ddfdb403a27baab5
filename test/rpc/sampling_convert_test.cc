// Tests that every row of the table of sampling parameters has its field on the wire.
#include "rpc/sampling_convert.h"

#include <set>
#include <string>

#include "catch.h"

namespace baton {
namespace {

// Sets a value that differs from every default.
struct SetOther {
  void operator()(float& value) const { value += 0.25f; }
  void operator()(int32_t& value) const { value += 3; }
  void operator()(bool& value) const { value = !value; }
  void operator()(std::optional<int32_t>& value) const { value = 0; }
  void operator()(std::optional<uint64_t>& value) const { value = ~0ull; }
  void operator()(std::vector<std::string>& values) const { values = {"a", "b"}; }
  void operator()(std::vector<TokenId>& values) const { values = {2, 0}; }
  void operator()(std::vector<TokenBias>& values) const { values = {{7, -100}, {0, 0.5f}}; }
};

bool SameValue(const SamplingParams& a, const SamplingParams& b, const SamplingField& field) {
  bool same = false;
  std::visit(
      [&](auto member) {
        if constexpr (requires { a.draw.*member; }) {
          same = a.draw.*member == b.draw.*member;
        } else {
          same = a.*member == b.*member;
        }
      },
      field.member);
  return same;
}

TEST_CASE("The table of sampling parameters has the fields of baton.v1.Sampling") {
  std::multiset<std::string> rows;
  std::multiset<std::string> fields;
  for (const SamplingField& field : SamplingFields()) rows.insert(std::string(field.name));
  const auto& message = *v1::Sampling::descriptor();
  for (int i = 0; i < message.field_count(); ++i) fields.insert(message.field(i)->name());
  CHECK(rows == fields);
}

TEST_CASE("Each sampling parameter survives the wire alone") {
  for (const SamplingField& field : SamplingFields()) {
    INFO(std::string(field.name));
    SamplingParams params;
    VisitValue(params, field, SetOther{});
    const SamplingParams back = FromProto(ToProto(params));
    v1::Sampling only;
    SetField(params, field, only);
    for (const SamplingField& other : SamplingFields()) {
      CHECK(SameValue(back, params, other));
      CHECK(SameValue(FromProto(only), params, other));
      CHECK(SameValue(params, SamplingParams{}, other) == (&other != &field));
    }
  }
}

TEST_CASE("FromProto gives an unset sampling parameter its default") {
  SamplingParams defaults;
  for (const SamplingField& field : SamplingFields()) {
    if (field.in_generation_config) VisitValue(defaults, field, SetOther{});
  }
  v1::Sampling given;
  given.set_temperature(0);
  given.set_top_p(1);
  const SamplingParams params = FromProto(given, defaults);
  CHECK(params.draw.temperature == 0);
  CHECK(params.draw.top_p == 1);
  CHECK(params.draw.top_k == defaults.draw.top_k);
  CHECK(params.draw.min_p == defaults.draw.min_p);
  CHECK(params.max_tokens == 0);
  CHECK_FALSE(FromProto(ToProto(SamplingParams{})).seed.has_value());
  CHECK_FALSE(FromProto(ToProto(SamplingParams{})).logprobs.has_value());
}

}  // namespace
}  // namespace baton
