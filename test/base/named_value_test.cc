#include "base/named_value.h"

#include "catch.h"

namespace baton {
namespace {

enum class Fruit { kApple, kPear, kPlum };
struct Row : NamedValue<Fruit> {
  int price;
};
constexpr Row kFruits[] = {{{"apple", Fruit::kApple}, 1}, {{"pear", Fruit::kPear}, 2}, {{"plum", Fruit::kPlum}, 3}};

TEST_CASE("ValueNamed returns a name's value and refuses unknown names with all names") {
  CHECK(ValueNamed("fruit", "pear", kFruits).value() == Fruit::kPear);
  CHECK(ValueNamed("fruit", "plum", kFruits).value() == Fruit::kPlum);
  CHECK(ValueNamed("fruit", "fig", kFruits).status() ==
        absl::InvalidArgumentError("fruit: expected apple, pear or plum, got 'fig'"));
  CHECK(NamesIn(kFruits) == std::vector<std::string>{"apple", "pear", "plum"});
}

}  // namespace
}  // namespace baton
