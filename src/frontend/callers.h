// The tenants that call the router, and their quotas.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/log_limit.h"
#include "frontend/api_keys.h"
#include "metrics/metrics.h"
#include "router/client_request.h"
#include "shell/router.h"
#include "tenants/tenant_quotas.h"

namespace baton {

using Caller = std::shared_ptr<const Tenant>;

// The origin of a call, for the log.
struct CallOrigin {
  std::string_view protocol;  // "HTTP" or "gRPC"
  std::string_view peer;      // address of the client
  std::string_view target;    // route or method
};

// The cache domain of a tenant's request with this salt. Two tenants never have the same cache
// domain.
std::string CacheDomainOf(const Tenant& tenant, const std::string& cache_salt);

// Thread-safe.
class Callers {
 public:
  // The arguments must outlive this object.
  Callers(const KeyRing& keys, const Clock& clock, Metrics& metrics);

  bool asks() const { return keys_.asks(); }
  // As KeyRing::Authenticate. Logs UNAUTHENTICATED as a warning, at most once in ten seconds. The
  // warning has no key.
  absl::StatusOr<Caller> Authenticate(std::string_view authorization, const CallOrigin& origin);
  // Like Authenticate, for views of all tenants' requests together. Returns PERMISSION_DENIED if
  // the tenant is not an operator.
  absl::StatusOr<Caller> AuthenticateOperator(std::string_view authorization, const CallOrigin& origin);

  // Returns a refusal if Count would refuse every request of this caller now. Call it before
  // reading a request, because reading takes time. Router::CheckSlots does the same for slots.
  std::optional<TenantQuotas::Refusal> Check(const Caller& caller);
  // Counts a request of the tenant until it ends, or until the returned sink is destroyed without
  // an end. Submit the request with the returned sink, which forwards everything to `sink`.
  // `further` is as in TenantQuotas. REQUIRES: spec.expected_tokens is set.
  //
  // A prompt with references is charged for its own segments at once. The outputs in it are charged
  // as their tokens become known, as far as they exceed these segments, because a streaming prompt
  // is computed then. A context is charged with the complete prompt. The expected output is charged
  // when the prompt is complete and the request has a slot.
  //
  // A request whose output becomes longer than expected is charged while it runs (ExpectedLeft), so
  // that the tenant's next request finds the quota used up.
  struct Counted {
    std::shared_ptr<RequestSink> sink{};  // null if the request was refused
    absl::Status status{};
    absl::Duration retry_after{};
  };
  Counted Count(const Caller& caller, const ClientRequest& request, std::shared_ptr<RequestSink> sink, bool further);
  // Returns the tokens that a request is charged for at its start. REQUIRES: spec.expected_tokens
  // is set, or the request generates nothing.
  static int64_t TokensOf(const ClientRequest& request);
  // Counts a refusal of the router, if the reason is the tenant's quota of requests.
  void NoteRefusal(const Caller& caller, const absl::Status& refusal);
  // As in TenantQuotas.
  bool MayPrefillAhead(const Caller& caller, int64_t tokens);
  // As TenantQuotas::Add.
  void AddTokens(const Caller& caller, int64_t tokens);

 private:
  class CountedSink;
  void End(const Tenant& tenant, const std::string& session, int64_t tokens);
  static int64_t ExpectedNow(const ClientRequest& request);

  const KeyRing& keys_;
  const Clock& clock_;
  TenantCounts counts_;
  LogLimit wrong_keys_{};
  std::mutex mutex_;  // guards the members below
  TenantQuotas quotas_;
};

}  // namespace baton
