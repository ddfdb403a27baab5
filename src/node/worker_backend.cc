#include "node/worker_backend.h"

#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "backend/tensor_parallel.h"
#include "base/status.h"
#include "transport/striped_connector.h"

namespace baton {

absl::StatusOr<WorkerBackend> MakeBackend(const LoadedModel& model, const WorkerOptions& options, bool lm_head,
                                          const Transports& transports) {
  WorkerBackend made;
  ASSIGN_OR_RETURN(made.backend, model.device->MakeBackend(model, options, lm_head, transports));
  const KvLayout& layout = made.backend->kv_layout();
  const int ranks = static_cast<int>(transports.size());
  std::vector<StripedConnector::Part> parts;
  for (int rank = 0; rank < ranks; ++rank) {
    parts.push_back({transports[static_cast<size_t>(rank)].get(), StripeOf(layout, {rank, ranks})});
  }
  made.connector = std::make_unique<StripedConnector>(layout.PlaneBytes(), std::move(parts));
  return made;
}

ParallelFor ParallelForOn(ThreadPool& pool) {
  return [&pool](int64_t n, absl::FunctionRef<void(int64_t)> body) {
    pool.ParallelFor(n, 1, [&](Share share) { body(share.begin); });
  };
}

}  // namespace baton
