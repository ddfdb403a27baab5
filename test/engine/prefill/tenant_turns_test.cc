#include "engine/prefill/tenant_turns.h"

#include <cstdlib>
#include <map>

#include "catch.h"

namespace baton {
namespace {

using Tenants = std::vector<std::string>;

// Returns the order of the tenants. Tenants of equal virtual time are in the order of their names.
Tenants Order(TenantTurns& turns, const Tenants& waiting, const Tenants& only_open = {}) {
  std::vector<TenantTurns::Candidate> candidates;
  for (const std::string& tenant : waiting) candidates.push_back({tenant, static_cast<uint64_t>(tenant[0])});
  for (const std::string& tenant : only_open) candidates.push_back({tenant, static_cast<uint64_t>(tenant[0]), false});
  Tenants order;
  for (const auto& candidate : turns.Order(std::move(candidates))) order.push_back(candidate.tenant);
  return order;
}

TEST_CASE("The tenant with the least virtual time comes first, then the first to arrive") {
  TenantTurns turns;
  CHECK(Order(turns, {"c", "a", "b"}) == Tenants{"a", "b", "c"});
  turns.Charge({{"a", 512}});
  CHECK(Order(turns, {"a", "b", "c"}) == Tenants{"b", "c", "a"});
  turns.Charge({{"b", 100}, {"c", 412}});
  CHECK(Order(turns, {"a", "b", "c"}) == Tenants{"b", "c", "a"});
}

TEST_CASE("Tenants that always wait receive equally many tokens") {
  TenantTurns turns;
  std::map<std::string, int64_t> spent;
  for (int step = 0; step < 1000; ++step) {
    const std::string first = Order(turns, {"a", "b", "c"}).front();
    const int64_t tokens = first == "a" ? 512 : first == "b" ? 16 : 100;
    spent[first] += tokens;
    turns.Charge({{first, tokens}});
  }
  CHECK(std::abs(spent["a"] - spent["b"]) <= 512);
  CHECK(std::abs(spent["a"] - spent["c"]) <= 512);
}

TEST_CASE("A returning tenant comes next, but idle time earns it no further tokens") {
  TenantTurns turns;
  Order(turns, {"a", "b"});
  turns.Charge({{"b", 512}});
  for (int step = 0; step < 100; ++step) {
    Order(turns, {"a"});
    turns.Charge({{"a", 512}});
  }
  CHECK(Order(turns, {"a", "b"}) == Tenants{"b", "a"});
  turns.Charge({{"b", 512}});
  CHECK(Order(turns, {"a", "b"}) == Tenants{"a", "b"});  // equal virtual times
  turns.Charge({{"a", 512}});
  CHECK(Order(turns, {"a", "b"}) == Tenants{"b", "a"});
}

TEST_CASE("A tenant that leaves and returns keeps its virtual time") {
  TenantTurns turns;
  Order(turns, {"a", "b"});
  turns.Charge({{"a", 5000}});
  Order(turns, {"b"});
  turns.Charge({{"b", 512}});
  CHECK(Order(turns, {"a", "b"}) == Tenants{"b", "a"});
  CHECK(turns.TimeOf("a") == 5000);
}

TEST_CASE("A tenant that waits for room stays first; a new one starts at the current time") {
  TenantTurns turns;
  Order(turns, {"a", "b"});  // a's request finds no room
  turns.Charge({{"b", 5000}});
  Order(turns, {"a", "b"});
  turns.Charge({{"b", 5000}});
  CHECK(Order(turns, {"a", "b", "c"}) == Tenants{"a", "c", "b"});
  CHECK(turns.TimeOf("a") == 0);
  CHECK(turns.TimeOf("c") == 5000);
}

TEST_CASE("A tenant with only streaming prompts earns no credit") {
  TenantTurns turns;
  for (int step = 0; step < 10; ++step) {
    Order(turns, {"a"}, {"b"});
    turns.Charge({{"a", 512}});
  }
  Order(turns, {"a", "b"});
  CHECK(turns.TimeOf("b") == 9 * 512);
}

}  // namespace
}  // namespace baton
