#include "agent/upstream_failure.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "agent/scoped_id.h"
#include "base/retry.h"
#include "base/root_cause.h"

namespace baton {

absl::Status UpstreamFailed(const RequestId& upstream, const std::string& agent, const absl::Status& status,
                            int32_t first) {
  const std::string name = NameOf(upstream);
  const RootCause cause = *RootCauseOf(AsRootCause(status, name, agent));
  const std::string missed = first == 0 ? "" : absl::StrCat("first: fewer than ", first, " outputs can complete; ");
  const std::string named = cause.agent.empty() ? "" : absl::StrCat(" (agent '", cause.agent, "')");
  const std::string where =
      cause.request == name ? named : absl::StrCat(": request '", cause.request, "'", named, " failed");
  return WithRootCause(absl::Status(MayRetry(status) ? status.code() : absl::StatusCode::kAborted,
                                    absl::StrCat(missed, "output_of '", name, "'", where, ": ",
                                                 absl::StatusCodeToString(cause.code), ": ", cause.message)),
                       cause);
}

absl::Status AfterRetries(const absl::Status& status) {
  return WithRootCause(absl::AbortedError(status.message()), *RootCauseOf(status));
}

}  // namespace baton
