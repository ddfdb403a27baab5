// Timelines of the requests of a workflow: their phases, with begin and end.
//
// The router records nothing while a request runs. It builds a request's life at the end, from
// times that it has anyway, and the spans on demand. Requests without a workflow cost nothing.
//
// I/O-free. Not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "request/answers.h"
#include "request/request_outcome.h"
#include "request/request_stages.h"

namespace baton {

// Upper bound on the upstream requests in one life. A request may have thousands, and a few such
// requests would fill a timeline.
inline constexpr size_t kMostUpstreams = 64;

// A request of a workflow that is live or ended recently.
struct RequestLife {
  // If the request is live, its outcome so far.
  RequestOutcome outcome{};
  std::string workflow{};
  std::string cache_domain{};
  std::string agent{};  // may be empty
  // The router did not accept the request. Only names, status and time are set.
  bool refused = false;
  // The first kMostUpstreams upstream requests.
  std::vector<RequestId> upstreams{};
  // By upstream request. The attempt whose output the prompt used. 0: none yet.
  std::vector<int32_t> upstream_attempts{};
  int32_t upstreams_omitted = 0;  // upstream requests beyond those
  // The text that names what a live request waits for, and the first upstream requests among that.
  std::string waits_for{};
  std::vector<RequestId> awaited{};
  RequestStages stages{};
  // Begin and end of each step are durations before stages.prefilled.
  std::vector<PrefillStep> steps{};
};

enum class Phase {
  // The prompt waits for upstream requests. The worker has KV of the tokens so far.
  kWaiting,
  // Tokens could be computed, but the worker computes other requests, or there is no worker.
  kQueued,
  // Steps that compute the prompt. With 0 steps: the request is at a prefill worker, which reports
  // its steps only at the end.
  kPrefill,
  // The last blocks go to the decode worker.
  kHandoff,
  // The decode worker has all blocks, and no step has included the request. The worker reports the
  // end of this wait with the first token.
  kDecodeQueue,
  kFirstStep,
  kDecode,
};

struct PhaseSpan {
  Phase phase = Phase::kWaiting;
  absl::Time begin, end;  // end > begin
  // kPrefill: tokens computed. kDecode: tokens generated.
  int32_t tokens = 0;
  int32_t steps = 0;  // kPrefill only
};

// Returns consecutive spans without gaps or overlap, from the request's arrival to its end, or to
// `now`. There are at most 2 * kMaxPrefillSteps + 7. The spans stay within these bounds even if
// workers report wrong times.
std::vector<PhaseSpan> SpansOf(const RequestLife& life, absl::Time now);

struct TimelineLimits {
  absl::Duration age = absl::Minutes(10);  // since the end of a request
  int64_t requests = 4096;
  // An approximate bound. A life counts as at least bytes / requests.
  int64_t bytes = int64_t{16} << 20;
};

// A workflow with requests that are live or ended recently.
struct WorkflowView {
  std::string name{};
  int32_t requests = 0, live = 0;
  int32_t refused = 0;  // not in `requests`
  // The latest arrival of a request.
  absl::Time latest = absl::InfinitePast();
};

// The lives of requests that ended recently. Each tenant, or each cache domain on a router without
// API keys, has a share: beyond the limits, the one with the most bytes loses its oldest life.
class Timeline {
 public:
  explicit Timeline(TimelineLimits limits) : limits_(limits) {}

  // Adds a life, and drops others while there are too many. REQUIRES: the request has ended, no
  // earlier than all those added before.
  void Keep(RequestLife life);
  using Lives = std::vector<std::shared_ptr<const RequestLife>>;
  // Returns the lives of a workflow of a cache domain, in order of their ends.
  Lives Find(std::string_view workflow, std::string_view cache_domain, absl::Time now);

  // Returns the lives of all workflows of a cache domain, in order of their ends.
  Lives OfCacheDomain(std::string_view cache_domain, absl::Time now);

  int64_t bytes() const { return bytes_; }
  void CheckInvariants() const;

 private:
  struct Kept {
    std::shared_ptr<const RequestLife> life{};
    int64_t bytes = 0;  // as counted here
  };
  using Order = std::list<Kept>;
  struct Share {
    std::deque<Order::iterator> lives{};
    int64_t bytes = 0;
  };
  void DropOld(absl::Time now);
  // Drops the oldest life of an owner that has one.
  void DropOldestOf(const std::string& owner);
  void AddBytes(const std::string& owner, int64_t bytes);

  const TimelineLimits limits_;
  Order lives_;                                        // in order of their ends
  absl::flat_hash_map<std::string, Share> shares_;     // by owner; none is empty
  std::set<std::pair<int64_t, std::string>> largest_;  // the bytes of each share, and its owner
  int64_t bytes_ = 0;
};

}  // namespace baton
