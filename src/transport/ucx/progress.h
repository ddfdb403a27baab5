// A UCX context and worker, and the one thread that uses them.
#pragma once

#include <ucp/api/ucp.h>

#include <chrono>
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
#include "transport/ucx/log.h"

namespace baton {

struct UcxOptions {
  // The network devices that UCX may use, as in UCX_NET_DEVICES. The default is the loopback
  // device. UCX_* variables of the environment override this and all other settings.
  std::string tcp_devices = "lo";
  // Peers on this host may map a device's slab, so that their device copies the blocks. If false,
  // UCX moves the blocks.
  bool share_device = true;
};

// A thread that takes longer to end is taken for hung.
inline constexpr std::chrono::seconds kStopWithin(2);

// Converts a UCX status. The message begins with `what`.
absl::Status ToStatus(ucs_status_t status, std::string_view what);

// The thread sleeps while UCX is idle. The destructor runs the tasks that are already posted and
// then joins the thread.
class UcxProgress {
 public:
  using Task = absl::AnyInvocable<void()>;

  static absl::StatusOr<std::unique_ptr<UcxProgress>> Start(const UcxOptions& options);
  ~UcxProgress();

  // Ends the thread, after the tasks that are already posted. Requests of UCX make no progress
  // after that. Returns false if the thread has not ended by `until`, because a task hangs. The
  // object must then not be destroyed. Idempotent.
  bool StopBy(std::chrono::steady_clock::time_point until);

  // Runs `task` on the thread, after the tasks that were posted before. Thread-safe.
  void Post(Task task);
  // Posts `task` and waits for its result. REQUIRES: the caller is not a task on the thread.
  template <typename F>
  auto Call(F task) {
    std::promise<decltype(task())> result;
    Post([&] { result.set_value(task()); });
    return result.get_future().get();
  }

  // Takes ownership of memory of context() that peers may write to. The destructor unmaps it.
  void Keep(ucp_mem_h memory) { memory_ = memory; }

  // Returns true if UCX can read and write the memory of CUDA devices.
  bool reaches_cuda() const { return reaches_cuda_; }
  // Returns the transports that UCX has found: "tcp/lo", "posix/memory", "cuda_ipc/cuda",
  // "rc_mlx5/mlx5_0:1", ...
  const std::vector<std::string>& transports() const { return transports_; }

  // REQUIRES: the caller is a task on the thread.
  ucp_context_h context() const { return context_; }
  ucp_worker_h worker() const { return worker_; }

 private:
  UcxProgress(ucp_context_h context, ucp_worker_h worker, int event_fd);
  void Run();
  void RequestStop();
  // Runs the posted tasks. Returns false if there are none and the destructor has begun.
  bool RunTasks();
  void Sleep();

  const UcxLog log_;
  const ucp_context_h context_;
  const ucp_worker_h worker_;
  const int event_fd_;
  const bool reaches_cuda_;
  const std::vector<std::string> transports_;
  ucp_mem_h memory_ = nullptr;
  std::mutex mutex_;  // guards tasks_ and stopping_
  std::deque<Task> tasks_;
  bool stopping_ = false;
  std::promise<void> run_;  // ready when Run has returned
  const std::future<void> ran_ = run_.get_future();
  std::thread thread_;  // the last member, because the thread uses the others
};

}  // namespace baton
