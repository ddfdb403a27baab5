// What every front of the router does with a client's request: reads it, gives it an id, submits it.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "absl/functional/any_invocable.h"
#include "base/clock.h"
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

// A client that lets this much of its output pile up is cut off, so that it cannot hold memory.
inline constexpr size_t kMaxUnreadBytes = 1 << 20;
// And one that reads nothing at all for this long, so that it cannot hold a stream.
inline constexpr absl::Duration kMaxReadPause = absl::Seconds(60);

// A call that becomes a request.
class CallSink : public RequestSink {
 public:
  virtual RequestHandle& handle() = 0;
  // Before the request is submitted.
  virtual void SetId(const RequestId& id) = 0;
  // The request was not accepted. A zero `retry_after` is not known.
  virtual void Refuse(const absl::Status& status, absl::Duration retry_after) = 0;
};

// Whose call it is, of which trace, and until when somebody waits for it, by the clock.
struct CallContext {
  Caller caller;
  std::string id{};  // what the answer calls it, where that is not a request's id: x-request-id
  TraceContext span{};
  absl::Time deadline = absl::InfiniteFuture();
  bool further = false;  // a request of the call was submitted before this one
};

// Thread-safe. Whatever it runs elsewhere has run when it is gone.
class ClientAdmission {
 public:
  // When a client that was refused for lack of room may come again.
  static constexpr absl::Duration kRetryHint = absl::Seconds(1);

  // All must outlive it.
  ClientAdmission(Router& router, ServedModels& models, const Clock& clock, Callers& callers);

  Callers& callers() { return callers_; }

  // Accepts nothing any more.
  void Drain() { draining_ = true; }
  // UNAVAILABLE: it drains.
  absl::Status Open() const;
  // Why a call would be refused, whatever it is: before it is read, which takes time.
  std::optional<TenantQuotas::Refusal> WhyNot(const Caller& caller);

  // Bytes of text that a request has tokenised.
  static size_t PromptBytes(const v1::GenerateRequest& request) {
    return request.has_chat() ? TextBytes(request.chat()) : TextBytes(request.segments());
  }
  // So many that a thread which serves others may tokenise them: it takes well under a millisecond.
  static bool IsShort(size_t text_bytes) { return text_bytes <= size_t{16} << 10; }
  // Runs `task`, which takes time in proportion to so many bytes of text: here or, if they are many, on another thread,
  // where tenants take turns. RESOURCE_EXHAUSTED: too many of this tenant's wait.
  absl::Status Run(const Tenant& tenant, size_t text_bytes, absl::AnyInvocable<void()> task);
  // The same for what looks at many requests, and in a line of its own: who looks keeps no prompt waiting.
  absl::Status RunView(const Tenant& tenant, absl::AnyInvocable<void()> task);
  // Reads the request and submits it for `sink`, which is told if either fails. Times are the clock's. Accept tokenises
  // long prompts on another thread, for which no more bytes wait than BodyBytes has for the tenant; Admit all of them
  // here.
  void Accept(std::shared_ptr<const v1::GenerateRequest> request, const CallContext& context,
              std::shared_ptr<CallSink> sink);
  void Admit(const v1::GenerateRequest& request, const CallContext& context, const std::shared_ptr<CallSink>& sink);
  // The two halves of Admit. The first takes time in proportion to the prompt. `values`: as in ReadPrompt.
  absl::StatusOr<ClientRequest> Read(const v1::GenerateRequest& request, const CallContext& context,
                                     const ChatValues* values = nullptr);
  // None: it was refused.
  std::optional<RequestTicket> Submit(ClientRequest request, const CallContext& context,
                                      const std::shared_ptr<CallSink>& sink);
  // Prefills what follows a caller's call that was submitted, if there is room, and quota to spare
  // (TenantQuotas::HasSpare). Its references, which have no names, are to the call. Takes time in proportion to the
  // prompt.
  void Follow(const Caller& caller, const RequestTicket& call, v1::GenerateRequest follower, const ChatValues& values);
  // For requests that the router has not accepted; it counts the others itself.
  void Refuse(CallSink& sink, const absl::Status& status, absl::Duration retry_after = {});

  // 128 random bits: who sees one learns neither another nor how many there are.
  static RequestId DrawId();
  void JoinDecoders();  // those whose workers have attached since

 private:
  Router& router_;
  ServedModels& models_;
  const Clock& clock_;
  Callers& callers_;
  std::atomic<bool> draining_ = false;
  const std::shared_ptr<BodyBytes> waiting_;  // messages for Accept's threads; HTTP counts its own
  WorkQueue long_prompts_, views_;
};

}  // namespace baton
