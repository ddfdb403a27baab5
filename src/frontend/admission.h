// The admission of client requests. All APIs use it to read a request, to give it an id, and to
// submit it to the router.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "absl/functional/any_invocable.h"
#include "base/clock.h"
#include "base/log_limit.h"
#include "base/trace_context.h"
#include "frontend/callers.h"
#include "frontend/http/body_bytes.h"
#include "frontend/request_reader.h"
#include "frontend/work_queue.h"
#include "inference.pb.h"
#include "model/served_model.h"
#include "shell/request_handle.h"
#include "shell/router.h"

namespace baton {

// Upper bound on the output that waits for a slow client. A client with more unread bytes is
// disconnected, so that it cannot hold memory.
inline constexpr size_t kMaxUnreadBytes = 1 << 20;
// Upper bound on the time in which a client reads nothing. A client that pauses for longer is
// disconnected, so that it cannot hold a stream.
inline constexpr absl::Duration kMaxReadPause = absl::Seconds(60);

// The receiver of one request's answer. It belongs to the call that made the request.
class CallSink : public RequestSink {
 public:
  virtual RequestHandle& handle() = 0;
  // Called before the request is submitted.
  virtual void SetId(const RequestId& id) = 0;
  // The request was not accepted. `retry_after` is as in RetryDelayOf.
  virtual void Refuse(const absl::Status& status, absl::Duration retry_after) = 0;
};

// The caller, id, trace and deadline of a call. Its requests share them.
struct CallContext {
  Caller caller;
  std::string id{};  // x-request-id of an HTTP call, under which the answer names the call
  TraceContext span{};
  // The client waits until this time of the clock.
  absl::Time deadline = absl::InfiniteFuture();
  absl::Time received = absl::InfiniteFuture();  // when the call arrived
  // Another request of the same call was submitted before this one.
  bool further = false;
  // Id for a request without one. Empty: Submit draws it.
  RequestId drawn_id{};
};

// Thread-safe. The destructor runs the tasks that still wait for a thread.
class ClientAdmission {
 public:
  // The references must outlive this object. `default_max_tokens` is that of all APIs whose form
  // has none.
  ClientAdmission(Router& router, ServedModels& models, const Clock& clock, Callers& callers,
                  int32_t default_max_tokens = 0);

  Callers& callers() { return callers_; }

  // From now on, refuses all calls.
  void Drain() { draining_ = true; }
  // Returns UNAVAILABLE after Drain.
  absl::Status Open() const;
  // Returns a refusal if every call of this caller would be refused now, whatever it contains. Call
  // it before reading the call, because reading takes time.
  std::optional<TenantQuotas::Refusal> RefusalFor(const Caller& caller);

  // Bytes of text that ReadRequest tokenises for this request.
  static size_t PromptBytes(const v1::GenerateRequest& request) {
    return request.has_chat() ? TextBytes(request.chat()) : TextBytes(request.segments());
  }
  // Returns whether a thread that serves other streams may tokenise a text of this size. Tokenising
  // such a text takes well under a millisecond.
  static bool IsShort(size_t text_bytes) { return text_bytes <= size_t{16} << 10; }
  // Runs `task`, whose time is proportional to `text_bytes`. Runs a short task in this call, and a
  // long one on another thread, which serves tenants fairly (WorkQueue). RESOURCE_EXHAUSTED: too
  // many long tasks of this tenant wait.
  absl::Status Run(const Tenant& tenant, size_t text_bytes, absl::AnyInvocable<void()> task);
  // Like Run, for a task that reads the records of many requests. These tasks have a thread of
  // their own, so that they do not delay prompts.
  absl::Status RunView(const Tenant& tenant, absl::AnyInvocable<void()> task);
  // Reads the request and submits it for `sink`. Calls sink->Refuse if either fails. Times are the
  // clock's. Accept tokenises a long prompt on another thread, and refuses it if too many bytes of
  // the tenant already wait there (BodyBytes). Admit does all the work in this call.
  void Accept(std::shared_ptr<const v1::GenerateRequest> request, const CallContext& context,
              std::shared_ptr<CallSink> sink);
  void Admit(const v1::GenerateRequest& request, const CallContext& context, const std::shared_ptr<CallSink>& sink);
  // The two halves of Admit. Read takes time proportional to the prompt. `form` and `values` are as
  // in ReadRequest.
  absl::StatusOr<ClientRequest> Read(const v1::GenerateRequest& request, const CallContext& context,
                                     const RequestForm& form = {}, const ChatValues* values = nullptr);
  // Returns nothing if the request was refused.
  std::optional<RequestTicket> Submit(ClientRequest request, const CallContext& context,
                                      const std::shared_ptr<CallSink>& sink);
  // Prefills a prefill hint of a submitted call, if the router accepts it (Router::AddPrefillHint)
  // and the tenant has quota to spare (TenantQuotas::MayPrefillAhead). References in `hint`, the
  // hint's prompt, have no request id and mean the output of `call`. Takes time proportional to the
  // prompt.
  void AddPrefillHint(const Caller& caller, const RequestTicket& call, v1::GenerateRequest hint,
                      const ChatValues& values);
  // Counts a refusal and passes it to the sink. Use it only for requests that the router has not
  // accepted, because the router counts its own refusals.
  void Refuse(CallSink& sink, const absl::Status& status, absl::Duration retry_after = {});

  // Like Refuse, for a request whose name is known. Prompts that refer to it fail.
  void Refuse(CallSink& sink, const Caller& caller, const v1::GenerateRequest& request, const absl::Status& status,
              absl::Duration retry_after = {});
  // A request of the caller was refused before Submit. Prompts that refer to its id fail, at once
  // or when no further submission comes. The trace of its workflow has it. Uses only its
  // request_id, cache_salt, workflow and agent, and no malformed name. `retry_after` is the delay
  // that the refusal states.
  void NoteRefused(const Caller& caller, const v1::GenerateRequest& request, const absl::Status& status,
                   absl::Duration retry_after = {});

  // 128 random bits. A client cannot derive another request's id, or the number of requests, from
  // an id.
  static RequestId DrawId();
  // Adds the decoders of workers that have attached since the last call. Logs one that cannot be
  // served, at most once an hour.
  void JoinDecoders();

 private:
  Router& router_;
  ServedModels& models_;
  const Clock& clock_;
  Callers& callers_;
  const int32_t default_max_tokens_;
  std::atomic<bool> draining_ = false;
  LogLimit not_joined_{absl::Hours(1)};
  // bytes of the messages that wait for Accept's threads
  const std::shared_ptr<BodyBytes> waiting_;
  WorkQueue long_prompts_, views_;
};

}  // namespace baton
