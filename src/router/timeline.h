// When what happened to the requests of a workflow. I/O-free; not thread-safe.
//
// Nothing is recorded while a request runs: its life is put together when it is over, from times that the router
// knows anyway, and its spans when somebody asks. Requests without a workflow cost nothing.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "base/ids.h"
#include "request/answers.h"
#include "request/request_stages.h"
#include "router/request_outcome.h"

namespace baton {

// Whom a request waits for, as far as traces tell: with the thousands there may be, a few requests would fill a
// timeline.
inline constexpr size_t kMostUpstreams = 64;

// A request of a workflow, live or lately over.
struct RequestLife {
  RequestOutcome outcome{};  // so far, of a request that is live
  std::string workflow{};
  std::string cache_domain{};
  std::string agent{};                 // may be empty
  std::vector<RequestId> upstreams{};  // the first kMostUpstreams
  int32_t upstreams_omitted = 0;       // and how many more there are
  RequestStages stages{};
  std::vector<PrefillStep> steps{};  // before stages.prefilled, as is outcome.handoff
};

enum class Phase {
  kWaiting,    // for outputs that the prompt refers to; what is known of it is computed
  kQueued,     // something could be computed, and other requests are
  kPrefill,    // steps that compute the prompt; 0 steps: at a prefill worker, which tells them when it is done
  kHandoff,    // the last blocks go to the decode worker
  kFirstStep,  // the decode worker has them all and no token has come
  kDecode,
};

struct PhaseSpan {
  Phase phase = Phase::kWaiting;
  absl::Time begin, end;  // end > begin
  int32_t tokens = 0;     // kPrefill: computed; kDecode: made
  int32_t steps = 0;      // kPrefill
};

// One after the other without gaps or overlap, from its arrival to its end, or to `now`; at most
// 2 * kMaxPrefillSteps + 6. Whatever workers say of times, spans stay within that.
std::vector<PhaseSpan> SpansOf(const RequestLife& life, absl::Time now);

struct TimelineLimits {
  absl::Duration age = absl::Minutes(10);  // since the end of a request
  int64_t requests = 4096;
  int64_t bytes = int64_t{16} << 20;  // about
};

// A workflow, of whose requests some are live or ended lately.
struct WorkflowView {
  std::string name{};
  int32_t requests = 0, live = 0;
  absl::Time latest = absl::InfinitePast();  // arrival of a request
};

// The requests that ended lately.
class Timeline {
 public:
  explicit Timeline(TimelineLimits limits) : limits_(limits) {}

  // The oldest go when there are too many. REQUIRES: it is over, and none before it ended later.
  void Keep(RequestLife life);
  using Lives = std::vector<std::shared_ptr<const RequestLife>>;
  // Those of a tenant's workflow, by their ends.
  Lives Find(std::string_view workflow, std::string_view tenant, absl::Time now);

  // Those of all of a tenant's workflows, by their ends.
  Lives OfTenant(std::string_view tenant, absl::Time now);

  int64_t bytes() const { return bytes_; }

 private:
  void DropOld(absl::Time now);

  const TimelineLimits limits_;
  std::deque<std::shared_ptr<const RequestLife>> lives_;  // by their ends
  int64_t bytes_ = 0;
};

}  // namespace baton
