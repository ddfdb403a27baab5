// Who calls the router, and how much of it they may use.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "frontend/api_keys.h"
#include "metrics/metrics.h"
#include "router/client_request.h"
#include "router/tenant_quotas.h"
#include "shell/router.h"

namespace baton {

using Caller = std::shared_ptr<const Tenant>;

// What a tenant's request may share KV and names with: nothing of another tenant's, whatever salt it sends.
std::string SaltOf(const Tenant& tenant, const std::string& cache_salt);

// Thread-safe.
class Callers {
 public:
  // All must outlive it.
  Callers(const KeyRing& keys, const Clock& clock, Metrics& metrics);

  bool asks() const { return keys_.asks(); }
  // As KeyRing::Authenticate.
  absl::StatusOr<Caller> Authenticate(std::string_view authorization) const {
    return keys_.Authenticate(authorization);
  }
  // The same for what tells of all tenants' requests together: PERMISSION_DENIED for a tenant that does not operate the
  // router.
  absl::StatusOr<Caller> AuthenticateOperator(std::string_view authorization) const;

  // Before a request is read, which takes time: whether Count would refuse whatever it is.
  std::optional<TenantQuotas::Refusal> Check(const Caller& caller);
  // Counts a request of the tenant until it ends, or until the sink is dropped without having been told. The sink to
  // submit it with tells `sink` everything. `further`: as in TenantQuotas.
  struct Counted {
    std::shared_ptr<RequestSink> sink{};  // null: refused
    absl::Status status{};
    absl::Duration retry_after{};
  };
  Counted Count(const Caller& caller, const ClientRequest& request, std::shared_ptr<RequestSink> sink, bool further);
  // That a request may use, as far as is known: what outputs and a context bring to its prompt is counted at its end.
  static int64_t TokensOf(const ClientRequest& request);
  // As in TenantQuotas.
  bool HasSpare(const Caller& caller, int64_t tokens);
  void UseSpare(const Caller& caller, int64_t tokens);

 private:
  class CountedSink;
  void End(const Tenant& tenant, const std::string& session, int64_t tokens);
  void CountRefusal(const Tenant& tenant);

  const KeyRing& keys_;
  const Clock& clock_;
  TenantCounts counts_;
  std::mutex mutex_;  // guards what follows
  TenantQuotas quotas_;
};

}  // namespace baton
