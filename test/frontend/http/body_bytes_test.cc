#include "frontend/http/body_bytes.h"

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "catch.h"

namespace baton {
namespace {

// Takes as many bytes as an account can get. Returns their number.
size_t TakeAll(BodyBytes& bytes, const std::string& account) {
  size_t taken = 0;
  while (bytes.Take(account, 1)) ++taken;
  return taken;
}

TEST_CASE("Bytes without an account may fill the budget") {
  BodyBytes bytes(100);
  CHECK(TakeAll(bytes, "") == 100);
  CHECK_FALSE(bytes.Take("a", 1));
  bytes.Give("", 2);
  CHECK(bytes.Take("a", 1));
}

TEST_CASE("An account that takes all it can leaves as many bytes to other accounts") {
  BodyBytes bytes(120);
  CHECK(TakeAll(bytes, "a") == 60);
  CHECK(TakeAll(bytes, "b") == 30);
  CHECK(TakeAll(bytes, "c") == 15);
  // An account above its share must return bytes before it can take more. Other accounts can take
  // those bytes.
  bytes.Give("a", 20);
  CHECK_FALSE(bytes.Take("a", 1));
  CHECK(bytes.Take("c", 5));
  bytes.Give("a", 40);
  bytes.Give("b", 30);
  bytes.Give("c", 20);
  CHECK(TakeAll(bytes, "c") == 60);
}

TEST_CASE("Accounts that want everything converge to equal shares") {
  BodyBytes bytes(400);
  std::mt19937 random(1);
  std::map<std::string, std::vector<size_t>> bodies{{"a", {}}, {"b", {}}, {"c", {}}};
  for (int i = 0; i < 20'000; ++i) {
    auto& [account, held] = *std::next(bodies.begin(), random() % 3);
    const size_t size = 1 + random() % 5;
    if (bytes.Take(account, size)) {
      held.push_back(size);
    } else if (!held.empty()) {
      bytes.Give(account, held.back());
      held.pop_back();
    }
  }
  for (const auto& [account, held] : bodies) {
    size_t sum = 0;
    for (const size_t size : held) sum += size;
    CHECK(sum >= 85);
    CHECK(sum <= 115);
  }
  CHECK(bytes.Take("d", 40));
}

TEST_CASE("A charge returns its bytes, and keeps them when too few others are free") {
  const auto bytes = std::make_shared<BodyBytes>(100);
  auto charge = std::make_unique<BodyCharge>(bytes, "a");
  CHECK(charge->Add(40));
  CHECK_FALSE(charge->Add(11));
  CHECK(charge->bytes() == 40);
  CHECK(charge->Add(0));
  charge.reset();
  CHECK(TakeAll(*bytes, "a") == 50);
}

}  // namespace
}  // namespace baton
