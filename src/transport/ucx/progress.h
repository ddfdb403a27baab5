// UCX's context and worker, and the one thread that touches them.
#pragma once

#include <ucp/api/ucp.h>

#include <deque>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace baton {

struct UcxOptions {
  // Network devices that UCX may use, as in UCX_NET_DEVICES; the loopback unless told otherwise. UCX_* variables that
  // the user has set win over this and all else.
  std::string tcp_devices = "lo";
  // Peers of this host map a device's slab where they can, and their device copies; false: UCX moves what they write.
  bool share_device = true;
};

absl::Status ToStatus(ucs_status_t status, std::string_view what);

// The thread sleeps when UCX has nothing to do. Destroying it joins the thread, after the tasks that were posted
// before.
class UcxProgress {
 public:
  using Task = absl::AnyInvocable<void()>;

  static absl::StatusOr<std::unique_ptr<UcxProgress>> Start(const UcxOptions& options);
  ~UcxProgress();

  // Runs `task` on the thread, after those posted before. From any thread.
  void Post(Task task);
  // Posts `task` and waits for its result. Not from the thread itself.
  template <typename F>
  auto Call(F task) {
    std::promise<decltype(task())> result;
    Post([&] { result.set_value(task()); });
    return result.get_future().get();
  }

  // Memory of context() that peers may write to through the worker; unmapped with it.
  void Keep(ucp_mem_h memory) { memory_ = memory; }

  // UCX can read and write the memory of CUDA devices.
  bool reaches_cuda() const { return reaches_cuda_; }
  // What UCX has found to move bytes by: "tcp/lo", "posix/memory", "cuda_ipc/cuda", "rc_mlx5/mlx5_0:1", ...
  const std::vector<std::string>& transports() const { return transports_; }

  // For tasks only.
  ucp_context_h context() const { return context_; }
  ucp_worker_h worker() const { return worker_; }

 private:
  UcxProgress(ucp_context_h context, ucp_worker_h worker, int event_fd);
  void Run();
  bool RunTasks();  // false: told to stop and none is left
  void Sleep();

  const ucp_context_h context_;
  const ucp_worker_h worker_;
  const int event_fd_;
  const bool reaches_cuda_;
  const std::vector<std::string> transports_;
  ucp_mem_h memory_ = nullptr;
  std::mutex mutex_;  // of tasks_ and stopping_
  std::deque<Task> tasks_;
  bool stopping_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace baton
