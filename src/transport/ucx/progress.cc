#include "transport/ucx/progress.h"

#include <poll.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "transport/ucx/lanes.h"

namespace baton {
namespace {

// Number of calls of ucp_worker_progress without progress before the thread sleeps. They take about
// as long as a message.
constexpr int kSpins = 200;

// Serialises the creation and destruction of contexts. UCX does not document that several threads
// may do these at the same time.
std::mutex& ContextsMutex() {
  static std::mutex mutex;
  return mutex;
}

struct Setting {
  const char* name;
  const char* value;
};

absl::StatusOr<ucp_context_h> CreateContext(const UcxOptions& options) {
  ucp_config_t* config = nullptr;
  RETURN_IF_ERROR(ToStatus(ucp_config_read(nullptr, nullptr, &config), "reading UCX's configuration"));
  const std::string devices = options.tcp_devices.empty() ? "all" : options.tcp_devices;
  const Setting settings[] = {
      {"NET_DEVICES", devices.c_str()},
      // Segments of sysv outlive a killed process. The transport posix replaces it.
      {"TLS", "^sysv"},
      {"KEEPALIVE_INTERVAL", "1s"},
  };
  absl::Status status;
  for (const Setting& setting : settings) {
    if (std::getenv(absl::StrCat("UCX_", setting.name).c_str()) != nullptr) continue;
    status.Update(ToStatus(ucp_config_modify(config, setting.name, setting.value),
                           absl::StrCat("setting UCX_", setting.name, "=", setting.value)));
  }
  ucp_context_h context = nullptr;
  if (status.ok()) {
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = UCP_FEATURE_RMA | UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
    status = ToStatus(ucp_init(&params, config, &context), "initialising UCX");
  }
  ucp_config_release(config);
  if (!status.ok()) return status;
  return context;
}

bool ReachesCuda(ucp_context_h context) {
  ucp_context_attr_t attributes{};
  attributes.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES;
  return ucp_context_query(context, &attributes) == UCS_OK &&
         (attributes.memory_types & (uint64_t{1} << UCS_MEMORY_TYPE_CUDA)) != 0;
}

}  // namespace

absl::Status ToStatus(ucs_status_t status, std::string_view what) {
  if (status == UCS_OK) return absl::OkStatus();
  const std::string message = absl::StrCat(std::string(what), ": UCX: ", ucs_status_string(status));
  switch (status) {
    case UCS_ERR_NO_MEMORY:
    case UCS_ERR_NO_RESOURCE:
      return absl::ResourceExhaustedError(message);
    case UCS_ERR_INVALID_PARAM:
    case UCS_ERR_INVALID_ADDR:
      return absl::InvalidArgumentError(message);
    default:  // unreachable, connection reset, endpoint timeout, cancelled, ...
      return absl::UnavailableError(message);
  }
}

absl::StatusOr<std::unique_ptr<UcxProgress>> UcxProgress::Start(const UcxOptions& options) {
  const UcxLog log;  // for messages until the object exists
  const std::lock_guard lock(ContextsMutex());
  ASSIGN_OR_RETURN(const ucp_context_h context, CreateContext(options));
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SINGLE;
  ucp_worker_h worker = nullptr;
  absl::Status status = ToStatus(ucp_worker_create(context, &params, &worker), "creating a UCX worker");
  int event_fd = -1;
  if (status.ok()) status = ToStatus(ucp_worker_get_efd(worker, &event_fd), "getting the UCX worker's event fd");
  if (!status.ok()) {
    if (worker != nullptr) ucp_worker_destroy(worker);
    ucp_cleanup(context);
    return status;
  }
  return std::unique_ptr<UcxProgress>(new UcxProgress(context, worker, event_fd));
}

UcxProgress::UcxProgress(ucp_context_h context, ucp_worker_h worker, int event_fd)
    : context_(context),
      worker_(worker),
      event_fd_(event_fd),
      reaches_cuda_(ReachesCuda(context)),
      transports_(TransportsOf(context)),
      thread_([this] { Run(); }) {}

void UcxProgress::RequestStop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  ucp_worker_signal(worker_);
}

bool UcxProgress::StopBy(std::chrono::steady_clock::time_point until) {
  if (!thread_.joinable()) return true;
  RequestStop();
  if (ran_.wait_until(until) != std::future_status::ready) return false;
  thread_.join();
  return true;
}

UcxProgress::~UcxProgress() {
  if (thread_.joinable()) {
    RequestStop();
    thread_.join();
  }
  const std::lock_guard lock(ContextsMutex());
  // Unmap before the worker is destroyed. UCX 1.22 looped forever when it unmapped memory of a
  // destroyed worker.
  if (memory_ != nullptr) ucp_mem_unmap(context_, memory_);
  ucp_worker_destroy(worker_);
  ucp_cleanup(context_);
}

void UcxProgress::Post(Task task) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  ucp_worker_signal(worker_);  // UCX allows only this call from any thread.
}

bool UcxProgress::RunTasks() {
  std::deque<Task> tasks;
  {
    const std::lock_guard lock(mutex_);
    if (tasks_.empty()) return !stopping_;
    tasks.swap(tasks_);
  }
  for (Task& task : tasks) task();
  return true;
}

void UcxProgress::Run() {
  int spins = 0;
  while (RunTasks()) {
    if (ucp_worker_progress(worker_) > 0) {
      spins = 0;
    } else if (++spins > kSpins) {
      Sleep();
    }
  }
  run_.set_value();
}

// Sleeps until UCX has an event or a task is posted. A task that is posted after RunTasks has
// signalled the worker. ucp_worker_arm then returns UCS_ERR_BUSY, or poll returns at once.
void UcxProgress::Sleep() {
  const ucs_status_t armed = ucp_worker_arm(worker_);
  if (armed == UCS_ERR_BUSY) return;
  BATON_CHECK(armed == UCS_OK, ucs_status_string(armed));
  pollfd event{event_fd_, POLLIN, 0};
  poll(&event, 1, -1);
}

}  // namespace baton
