// The answer to one request. Its owner writes the answer from any thread. The connection sends it
// as fast as the client reads.
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

// The reason why a client no longer takes an answer.
enum class Gone {
  kLeft,    // the client left
  kCutOff,  // the client did not read its answer and was disconnected
};

// Thread-safe. No function blocks. Among the owner's functions, only OnGone may run the owner's
// callback during the call, if the client has gone already.
class HttpReply {
 public:
  struct Form {
    bool head_only = false;        // the request is a HEAD
    bool http_1_0 = false;         // no chunks: closing the connection ends the body
    bool keep_alive = true;        // the connection may take another request
    size_t max_unread = 1u << 20;  // bytes; for an answer in parts
    HttpHeaders headers{};         // for every answer, besides its own
    // The budget for a whole answer that is not small, until it is sent. Null if there is no
    // budget.
    std::unique_ptr<BodyCharge> charge{};
    // Makes the answer to send if the budget has too few bytes left. REQUIRES: set if `charge` is
    // set.
    std::function<HttpResponse()> too_much{};
  };
  // `wake` is called from any thread when there is something to Take, or when the client was cut
  // off.
  HttpReply(Form form, std::function<void()> wake) : form_(std::move(form)), wake_(std::move(wake)) {}

  // Sends a whole answer. REQUIRES: no answer has begun.
  void Send(const HttpResponse& response);
  // Like Send. Returns false if an answer in parts has begun.
  bool TrySend(const HttpResponse& response);
  // Begins an answer in parts. The head's body is the first part, or empty. A client is cut off if
  // it has more than form.max_unread bytes besides the largest part unread when the next part is
  // written. A steady reader may take long for one large part, such as the log probabilities of a
  // prompt.
  void Begin(const HttpResponse& head);
  // Prepares an answer in parts, which begins with the first Write. If nothing is written for a
  // while, it begins with the comment `sign` (": waiting"), and `sign` is repeated after each such
  // pause. Until it begins, Send may send a whole answer instead.
  void Open(HttpResponse head, std::string sign);
  void Write(std::string_view part);
  void End();
  bool gone() const;
  size_t unsent() const;  // bytes that the connection has not sent yet
  // `callback` is called once if the client leaves before the end of the answer. The call is on a
  // thread of the server, or in OnGone if the client has left already.
  void OnGone(absl::AnyInvocable<void(Gone)> callback);

  // --- For the connection only ------------------------------------------------------------------
  struct State {
    bool ended = false;       // nothing more will be written
    bool keep_alive = false;  // the value that the client received
    int status = 0;           // of the answer, once it has begun
  };
  bool cut_off();
  // Moves the bytes to send into `out`. REQUIRES: `out` is empty, and all bytes taken before are
  // sent.
  State Take(std::string& out);
  void Sent(size_t bytes);  // of the bytes taken
  // The client has received nothing for a while. Returns whether there is something to Take now.
  bool BreakSilence();
  // The client has left, or was cut off. Later writes are dropped.
  void Leave(Gone why);

 private:
  // REQUIRES for the functions below: the caller holds the lock.
  void SendLocked(const HttpResponse& response);
  void AppendHead(const HttpResponse& head, std::optional<size_t> length);
  void AppendPart(std::string_view part);
  void BeginLocked();

  // The charge is released once all is sent. The other fields do not change.
  Form form_;
  const std::function<void()> wake_;
  mutable std::mutex mutex_;  // guards the members below
  std::string unsent_;
  size_t sending_ = 0;       // bytes that were taken and not yet sent
  size_t largest_part_ = 0;  // bytes
  int status_ = 0;
  bool begun_ = false, ended_ = false, awake_ = false, keep_alive_ = false;
  // The head of an answer that Open has prepared, until the answer has begun.
  std::optional<HttpResponse> head_;
  std::string sign_;
  std::optional<Gone> gone_;
  absl::AnyInvocable<void(Gone)> on_gone_;
};

}  // namespace baton
