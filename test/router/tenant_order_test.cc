#include "router/tenant_order.h"

#include <array>
#include <map>
#include <memory>
#include <vector>

#include "catch.h"
#include "world/route_request.h"

namespace baton {
namespace {

// Two tenants that always have a waiting request.
struct Rivals {
  std::unique_ptr<Request> Make(const std::string& tenant, int32_t prompt, int32_t max_tokens) {
    auto request = MakeRecord({.id = tenant, .tenant = tenant, .prompt_tokens = prompt, .max_new_tokens = max_tokens});
    request->placement.state = Placement::State::kWaiting;
    order.BeginWait(*request);
    return request;
  }
  // Hands the request off, and ends it after `made` tokens.
  void Serve(Request& request, int32_t made) {
    order.Granted(request);
    order.EndWait(request);
    request.completion_tokens = made;
    tokens[request.asked.spec.tenant] += std::ssize(request.asked.spec.tokens) + made;
    order.Ended(request);
  }

  TenantOrder order;
  std::map<std::string, int64_t> tokens;
};

TEST_CASE("TenantOrder serves tenants equal numbers of tokens whatever their lengths") {
  Rivals r;
  // Tenant b asks for outputs that it does not use.
  std::unique_ptr<Request> a = r.Make("a", 1000, 100), b = r.Make("b", 40, 900);
  for (int i = 0; i < 3000; ++i) {
    std::unique_ptr<Request>& next = r.order.TimeOf(*a) <= r.order.TimeOf(*b) ? a : b;
    // The tenant has another waiting request before this one is handed off.
    std::unique_ptr<Request> after = &next == &a ? r.Make("a", 1000, 100) : r.Make("b", 40, 900);
    r.Serve(*next, &next == &a ? 100 : 10);
    next = std::move(after);
  }
  CHECK(std::abs(r.tokens["a"] - r.tokens["b"]) <= 1100);
}

TEST_CASE("TenantOrder lets another tenant ask after an ask without a hand-off") {
  Rivals r;
  const std::unique_ptr<Request> a = r.Make("a", 100, 10), b = r.Make("b", 20, 10);
  r.order.Asked(*a);
  CHECK(r.order.AskTimeOf(*a) > r.order.AskTimeOf(*b));
  CHECK(r.order.TimeOf(*a) == r.order.TimeOf(*b));
  absl::flat_hash_set<Request*> live{a.get(), b.get()};
  r.order.CheckInvariants(live);
  SECTION("the request asks again and is handed off") {
    r.order.Asked(*a);
    r.order.Granted(*a);
    CHECK(r.order.TimeOf(*a) == 110);
  }
  SECTION("the request ends") {
    r.order.EndWait(*a);
    r.order.Ended(*a);
    live.erase(a.get());
  }
  CHECK(r.order.AskTimeOf(*a) == r.order.TimeOf(*a));
  r.order.CheckInvariants(live);
}

TEST_CASE("TenantOrder charges a request that goes on at another worker once") {
  Rivals r;
  const std::unique_ptr<Request> a = r.Make("a", 100, 10);
  for (int placed = 0; placed < 3; ++placed) r.order.Granted(*a);
  CHECK(r.order.TimeOf(*a) == 110);
}

}  // namespace
}  // namespace baton
