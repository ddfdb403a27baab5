#include "tenants/tenant_quotas.h"

#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "catch.h"
#include "seeds.h"

namespace baton {
namespace {

const absl::Time kStart = absl::UnixEpoch();

TEST_CASE("TenantQuotas counts each tenant separately") {
  TenantQuotas quotas;
  const Tenant small{"small", {.max_sessions = 1}}, other{"other", {.max_sessions = 1}}, free{"free", {}};
  CHECK_FALSE(quotas.Begin(small, "a", 10, kStart));
  const auto refusal = quotas.Begin(small, "b", 10, kStart);
  REQUIRE(refusal);
  CHECK(refusal->status.message() == "tenant 'small': the quota of 1 sessions is used up");
  CHECK(IsQuotaRefusal(refusal->status));
  CHECK_FALSE(quotas.Begin(other, "b", 10, kStart));
  for (int i = 0; i < 100; ++i) CHECK_FALSE(quotas.Begin(free, absl::StrCat(i), 1 << 20, kStart));
  quotas.End(small, "a", 0, kStart);
  CHECK_FALSE(quotas.Begin(small, "b", 10, kStart));
  quotas.CheckInvariants();
}

TEST_CASE("TenantQuotas counts a session once") {
  TenantQuotas quotas;
  const Tenant tenant{"t", {.max_sessions = 1}};
  CHECK_FALSE(quotas.Begin(tenant, "a", 1, kStart));
  CHECK_FALSE(quotas.Begin(tenant, "a", 1, kStart));
  CHECK(quotas.Begin(tenant, "b", 1, kStart));
  CHECK_FALSE(quotas.Begin(tenant, "", 1, kStart));  // without a session
  quotas.End(tenant, "a", 0, kStart);
  CHECK(quotas.Begin(tenant, "b", 1, kStart));
  quotas.End(tenant, "a", 0, kStart);
  CHECK_FALSE(quotas.Begin(tenant, "b", 1, kStart));
}

TEST_CASE("TenantQuotas refuses a tenant until its excess tokens are worked off") {
  TenantQuotas quotas;
  const Tenant tenant{"t", {.tokens_per_minute = 600}};
  CHECK_FALSE(quotas.Begin(tenant, "", 500, kStart));
  CHECK_FALSE(quotas.Begin(tenant, "", 500, kStart));  // 1,000 now: 400 too many
  const auto refusal = quotas.Begin(tenant, "", 1, kStart);
  REQUIRE(refusal);
  CHECK(refusal->retry_after > absl::Seconds(40));
  CHECK(refusal->retry_after < absl::Seconds(41));
  CHECK(quotas.Begin(tenant, "", 1, kStart + absl::Seconds(39)));
  CHECK_FALSE(quotas.Begin(tenant, "", 1, kStart + refusal->retry_after));
  // The tokens that a request has used count when it ends.
  quotas.End(tenant, "", 6000, kStart + absl::Seconds(60));
  CHECK(quotas.Begin(tenant, "", 1, kStart + absl::Seconds(600)));
  CHECK_FALSE(quotas.Begin(tenant, "", 1, kStart + absl::Seconds(700)));
}

TEST_CASE("TenantQuotas leaves half a minute's tokens when it counts prefill hints") {
  TenantQuotas quotas;
  const Tenant tenant{"t", {.tokens_per_minute = 600}}, free{"free", {}};
  CHECK(quotas.MayPrefillAhead(tenant, 300, kStart));
  CHECK_FALSE(quotas.MayPrefillAhead(tenant, 301, kStart));
  quotas.Add(tenant, 300, kStart);
  CHECK_FALSE(quotas.MayPrefillAhead(tenant, 1, kStart));
  CHECK(quotas.MayPrefillAhead(tenant, 100, kStart + absl::Seconds(10)));  // 100 were worked off
  quotas.Add(tenant, 100, kStart + absl::Seconds(10));
  CHECK_FALSE(quotas.Begin(tenant, "", 300, kStart + absl::Seconds(10)));
  CHECK(quotas.Begin(tenant, "", 1, kStart + absl::Seconds(10)));
  CHECK(quotas.MayPrefillAhead(free, 1 << 30, kStart));
  quotas.CheckInvariants();
}

TEST_CASE("TenantQuotas does not refuse further requests of a call for tokens") {
  TenantQuotas quotas;
  const Tenant tenant{"t", {.tokens_per_minute = 600}};
  CHECK_FALSE(quotas.Begin(tenant, "", 700, kStart));
  CHECK_FALSE(quotas.Begin(tenant, "", 700, kStart, /*further=*/true));
  CHECK(quotas.Begin(tenant, "", 1, kStart));
  CHECK_FALSE(quotas.Begin(tenant, "", 1, kStart, /*further=*/true));
  quotas.End(tenant, "", 0, kStart);
  CHECK(quotas.Begin(tenant, "", 1, kStart + absl::Seconds(60)));  // 1,401 - 600
  CHECK_FALSE(quotas.Begin(tenant, "", 1, kStart + absl::Seconds(81)));
}

TEST_CASE("TenantQuotas holds its limits and counts nothing at the end of random runs") {
  ForEachSeed(1, [](uint64_t seed) {
    std::mt19937 random(seed);
    TenantQuotas quotas;
    const std::vector<Tenant> tenants = {{"a", {.max_sessions = 2}}, {"b", {.max_sessions = 3}}};
    struct Live {
      const Tenant* tenant;
      std::string session;
    };
    std::vector<Live> live;
    for (int step = 0; step < 20'000; ++step) {
      if (random() % 2 == 0) {
        const Tenant& tenant = tenants[random() % 2];
        const std::string session = random() % 3 == 0 ? "" : std::string(1, static_cast<char>('x' + random() % 3));
        if (!quotas.Begin(tenant, session, 1, kStart)) live.push_back({&tenant, session});
        std::set<std::string> sessions;
        for (const Live& other : live) {
          if (other.tenant == &tenants[0] && !other.session.empty()) sessions.insert(other.session);
        }
        CHECK(sessions.size() <= 2);
      } else if (!live.empty()) {
        std::swap(live[random() % live.size()], live.back());
        quotas.End(*live.back().tenant, live.back().session, 1, kStart);
        live.pop_back();
      }
      quotas.CheckInvariants();
    }
    for (const Live& request : live) quotas.End(*request.tenant, request.session, 0, kStart);
    for (const char* session : {"new", "newer"}) CHECK_FALSE(quotas.Begin(tenants[0], session, 1, kStart));
  });
}

}  // namespace
}  // namespace baton
