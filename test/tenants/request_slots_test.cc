#include "tenants/request_slots.h"

#include <deque>
#include <map>
#include <random>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "catch.h"
#include "request/priority.h"
#include "seeds.h"
#include "tenants/tenant_quotas.h"

namespace baton {
namespace {

using State = RequestSlots::State;

RequestSpec OfTenant(const std::string& tenant, int32_t priority = 0) {
  RequestSpec spec;
  spec.tenant = tenant;
  spec.priority = priority;
  return spec;
}

// Slots and requests, which tests name by id.
struct Named {
  RequestSlots slots;
  std::map<std::string, RequestSlots::Part> parts{};
  explicit Named(const RequestSlots::Limits& limits) : slots(limits) {}

  absl::Status Run(const std::string& id, const std::string& tenant = "", int32_t most = 0, int32_t priority = 0) {
    return slots.Run(parts[id], OfTenant(tenant, priority), most);
  }
  absl::Status Wait(const std::string& id, const std::string& tenant = "", int32_t most = 0, int64_t bytes = 1) {
    return slots.Wait(parts[id], OfTenant(tenant), most, bytes);
  }
  bool Ready(const std::string& id) { return slots.Ready(parts.at(id)); }
  void Leave(const std::string& id) { slots.Leave(parts.at(id)); }
  // Returns the ids of the requests that took slots, separated by spaces.
  std::string Granted() {
    std::vector<const RequestSlots::Part*> live;
    for (const auto& [id, part] : parts) {
      if (part.state != State::kNone) live.push_back(&part);
    }
    slots.CheckInvariants(live);
    std::string ids;
    for (const RequestSlots::Part* granted : slots.TakeGranted()) {
      for (const auto& [id, part] : parts) {
        if (&part == granted) absl::StrAppend(&ids, ids.empty() ? "" : " ", id);
      }
    }
    return ids;
  }
};

TEST_CASE("RequestSlots takes waiting requests beyond its slots") {
  Named n({.slots = 2, .waiting = 2});
  REQUIRE(n.Wait("down1").ok());
  REQUIRE(n.Wait("down2").ok());
  CHECK(n.Wait("down3").message() ==
        "overloaded: 2 requests wait for outputs or for their session, limit 2 (--max-waiting)");
  REQUIRE(n.Run("up1").ok());
  REQUIRE(n.Run("up2").ok());
  CHECK(n.slots.Check("").message() == "overloaded: 2 live requests, limit 2 (--max-requests)");
  CHECK(n.Run("more").message() == "overloaded: 2 live requests, limit 2 (--max-requests)");
  CHECK_FALSE(n.Ready("down2"));
  CHECK_FALSE(n.Ready("down1"));
  CHECK(n.slots.counts() == RequestSlots::Counts{2, 2, 2, 2});
  n.Leave("up1");
  CHECK(n.Granted() == "down2");  // it was complete first
  CHECK(n.Wait("down3").ok());
  n.Leave("up2");
  CHECK(n.Granted() == "down1");
  for (const char* id : {"down1", "down2", "down3"}) n.Leave(id);
  CHECK(n.Granted().empty());
  CHECK(n.slots.counts() == RequestSlots::Counts{});
}

TEST_CASE("RequestSlots holds a tenant to its quota when its requests have waited") {
  Named n({.slots = 20, .waiting = 20});
  for (int i = 0; i < 5; ++i) REQUIRE(n.Wait(absl::StrCat("a", i), "a", 2).ok());
  CHECK(n.Ready("a0"));
  CHECK(n.Ready("a1"));
  CHECK_FALSE(n.Ready("a2"));
  CHECK_FALSE(n.Ready("a3"));
  const absl::Status refused = n.Run("new", "a", 2);
  CHECK(refused.message() == "tenant 'a': the quota of 2 requests is used up");
  CHECK(IsQuotaRefusal(refused));
  CHECK(n.slots.Check("a").ok());  // a request that waits is still accepted
  // A tenant at its quota does not block others.
  CHECK(n.Run("b0", "b").ok());
  n.Leave("a2");  // cancelled in the queue
  n.Leave("a1");
  CHECK(n.Granted() == "a3");
  // A quota that was raised applies to queued requests.
  CHECK_FALSE(n.Ready("a4"));
  REQUIRE(n.Run("b1", "b").ok());
  CHECK(n.Granted().empty());
  REQUIRE(n.Wait("a5", "a", 4).ok());
  CHECK(n.Granted() == "a4");
}

TEST_CASE("RequestSlots gives a free slot to the tenant with the fewest slots") {
  Named n({.slots = 4, .waiting = 20});
  for (const char* id : {"a0", "a1", "a2"}) REQUIRE(n.Run(id, "a").ok());
  for (const char* id : {"a3", "a4", "a5"}) {
    REQUIRE(n.Wait(id, "a").ok());
    CHECK_FALSE(n.Ready(id));  // more slots than are free
  }
  REQUIRE(n.Run("b0", "b").ok());
  for (const char* id : {"b1", "b2"}) {
    REQUIRE(n.Wait(id, "b").ok());
    CHECK_FALSE(n.Ready(id));
  }
  n.Leave("a0");
  CHECK(n.Granted() == "b1");
  n.Leave("a1");
  CHECK(n.Granted() == "a3");
  n.Leave("a2");
  n.Leave("a3");
  CHECK(n.Granted() == "a4 a5");
}

TEST_CASE("RequestSlots bounds the bytes of waiting prompts by tenant and in all") {
  Named n({.slots = 2, .waiting = 20, .waiting_bytes = 100});
  REQUIRE(n.Wait("a0", "a", 0, 40).ok());
  const absl::Status refused = n.Wait("a1", "a", 0, 20);
  CHECK(refused.message() ==
        "overloaded: prompts that wait for outputs have 40 bytes, limit 100, and half of it for a tenant; this prompt "
        "adds 20");
  CHECK_FALSE(IsQuotaRefusal(refused));
  CHECK(n.Wait("b0", "b", 0, 20).ok());
  CHECK(n.slots.Grow(n.parts["b0"], 10).ok());
  CHECK_FALSE(n.slots.Grow(n.parts["a0"], 1).ok());
  CHECK(n.slots.Grow(n.parts["a0"], -15).ok());
  CHECK(n.slots.Grow(n.parts["a0"], 7).ok());
  CHECK(n.slots.counts().waiting_bytes == 62);
  // A request with a slot does not count.
  REQUIRE(n.Ready("a0"));
  CHECK(n.slots.Grow(n.parts["a0"], 1000).ok());
  CHECK(n.slots.counts().waiting_bytes == 30);
  n.Leave("b0");
  CHECK(n.slots.counts().waiting_bytes == 0);
  CHECK(n.Granted().empty());
}

TEST_CASE("RequestSlots leaves waiting slots to other tenants") {
  Named n({.slots = 1, .waiting = 4});
  for (const char* id : {"a0", "a1", "a2"}) REQUIRE(n.Wait(id, "a").ok());
  CHECK(absl::StrContains(n.Wait("a3", "a").message(), "a tenant with more waiting requests than free slots"));
  CHECK(n.Wait("b0", "b").ok());
  REQUIRE(n.Ready("b0"));
  CHECK_FALSE(n.Ready("a0"));
  CHECK(n.slots.Check("c").ok());
  REQUIRE(n.Wait("c0", "c").ok());
  CHECK(absl::IsResourceExhausted(n.slots.Check("c")));
}

TEST_CASE("RequestSlots refuses a tenant that has more requests than slots are free") {
  Named n({.slots = 10, .waiting = 10});
  for (int i = 0; i < 6; ++i) REQUIRE(n.Run(absl::StrCat("a", i), "a").ok());
  CHECK(absl::IsResourceExhausted(n.Run("more", "a")));
  CHECK(n.Run("b", "b").ok());
  CHECK(n.Run("none", "").ok());
  n.Leave("a0");
  n.Leave("b");
  CHECK(n.Granted().empty());
  CHECK_FALSE(n.Run("more", "a").ok());
  n.Leave("none");
  CHECK(n.Run("more", "a").ok());
}

TEST_CASE("RequestSlots counts low-priority requests in all and not by tenant") {
  Named n({.slots = 2, .waiting = 2});
  REQUIRE(n.Run("low", "a", 1, kLowPriority).ok());
  CHECK(n.Run("r", "a", 1).ok());
  CHECK(absl::IsResourceExhausted(n.Run("low2", "a", 1, kLowPriority)));
  n.Leave("low");
  CHECK(n.Granted().empty());
  CHECK(n.slots.counts().running == 1);
}

TEST_CASE("RequestSlots ends every request and holds its limits in random runs") {
  ForEachSeed(20, [](uint64_t seed) {
    std::mt19937 random(seed);
    const auto below = [&](uint32_t n) { return random() % n; };
    const RequestSlots::Limits limits{.slots = 6, .waiting = 12, .waiting_bytes = 100};
    RequestSlots slots(limits);
    std::deque<RequestSlots::Part> parts(40);
    const std::map<std::string, int32_t> quotas = {{"a", 3}, {"b", 0}, {"c", 1}};
    const auto check = [&] {
      std::vector<const RequestSlots::Part*> live;
      for (const RequestSlots::Part& part : parts) {
        if (part.state != State::kNone) live.push_back(&part);
      }
      slots.CheckInvariants(live);
      for (const RequestSlots::Part* part : slots.TakeGranted()) CHECK(part->state == State::kRunning);
      CHECK(slots.counts().running <= limits.slots);
      CHECK(slots.counts().waiting <= limits.waiting);
      CHECK(slots.counts().waiting_bytes <= limits.waiting_bytes);
    };
    for (int step = 0; step < 2'000; ++step) {
      RequestSlots::Part& part = parts[below(40)];
      const auto& [tenant, quota] = *std::next(quotas.begin(), below(3));
      if (part.state == State::kNone) {
        const RequestSpec spec = OfTenant(tenant, below(8) == 0 ? kLowPriority : 0);
        const absl::Status added = below(2) == 0 || spec.priority != 0 ? slots.Run(part, spec, quota)
                                                                       : slots.Wait(part, spec, quota, below(20));
        CHECK((added.ok() || absl::IsResourceExhausted(added)));
        CHECK(added.ok() == (part.state != State::kNone));
      } else if (below(3) == 0) {
        (void)slots.Grow(part, static_cast<int64_t>(below(10)) - std::min<int64_t>(part.bytes, below(10)));
      } else if (below(2) == 0) {
        const bool ready = slots.Ready(part);
        CHECK(ready == (part.state == State::kRunning));
      } else {
        slots.Leave(part);
      }
      check();
    }
    // Every request that can run gets its slot, because those with slots end.
    for (RequestSlots::Part& part : parts) {
      if (part.state == State::kWaiting) slots.Ready(part);
    }
    while (slots.counts().running > 0) {
      for (RequestSlots::Part& part : parts) {
        if (part.state == State::kRunning) slots.Leave(part);
        check();
      }
    }
    CHECK(slots.counts() == RequestSlots::Counts{});
  });
}

}  // namespace
}  // namespace baton
