#include "engine/prefill/fair_queue.h"

#include <cstdlib>
#include <map>

#include "catch.h"

namespace baton {
namespace {

using Tenants = std::vector<std::string>;

// Returns the order of the tenants. Tenants of equal virtual time are in the order of their names.
Tenants Order(FairQueue& queue, const Tenants& waiting, const Tenants& only_streaming = {}) {
  std::vector<FairQueue::Candidate> candidates;
  for (const std::string& tenant : waiting) candidates.push_back({tenant, static_cast<uint64_t>(tenant[0])});
  for (const std::string& tenant : only_streaming)
    candidates.push_back({tenant, static_cast<uint64_t>(tenant[0]), false});
  Tenants order;
  for (const auto& candidate : queue.Order(std::move(candidates))) order.push_back(candidate.tenant);
  return order;
}

TEST_CASE("The tenant with the least virtual time comes first, then the first to arrive") {
  FairQueue queue;
  CHECK(Order(queue, {"c", "a", "b"}) == Tenants{"a", "b", "c"});
  queue.Charge({{"a", 512}});
  CHECK(Order(queue, {"a", "b", "c"}) == Tenants{"b", "c", "a"});
  queue.Charge({{"b", 100}, {"c", 412}});
  CHECK(Order(queue, {"a", "b", "c"}) == Tenants{"b", "c", "a"});
}

TEST_CASE("Tenants that always wait receive equally many tokens") {
  FairQueue queue;
  std::map<std::string, int64_t> spent;
  for (int step = 0; step < 1000; ++step) {
    const std::string first = Order(queue, {"a", "b", "c"}).front();
    const int64_t tokens = first == "a" ? 512 : first == "b" ? 16 : 100;
    spent[first] += tokens;
    queue.Charge({{first, tokens}});
  }
  CHECK(std::abs(spent["a"] - spent["b"]) <= 512);
  CHECK(std::abs(spent["a"] - spent["c"]) <= 512);
}

TEST_CASE("A returning tenant comes next, but idle time earns it no further tokens") {
  FairQueue queue;
  Order(queue, {"a", "b"});
  queue.Charge({{"b", 512}});
  for (int step = 0; step < 100; ++step) {
    Order(queue, {"a"});
    queue.Charge({{"a", 512}});
  }
  CHECK(Order(queue, {"a", "b"}) == Tenants{"b", "a"});
  queue.Charge({{"b", 512}});
  CHECK(Order(queue, {"a", "b"}) == Tenants{"a", "b"});  // equal virtual times
  queue.Charge({{"a", 512}});
  CHECK(Order(queue, {"a", "b"}) == Tenants{"b", "a"});
}

TEST_CASE("A tenant that leaves and returns keeps its virtual time") {
  FairQueue queue;
  Order(queue, {"a", "b"});
  queue.Charge({{"a", 5000}});
  Order(queue, {"b"});
  queue.Charge({{"b", 512}});
  CHECK(Order(queue, {"a", "b"}) == Tenants{"b", "a"});
  CHECK(queue.TimeOf("a") == 5000);
}

TEST_CASE("A tenant that waits for room stays first; a new one starts at the current time") {
  FairQueue queue;
  Order(queue, {"a", "b"});  // a's request finds no room
  queue.Charge({{"b", 5000}});
  Order(queue, {"a", "b"});
  queue.Charge({{"b", 5000}});
  CHECK(Order(queue, {"a", "b", "c"}) == Tenants{"a", "c", "b"});
  CHECK(queue.TimeOf("a") == 0);
  CHECK(queue.TimeOf("c") == 5000);
}

TEST_CASE("A tenant with only streaming prompts earns no credit") {
  FairQueue queue;
  for (int step = 0; step < 10; ++step) {
    Order(queue, {"a"}, {"b"});
    queue.Charge({{"a", 512}});
  }
  Order(queue, {"a", "b"});
  CHECK(queue.TimeOf("b") == 9 * 512);
}

}  // namespace
}  // namespace baton
