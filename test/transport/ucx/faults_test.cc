// Tests of requests that UCX refuses, which it seldom does. Functions of this program replace those
// of the library.
#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <future>
#include <vector>

#include "await.h"
#include "catch.h"
#include "transport/ucx/descriptor.h"
#include "transport/ucx/endpoint.h"
#include "transport/ucx/link.h"
#include "transport/ucx/parked_links.h"
#include "transport/ucx/transport.h"

namespace {

std::atomic<bool> refuse_sends = false;
std::atomic<bool> refuse_receives = false;

// Requests that UCX accepts and does not end before `end_held` is set.
std::atomic<bool> hold_sends = false, hold_closes = false, end_held = false;
// The worker of the connection with these requests. All progress threads read it.
std::atomic<ucp_worker_h> held_worker = nullptr;
// Used by the progress thread of this worker.
std::vector<ucp_request_param_t> held_requests;
// The worker of this thread, if it is a progress thread.
thread_local ucp_worker_h progressing = nullptr;

ucs_status_ptr_t Hold(const ucp_request_param_t& param) {
  held_worker = progressing;
  held_requests.push_back(param);
  return &held_requests;
}

template <typename F>
F* Library(const char* name) {
  return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" ucs_status_ptr_t ucp_am_send_nbx(ucp_ep_h endpoint, unsigned id, const void* header, size_t header_bytes,
                                            const void* data, size_t count, const ucp_request_param_t* param) {
  static auto* const send = Library<decltype(ucp_am_send_nbx)>("ucp_am_send_nbx");
  if (refuse_sends && id == baton::kWriteMessage) return UCS_STATUS_PTR(UCS_ERR_NO_MEMORY);
  if (hold_sends && id == baton::kWriteMessage) return Hold(*param);
  return send(endpoint, id, header, header_bytes, data, count, param);
}

extern "C" ucs_status_ptr_t ucp_am_recv_data_nbx(ucp_worker_h worker, void* descriptor, void* buffer, size_t count,
                                                 const ucp_request_param_t* param) {
  static auto* const receive = Library<decltype(ucp_am_recv_data_nbx)>("ucp_am_recv_data_nbx");
  if (refuse_receives) return UCS_STATUS_PTR(UCS_ERR_NO_MEMORY);
  return receive(worker, descriptor, buffer, count, param);
}

extern "C" ucs_status_ptr_t ucp_ep_close_nbx(ucp_ep_h endpoint, const ucp_request_param_t* param) {
  static auto* const close = Library<decltype(ucp_ep_close_nbx)>("ucp_ep_close_nbx");
  if (!hold_closes) return close(endpoint, param);
  ucp_request_param_t force{};
  force.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  force.flags = UCP_EP_CLOSE_FLAG_FORCE;
  void* request = close(endpoint, &force);
  if (UCS_PTR_IS_PTR(request)) ucp_request_free(request);
  return Hold(*param);
}

extern "C" void ucp_request_free(void* request) {
  static auto* const free_request = Library<decltype(ucp_request_free)>("ucp_request_free");
  if (request != &held_requests) free_request(request);
}

extern "C" unsigned ucp_worker_progress(ucp_worker_h worker) {
  static auto* const progress = Library<decltype(ucp_worker_progress)>("ucp_worker_progress");
  progressing = worker;
  if (end_held && worker == held_worker) {
    for (const ucp_request_param_t& param : std::exchange(held_requests, {})) {
      param.cb.send(&held_requests, UCS_ERR_CANCELED, param.user_data);
    }
  }
  return progress(worker);
}

namespace baton {
namespace {

constexpr int64_t kBytes = 3'000'001;

// An endpoint to a target in this process, over TCP.
class Connected {
 public:
  Connected() {
    setenv("UCX_TLS", "tcp", 1);
    target = *UcxTransport::Create({});
    REQUIRE(target->AllocateSlab(kBytes).ok());
    progress = *UcxProgress::Start({});
    inbox = std::make_unique<UcxInbox>(progress->worker());
    const UcxDescriptor descriptor = *DecodeUcxDescriptor(target->Descriptor());
    progress->Call([&] {
      REQUIRE(inbox->Listen().ok());
      endpoint = *UcxEndpoint::Open(*progress, *inbox, std::span(source), true, descriptor);
      return true;
    });
  }
  ~Connected() {
    std::promise<void> closed;
    progress->Post([&] { endpoint->Close([&] { closed.set_value(); }); });
    closed.get_future().get();
    progress->Call([&] {
      endpoint.reset();
      return true;
    });
    unsetenv("UCX_TLS");
  }
  absl::Status Write(UcxPath path) {
    auto result = std::make_shared<std::promise<absl::Status>>();
    auto future = result->get_future();
    progress->Post([this, path, result] {
      endpoint->Write(path, {{0, 0, kBytes}}, [result](absl::Status status) { result->set_value(std::move(status)); });
    });
    return future.get();
  }

  std::vector<std::byte> source = std::vector<std::byte>(kBytes);
  std::unique_ptr<UcxTransport> target;
  std::unique_ptr<UcxInbox> inbox;
  std::unique_ptr<UcxProgress> progress;
  std::unique_ptr<UcxEndpoint> endpoint;
};

TEST_CASE("A UCX target refuses a write that it cannot receive and accepts the next") {
  Connected connected;
  REQUIRE(connected.Write(UcxPath::kRendezvous).ok());
  refuse_receives = true;
  CHECK(connected.Write(UcxPath::kRendezvous).code() == absl::StatusCode::kInternal);
  refuse_receives = false;
  CHECK(connected.Write(UcxPath::kRendezvous).ok());
}

TEST_CASE("UcxEndpoint breaks the connection when UCX refuses a write") {
  for (UcxPath path : {UcxPath::kRendezvous, UcxPath::kEager}) {
    CAPTURE(NameOf(path));
    Connected connected;
    REQUIRE(connected.Write(path).ok());
    refuse_sends = true;
    const absl::Status status = connected.Write(path);
    refuse_sends = false;
    CHECK(status.code() == absl::StatusCode::kUnavailable);
    CHECK(connected.Write(path).code() == absl::StatusCode::kUnavailable);
  }
}

TEST_CASE("A connection whose requests UCX does not end is parked until they end") {
  setenv("UCX_TLS", "tcp", 1);
  const auto target = *UcxTransport::Create({});
  REQUIRE(target->AllocateSlab(kBytes).ok());
  std::vector<std::byte> source(kBytes);
  UcxConnection connection{.inbox = nullptr, .progress = *UcxProgress::Start({}), .endpoint = nullptr, .closed = {}};
  connection.inbox = std::make_unique<UcxInbox>(connection.progress->worker());
  const auto on_thread = [&](auto task) { return connection.progress->Call([&] { return (task(), true); }); };
  std::promise<void> answered, closed;
  connection.closed = closed.get_future().share();
  absl::Status written;
  on_thread([&] {
    REQUIRE(connection.inbox->Listen().ok());
    connection.endpoint = *UcxEndpoint::Open(*connection.progress, *connection.inbox, std::span(source), true,
                                             *DecodeUcxDescriptor(target->Descriptor()));
    connection.endpoint->Probe(0, [&](const auto&) { answered.set_value(); });
  });
  // UCX 1.13 often aborts the process if a connection closes while it opens.
  answered.get_future().wait();
  on_thread([&] {
    hold_sends = hold_closes = true;
    connection.endpoint->Write(UcxPath::kEager, {{0, 0, kBytes}}, [&](absl::Status status) { written = status; });
    connection.endpoint->Close([&] { closed.set_value(); });
    connection.endpoint->Break(absl::UnavailableError("closed"));
  });
  on_thread([&] { CHECK(written.ok()); });  // after CloseNow: UCX has not ended the write
  UcxParkedLinks parked;
  std::shared_future<void> ended = connection.closed;
  parked.Keep(std::move(connection));
  CHECK(parked.DestroyClosed() == 1);
  end_held = true;
  ucp_worker_signal(held_worker);
  ended.wait();
  CHECK(absl::IsUnavailable(written));
  CHECK(parked.DestroyClosed() == 0);
  hold_sends = hold_closes = end_held = false;
  held_worker = nullptr;
  unsetenv("UCX_TLS");
}

TEST_CASE("An idle UcxLink whose end UCX does not report is parked until its end") {
  setenv("UCX_TLS", "tcp", 1);
  const auto target = *UcxTransport::Create({});
  REQUIRE(target->AllocateSlab(kBytes).ok());
  std::vector<std::byte> source(kBytes + kScratchBytes);
  UcxParkedLinks parked;
  auto link = UcxLink::Connect({}, {.memory = std::span(source), .slab_bytes = kBytes, .scratch_offset = kBytes},
                               *DecodeUcxDescriptor(target->Descriptor()), parked);
  REQUIRE(link.ok());
  hold_closes = true;
  link->reset();
  CHECK(parked.DestroyClosed() == 1);
  end_held = true;
  ucp_worker_signal(held_worker);
  Await("the end of the link", [&] { return parked.DestroyClosed() == 0; });
  hold_closes = end_held = false;
  held_worker = nullptr;
  unsetenv("UCX_TLS");
}

}  // namespace
}  // namespace baton
