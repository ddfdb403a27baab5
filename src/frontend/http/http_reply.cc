#include "frontend/http/http_reply.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/check.h"
#include "base/strings.h"

namespace baton {
namespace {

// Bytes. Answers up to this size do not count in the budget. There is at most one per connection.
constexpr size_t kSmallAnswer = 16 << 10;

}  // namespace

void HttpReply::Send(const HttpResponse& response) {
  BATON_CHECK(TrySend(response), "an answer that has begun is not sent whole");
}

bool HttpReply::TrySend(const HttpResponse& response) {
  {
    const std::lock_guard lock(mutex_);
    if (gone_) return true;
    if (begun_) return false;
    BATON_CHECK(!ended_, "an answer is sent once");
    const bool counts = form_.charge != nullptr && !form_.head_only && response.body.size() > kSmallAnswer;
    SendLocked(counts && !form_.charge->Add(response.body.size()) ? form_.too_much() : response);
    ended_ = true;
    awake_ = true;
  }
  wake_();
  return true;
}

void HttpReply::SendLocked(const HttpResponse& response) {
  AppendHead(response, response.body.size());
  if (!form_.head_only) unsent_ += response.body;
}

void HttpReply::Begin(const HttpResponse& head) {
  bool wake = false;
  {
    const std::lock_guard lock(mutex_);
    if (gone_) return;
    BATON_CHECK(!begun_ && !ended_, "an answer begins once");
    begun_ = true;
    AppendHead(head, std::nullopt);
    AppendPart(head.body);
    wake = !std::exchange(awake_, true);
  }
  if (wake) wake_();
}

void HttpReply::Open(HttpResponse head, std::string sign) {
  const std::lock_guard lock(mutex_);
  BATON_CHECK(!begun_ && !ended_ && !head_, "an answer is opened once");
  head_ = std::move(head);
  sign_ = std::move(sign);
}

void HttpReply::BeginLocked() {
  if (!head_) return;
  begun_ = true;
  AppendHead(*head_, std::nullopt);
  AppendPart(head_->body);
  head_.reset();
}

bool HttpReply::BreakSilence() {
  const std::lock_guard lock(mutex_);
  if (gone_ || ended_ || sign_.empty() || unsent_.size() + sending_ > 0) return false;
  BeginLocked();
  AppendPart(sign_);
  return true;
}

void HttpReply::Write(std::string_view part) {
  bool wake = false;
  {
    const std::lock_guard lock(mutex_);
    if (gone_ || part.empty()) return;
    BATON_CHECK((begun_ || head_) && !ended_, "parts come between the beginning and the end of an answer");
    // The client had no chance to read this part yet, so its size does not count.
    const bool too_much = unsent_.size() + sending_ > form_.max_unread + largest_part_;
    BeginLocked();
    AppendPart(part);
    largest_part_ = std::max(largest_part_, part.size());
    if (too_much) {
      gone_ = Gone::kCutOff;
      std::string().swap(unsent_);
    }
    wake = !std::exchange(awake_, true) || too_much;
  }
  if (wake) wake_();
}

void HttpReply::End() {
  bool wake = false;
  {
    const std::lock_guard lock(mutex_);
    if (gone_) return;
    BeginLocked();
    BATON_CHECK(begun_ && !ended_, "an answer ends once");
    if (!form_.http_1_0 && !form_.head_only) unsent_ += "0\r\n\r\n";
    ended_ = true;
    wake = !std::exchange(awake_, true);
  }
  if (wake) wake_();
}

bool HttpReply::gone() const {
  const std::lock_guard lock(mutex_);
  return gone_.has_value();
}

size_t HttpReply::unsent() const {
  const std::lock_guard lock(mutex_);
  return unsent_.size() + sending_;
}

void HttpReply::OnGone(absl::AnyInvocable<void(Gone)> callback) {
  std::optional<Gone> gone;
  {
    const std::lock_guard lock(mutex_);
    if (ended_) return;
    gone = gone_;
    // If the client was cut off, Leave calls the callback when the connection handles it.
    if (!gone) on_gone_ = std::move(callback);
  }
  if (gone) callback(*gone);
}

bool HttpReply::cut_off() {
  const std::lock_guard lock(mutex_);
  return gone_ == Gone::kCutOff;
}

HttpReply::State HttpReply::Take(std::string& out) {
  const std::lock_guard lock(mutex_);
  awake_ = false;
  std::swap(out, unsent_);
  sending_ = out.size();
  return {.ended = ended_, .keep_alive = keep_alive_, .status = status_};
}

void HttpReply::Sent(size_t bytes) {
  const std::lock_guard lock(mutex_);
  // An interim response may have been sent before the answer.
  sending_ -= std::min(sending_, bytes);
  if (ended_ && sending_ == 0 && unsent_.empty()) form_.charge.reset();
}

void HttpReply::Leave(Gone why) {
  absl::AnyInvocable<void(Gone)> callback;
  {
    const std::lock_guard lock(mutex_);
    if (!gone_) gone_ = why;
    why = *gone_;
    std::string().swap(unsent_);
    form_.charge.reset();
    std::swap(callback, on_gone_);
    if (ended_) callback = nullptr;
  }
  if (callback) callback(why);
}

void HttpReply::AppendHead(const HttpResponse& head, std::optional<size_t> length) {
  status_ = head.status;
  keep_alive_ = form_.keep_alive && (length.has_value() || !form_.http_1_0);
  absl::StrAppend(&unsent_, "HTTP/1.1 ", head.status, " ", ToAbsl(ReasonPhrase(head.status)), "\r\n");
  for (const HttpHeaders* headers : {&head.headers, &std::as_const(form_.headers)}) {
    for (const auto& [name, value] : *headers) absl::StrAppend(&unsent_, name, ": ", value, "\r\n");
  }
  absl::StrAppend(&unsent_, "date: ", absl::FormatTime("%a, %d %b %Y %H:%M:%S GMT", absl::Now(), absl::UTCTimeZone()));
  if (length) {
    if (head.status != 204) absl::StrAppend(&unsent_, "\r\ncontent-length: ", *length);
  } else if (!form_.http_1_0) {
    unsent_ += "\r\ntransfer-encoding: chunked";
  }
  if (!keep_alive_) {
    unsent_ += "\r\nconnection: close";
  } else if (form_.http_1_0) {
    unsent_ += "\r\nconnection: keep-alive";
  }
  unsent_ += "\r\n\r\n";
}

void HttpReply::AppendPart(std::string_view part) {
  if (part.empty() || form_.head_only) return;
  if (form_.http_1_0) {
    unsent_ += part;
  } else {
    absl::StrAppend(&unsent_, absl::Hex(part.size()), "\r\n");
    unsent_ += part;
    unsent_ += "\r\n";
  }
}

}  // namespace baton
