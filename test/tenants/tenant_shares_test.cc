#include "tenants/tenant_shares.h"

#include "catch.h"
#include "request/priority.h"

namespace baton {
namespace {

RequestSpec OfTenant(const std::string& tenant, int32_t priority = 0) {
  RequestSpec spec;
  spec.tenant = tenant;
  spec.priority = priority;
  return spec;
}

TEST_CASE("TenantShares refuses a tenant that has more requests than slots are free") {
  TenantShares shares(10);
  for (int live = 0; live < 5; ++live) {
    REQUIRE(shares.Check(OfTenant("a"), live).ok());
    shares.Begin(OfTenant("a"));
  }
  CHECK(shares.Check(OfTenant("a"), 5).ok());
  shares.Begin(OfTenant("a"));
  CHECK(absl::IsResourceExhausted(shares.Check(OfTenant("a"), 6)));
  CHECK(shares.Check(OfTenant("b"), 6).ok());
  CHECK(shares.Check(OfTenant(""), 6).ok());
  shares.End(OfTenant("a"));
  CHECK(shares.Check(OfTenant("a"), 5).ok());
  CHECK(shares.live("a") == 5);
}

TEST_CASE("TenantShares does not count low-priority requests, or requests without a tenant") {
  TenantShares shares(2);
  shares.Begin(OfTenant(""));
  shares.Begin(OfTenant("a", kLowPriority));
  shares.CheckInvariants({});
  CHECK(shares.Check(OfTenant("a", kLowPriority), 1).ok());
}

TEST_CASE("TenantShares refuses every request when no slot is free") {
  const TenantShares shares(2);
  for (const RequestSpec& spec : {OfTenant(""), OfTenant("a", kLowPriority), OfTenant("a")}) {
    CHECK(shares.Check(spec, 2).message() == "overloaded: 2 live requests, limit 2");
  }
}

}  // namespace
}  // namespace baton
