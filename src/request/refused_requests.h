// The requests of workflows that the router refused recently, for traces.
//
// They have limits of their own, apart from Timeline, so that a flood of refusals drops no request
// that ran. A client that retries in a loop drops only older refusals of its own workflow.
//
// I/O-free. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "request/timeline.h"

namespace baton {

// A request that the router did not accept. Its names have the bounds of the API.
struct RefusedRequest {
  RequestId id{};             // the client's name; empty: none
  bool has_drawn_id = false;  // the router drew the id, so that no prompt refers to it
  std::string cache_domain{};
  std::string tenant{};    // the cache domain on a router without keys
  std::string workflow{};  // empty: none
  std::string agent{};     // empty: none
  absl::Status status{};
  absl::Duration retry_after{};  // the delay that the client received
};

struct RefusalLimits {
  absl::Duration age = TimelineLimits{}.age;
  size_t of_workflow = 64;
  size_t all = 1024;
};

class RefusedRequests {
 public:
  explicit RefusedRequests(RefusalLimits limits) : limits_(limits) {}

  // Keeps a request that is refused now. If its workflow has too many, drops the workflow's oldest
  // one. If all workflows together have too many, drops the oldest one of the tenant with the most.
  //
  // REQUIRES: the request has a workflow, and `now` is not before that of an earlier call.
  void Keep(const RefusedRequest& request, absl::Time now);

  struct OfWorkflow {
    Timeline::Lives lives;  // in order of time
    int32_t omitted = 0;    // number of earlier ones that were dropped
  };
  OfWorkflow Find(const std::string& workflow, const std::string& cache_domain, absl::Time now);
  // Returns those of all workflows of a cache domain.
  Timeline::Lives OfCacheDomain(const std::string& cache_domain, absl::Time now);

 private:
  struct Refused {
    int64_t number = 0;  // order of the calls of Keep
    std::shared_ptr<const RequestLife> life{};
  };
  struct Kept {
    std::string tenant{};
    std::deque<Refused> refused{};  // in order; not empty
    int32_t omitted = 0;
  };
  using Workflows = absl::flat_hash_map<std::pair<std::string, std::string>, Kept>;

  void DropFirst(Kept& kept);
  void DropOld(absl::Time now);
  void DropOldestOfLargestTenant();

  const RefusalLimits limits_;
  Workflows workflows_;  // by cache domain and name
  absl::flat_hash_map<std::string, size_t> of_tenants_;
  size_t all_ = 0;
  int64_t numbers_ = 0;
};

}  // namespace baton
