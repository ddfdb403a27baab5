// The answer to one request: whoever has it writes it from any thread, its connection sends what there is when it can.
#pragma once

#include <cstddef>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "absl/functional/any_invocable.h"
#include "frontend/http/body_bytes.h"
#include "frontend/http/http_message.h"

namespace baton {

// Why nobody takes an answer any more.
enum class Gone {
  kLeft,    // the client went away
  kCutOff,  // it did not read what it asked for, and was sent away
};

// Thread-safe. Nothing blocks, and no call of it runs a callback but OnGone, if the client has gone already.
class HttpReply {
 public:
  struct Form {
    bool head_only = false;        // of a HEAD
    bool http_1_0 = false;         // no chunks: the end of the connection ends the body
    bool keep_alive = true;        // the connection may take another request
    size_t max_unread = 1u << 20;  // bytes; of an answer that comes in parts
    // What a whole answer that is not small counts in until it is sent; null: in nothing.
    std::unique_ptr<BodyCharge> charge{};
    // Its answer instead, where there is no room. Not null where `charge` is not.
    std::function<HttpResponse()> too_much{};
  };
  // `wake`: there is something to Take, or the client was cut off; from any thread.
  HttpReply(Form form, std::function<void()> wake) : form_(std::move(form)), wake_(std::move(wake)) {}

  // The whole answer. REQUIRES: none has begun.
  void Send(const HttpResponse& response);
  // The same; false: one that comes in parts has begun.
  bool TrySend(const HttpResponse& response);
  // An answer that comes in parts; its body is the first, or empty. A client that has left more than form.max_unread
  // of them unread when the next comes is cut off.
  void Begin(const HttpResponse& head);
  // The same, but it begins with its first part, or when the client has heard nothing for a while: then with `sign`,
  // and so again after each such while. Until it begins, another answer may be sent whole.
  void Open(HttpResponse head, std::string sign);
  void Write(std::string_view part);
  void End();
  bool gone() const;
  size_t unsent() const;  // bytes that the connection has not sent yet
  // `callback` is called once, on a thread of the server, if the client goes before the end; here, if it has.
  void OnGone(absl::AnyInvocable<void(Gone)> callback);

  // --- of its connection ---------------------------------------------------------------------------------------
  struct State {
    bool ended = false;       // nothing more comes
    bool keep_alive = false;  // what the client was told
    int status = 0;           // of the answer, once it has begun
  };
  bool cut_off();
  // Moves what there is to send into `out`, which must be empty and has all been sent before.
  State Take(std::string& out);
  void Sent(size_t bytes);  // of what was taken
  // The client has heard nothing for a while. Whether there is something to Take now.
  bool BreakSilence();
  // Nobody takes anything any more.
  void Leave(Gone why);

 private:
  // With the lock held.
  void SendLocked(const HttpResponse& response);
  void AppendHead(const HttpResponse& head, std::optional<size_t> length);
  void AppendPart(std::string_view part);
  void BeginLocked();

  Form form_;  // its charge is gone once all is sent; the rest does not change
  const std::function<void()> wake_;
  mutable std::mutex mutex_;  // guards what follows
  std::string unsent_;
  size_t sending_ = 0;  // bytes that were taken and not yet sent
  int status_ = 0;
  bool begun_ = false, ended_ = false, awake_ = false, keep_alive_ = false;
  // Of an answer that is open: its head, until it has begun.
  std::optional<HttpResponse> head_;
  std::string sign_;
  std::optional<Gone> gone_;
  absl::AnyInvocable<void(Gone)> on_gone_;
};

}  // namespace baton
