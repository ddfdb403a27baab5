#include "frontend/http/http_connection.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <new>
#include <stdexcept>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "boost/asio/buffer.hpp"
#include "boost/asio/post.hpp"
#include "frontend/http/request_head.h"

namespace baton {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;

// Bytes to read at once for heads. An idle connection holds a buffer of this size.
constexpr size_t kSmallRead = 4 << 10;
constexpr size_t kKeptBuffer = 16 << 10;
// Bytes. Encrypting an answer takes this much memory besides the answer.
constexpr size_t kEncryptedAtOnce = 64 << 10;
// Bytes. It includes answers to key updates that a client requests and does not read.
constexpr size_t kMostOwed = kEncryptedAtOnce + (32 << 10);
// Bytes at the end of a chunked body: "0\r\n\r\n".
constexpr size_t kLeastRest = 5;
// Empty lines that are ignored before a request. Some old clients send one after a body.
constexpr int kMostEmptyLines = 16;
constexpr char kContinue[] = "HTTP/1.1 100 Continue\r\n\r\n";

int StatusOf(const boost::system::error_code& error) {
  if (error == http::error::header_limit) return 431;
  return 400;
}

}  // namespace

HttpConnection::HttpConnection(Socket socket, HttpShared& shared, const std::shared_ptr<HttpLoop>& loop,
                               ConnectionTable::Id id, std::string peer)
    : socket_(std::move(socket)), shared_(shared), loop_(loop), id_(id), peer_(std::move(peer)) {
  ++shared_.connections;
  shared_.Report(HttpEvent::kOpened);
}

HttpConnection::~HttpConnection() {
  shared_.table.Remove(id_);
  shared_.handshakes.End(id_);
  shared_.Report(HttpEvent::kClosed);
  --shared_.connections;
}

void HttpConnection::MakeRoom() {
  const bool is_idle = state_ == State::kHead || state_ == State::kLinger;
  if (state_ == State::kHandshake) {
    refused_ = true;
    Enter(State::kHandshake, shared_.options.linger_timeout);
  } else if (state_ == State::kHead && ExpectsAnswer()) {
    Guard([this] { RefuseForRoom(); });
  } else if (is_idle || (shared_.options.asks_for_keys && !has_key_)) {
    Leave(Gone::kLeft);
  }
}

bool HttpConnection::ExpectsAnswer() const {
  Error ignored;
  return !has_answered_ || parser_ || !input_.empty() || socket_.available(ignored) > 0;
}

void HttpConnection::RefuseForRoom() {
  Refuse(503, absl::StrCat("overloaded: ", shared_.options.max_connections, " connections are open"));
}

void HttpConnection::Open() {
  Error ignored;
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  socket_.non_blocking(true, ignored);
  loop_->connections.insert(shared_from_this());
  if (shared_.options.tls != nullptr) tls_ = std::make_unique<TlsSession>(shared_.options.tls->context().get());
  if (tls_ == nullptr) return Enter(State::kHead, shared_.options.header_timeout);
  Enter(State::kHandshake, refused_ ? shared_.options.linger_timeout : shared_.options.handshake_timeout);
}

template <typename Work>
void HttpConnection::Guard(Work&& work) {
  try {
    work();
  } catch (const std::exception& e) {
    spdlog::error("HTTP: closing a connection: {}", e.what());
    Leave(Gone::kLeft);
  }
}

void HttpConnection::Start() {
  if (loop_->stopped) return;
  Guard([this] {
    Open();
    Read();
  });
}

void HttpConnection::StartRefused() {
  if (loop_->stopped) return;
  Guard([this] {
    refused_ = true;
    Open();
    if (state_ == State::kHandshake) return Read();
    OnHandshake();
  });
}

void HttpConnection::Enter(State state, absl::Duration patience) {
  if (state_ == State::kHandshake && state != State::kHandshake) shared_.handshakes.End(id_);
  state_ = state;
  deadline_ = patience == absl::InfiniteDuration()
                  ? TimePoint::max()
                  : std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(patience);
}

void HttpConnection::CheckDeadlines(TimePoint now) {
  if (awaiting_room_ && now - stalled_since_ > absl::ToChronoNanoseconds(shared_.options.max_read_pause)) {
    return Leave(Gone::kCutOff);
  }
  if (state_ == State::kReply) return BreakSilence(now);  // this state has no deadline
  if (now < deadline_) return;
  if (state_ == State::kHandshake || state_ == State::kLinger || (state_ == State::kHead && !parser_)) return Close();
  const bool head = state_ == State::kHead;
  Guard([&] { Refuse(408, absl::StrCat("the ", head ? "request's headers" : "body", " did not arrive in time")); });
}

// --- Input --------------------------------------------------------------------------------------

void HttpConnection::Read() {
  if (reading_ || input_ended_ || closed_) return;
  // The next requests are read after this one is answered.
  if (state_ == State::kReply && input_.size() >= shared_.options.max_header_bytes && !awaiting_message_) {
    return WatchErrors();
  }
  reading_ = true;
  // TLS's message for the end counts like the end of the socket. An end without that message counts
  // too, because a request's own framing shows whether the request is complete.
  if (tls_ != nullptr && tls_->ended()) {
    return asio::post(loop_->context,
                      [self = shared_from_this()] { self->Guard([&] { self->OnRead(asio::error::eof, 0); }); });
  }
  const bool much = state_ == State::kBody || state_ == State::kLinger;
  const size_t most = shared_.options.max_read_bytes;
  const size_t size = much ? most : std::min(kSmallRead, most);
  if (chunk_.size() != size) std::vector<char>(size).swap(chunk_);
  socket_.async_read_some(asio::buffer(chunk_), [self = shared_from_this()](const Error& error, size_t bytes) {
    self->Guard([&] { self->OnRead(error, bytes); });
  });
}

void HttpConnection::OnRead(const Error& error, size_t bytes) {
  reading_ = false;
  if (closed_) return;
  if (error && error != asio::error::eof) return Leave(Gone::kLeft);
  input_ended_ = error == asio::error::eof;
  if (state_ == State::kLinger) return input_ended_ ? Close() : Read();
  if (!Receive({chunk_.data(), bytes})) return;
  if (input_ended_ && awaiting_message_) return Leave(Gone::kLeft);  // nothing can be sent now
  if (state_ == State::kHandshake && input_ended_) return Close();
  if (state_ == State::kHead || state_ == State::kBody) return Advance();
  if (!input_ended_) return Read();
  // A client that has closed its side may still read its answer. A client that is gone answers data
  // with a reset.
  WatchErrors();
  if (!reply_begun_ && !http_1_0_) SendInterim();
}

bool HttpConnection::Receive(std::string_view bytes) {
  if (tls_ == nullptr) {
    input_ += bytes;
    return true;
  }
  // A TLS message begins with a control character, and an HTTP request with a letter.
  if (!tls_->begun() && !bytes.empty() && absl::ascii_isalpha(static_cast<unsigned char>(bytes[0]))) {
    tls_.reset();
    Refuse(400, "this port speaks HTTPS only: expected https://, got http://");
    return false;
  }
  const absl::Status status = tls_->Receive(bytes, input_);
  if (!status.ok()) {
    FailTls(status);
    return false;
  }
  if (state_ == State::kHandshake && tls_->established()) OnHandshake();
  if (awaiting_message_ && tls_->can_send()) {
    awaiting_room_ = awaiting_message_ = false;
    Flush();
  } else if (!tls_->outgoing().empty()) {
    Flush();
  }
  if (!closed_ && tls_->outgoing().size() > kMostOwed) Leave(Gone::kCutOff);
  return !closed_;
}

void HttpConnection::OnHandshake() {
  if (tls_ != nullptr) shared_.handshakes.Succeed(id_, std::chrono::steady_clock::now());
  Enter(State::kHead, shared_.options.header_timeout);
  if (refused_) RefuseForRoom();
}

void HttpConnection::FailTls(const absl::Status& why) {
  spdlog::debug("HTTP: closing a connection: {}", std::string(why.message()));
  // Sends the client the alert with the reason, if the socket takes it.
  if (!awaiting_room_) {
    Error ignored;
    socket_.write_some(asio::buffer(tls_->outgoing().data(), tls_->outgoing().size()), ignored);
  }
  if (reply_ != nullptr) return Leave(Gone::kLeft);
  DropRequest();
  Linger();
}

void HttpConnection::WatchErrors() {
  if (std::exchange(watching_, true)) return;
  socket_.async_wait(Socket::wait_error, [self = shared_from_this()](const Error& error) {
    self->watching_ = false;
    if (!self->closed_ && !error) self->Leave(Gone::kLeft);
  });
}

void HttpConnection::Advance() {
  Parse();
  if (closed_) return;
  if (input_ended_ && (state_ == State::kHead || state_ == State::kBody)) return OnInputEnd();
  Read();
}

void HttpConnection::OnInputEnd() {
  if (!parser_) return Close();
  Refuse(400, "the request is not complete");
}

void HttpConnection::BeginParser() {
  parser_.emplace();
  request_ = {};
  parser_->header_limit(static_cast<uint32_t>(shared_.options.max_header_bytes));
  // BeginBody and IncomingBody have the limit. Beast 1.74 refuses every body if there is none.
  parser_->body_limit(std::numeric_limits<uint64_t>::max());
  head_bytes_ = 0;
  empty_lines_ = 0;
  Enter(State::kHead, shared_.options.header_timeout);
}

bool HttpConnection::SkipEmptyLines() {
  size_t begin = 0;
  while (empty_lines_ < kMostEmptyLines && input_.compare(begin, 2, "\r\n") == 0) {
    begin += 2;
    ++empty_lines_;
  }
  input_.erase(0, begin);
  return !input_.empty() && input_ != "\r";
}

void HttpConnection::Parse() {
  while ((state_ == State::kHead || state_ == State::kBody) && !input_.empty()) {
    if (!parser_ && !SkipEmptyLines()) return;
    if (!parser_) BeginParser();
    // Beast asserts that these bytes are there after the last chunk's line. Until a chunked body
    // ends, more bytes follow.
    if (state_ == State::kBody && parser_->chunked() && input_.size() < kLeastRest) return;
    Error error;
    const std::optional<size_t> put = Put(error);
    if (!put) return;
    const size_t used = *put;
    input_.erase(0, used);
    if (state_ == State::kHead) {
      head_bytes_ += used;
      if (head_bytes_ > shared_.options.max_header_bytes) error = http::error::header_limit;
    } else if (const auto problem = body_->Add(used, parser_->get().body(), parser_->is_done())) {
      return Refuse(problem->status, problem->message);
    }
    if (error == http::error::need_more) {
      if (input_.size() <= shared_.options.max_header_bytes) return;
      error = http::error::header_limit;  // a line without end, or a trailer
    }
    if (error) return Refuse(StatusOf(error), absl::StrCat("the request is refused: ", error.message()));
    if (state_ == State::kHead && parser_->is_header_done() && !HeadIsFine()) return;
    if (parser_->is_done()) TakeRequest();
  }
}

std::optional<size_t> HttpConnection::Put(Error& error) {
  try {
    return parser_->put(asio::buffer(input_), error);
  } catch (const std::length_error&) {
    // The parser throws this for a long field. The limit of headers does not cover trailers.
    Refuse(400, "the request is refused: a field is too long");
  } catch (const std::bad_alloc&) {
    Refuse(503, "overloaded: out of memory while reading the request");
  }
  return std::nullopt;
}

void HttpConnection::TakeHead() {
  const auto& head = parser_->get();
  request_ = parser_->is_header_done() ? HeadOf(head) : PartialHeadOf(head, input_);
  request_.peer = peer_;
  request_.answer_headers = shared_.handler.AnswerHeaders(request_);
}

bool HttpConnection::HeadIsFine() {
  const auto& head = parser_->get();
  http_1_0_ = head.version() == 10;
  TakeHead();
  const auto refused = [this](int status, const std::string& message) {
    Refuse(status, message);
    return false;
  };
  if (const auto problem = ProblemOf(head, shared_.options.max_headers)) {
    return refused(problem->status, problem->message);
  }
  keep_alive_ = head.keep_alive();
  const auto answer = shared_.handler.OnHead(request_);
  if (!shared_.table.BeginRequest(id_)) {
    RefuseForRoom();
    return false;
  }
  if (!request_.account.empty()) {
    if (!shared_.table.ShowKey(id_, request_.account)) {
      return refused(503, absl::StrCat("overloaded: this tenant holds its share of the ",
                                       shared_.options.max_connections, " connections"));
    }
    has_key_ = true;
  }
  if (answer) {
    AnswerHead(*answer);
    return false;
  }
  if (!BeginBody()) return false;
  if (head.count(http::field::expect) == 0 || http_1_0_) return true;
  if (!boost::beast::iequals(head[http::field::expect], "100-continue")) {
    return refused(417, "Expect: only 100-continue is supported");
  }
  if (!parser_->is_done() && input_.empty()) SendInterim();
  return !closed_;
}

bool HttpConnection::BeginBody() {
  const size_t most = shared_.options.max_body_bytes;
  if (const auto length = parser_->content_length(); length && *length > most) {
    Refuse(413, absl::StrCat("body: ", *length, " bytes, limit ", most));
    return false;
  }
  std::unique_ptr<BodyDecoder> decoder;
  if (!parser_->is_done()) {
    absl::StatusOr<std::unique_ptr<BodyDecoder>> made = BodyDecoder::Make(EncodingsOf(parser_->get()));
    if (!made.ok()) {
      Refuse(415, std::string(made.status().message()));
      return false;
    }
    decoder = *std::move(made);
  }
  Enter(State::kBody, shared_.options.body_timeout);
  parser_->eager(true);
  body_.emplace(std::make_unique<BodyCharge>(shared_.bodies, request_.account), std::move(decoder), most);
  return true;
}

void HttpConnection::AnswerHead(const HttpResponse& answer) {
  const bool no_body = parser_->is_done();
  parser_.reset();
  // An unread body would be parsed as the next request, so the connection closes after the answer.
  BeginReply({.head_only = request_.method == "HEAD",
              .http_1_0 = http_1_0_,
              .keep_alive = no_body && keep_alive_ && !shared_.draining});
  reply_->Send(answer);
}

void HttpConnection::TakeRequest() {
  const bool keep_alive = keep_alive_ && !shared_.draining;
  HttpRequest request = std::move(request_);
  body_->MoveTo(request, parser_->get().body());
  DropRequest();
  // The answer counts for the account and has the headers.
  request_.account = request.account;
  request_.answer_headers = request.answer_headers;
  BeginReply({.head_only = request.method == "HEAD", .http_1_0 = http_1_0_, .keep_alive = keep_alive});
  shared_.handler.OnRequest(std::move(request), reply_);
}

void HttpConnection::DropRequest() {
  parser_.reset();
  body_.reset();
}

void HttpConnection::Refuse(int status, const std::string& message) {
  // A web page may read the refusal too, if its origin has arrived.
  if (parser_ && request_.method.empty()) TakeHead();
  const bool is_head = parser_ && parser_->is_header_done() && parser_->get().method() == http::verb::head;
  DropRequest();
  BeginReply({.head_only = is_head, .http_1_0 = http_1_0_, .keep_alive = false});
  HttpResponse answer = shared_.handler.Refusal(status, message);
  if (status == 415) answer.headers.emplace_back("accept-encoding", BodyDecoder::kAccepted);
  reply_->Send(answer);
}

// --- Output -------------------------------------------------------------------------------------

void HttpConnection::BeginReply(HttpReply::Form form) {
  Enter(State::kReply, absl::InfiniteDuration());
  silent_since_ = std::chrono::steady_clock::now();
  reply_begun_ = false;
  // The loop outlives the connection while another object owns the reply.
  auto wake = [loop = loop_, weak = weak_from_this()] {
    asio::post(loop->context, [weak] {
      const auto self = weak.lock();
      if (self && !self->closed_) self->Guard([&] { self->Flush(); });
    });
  };
  form.max_unread = shared_.options.max_unread_bytes;
  form.headers = request_.answer_headers;
  form.charge = std::make_unique<BodyCharge>(shared_.bodies, request_.account);
  form.too_much = [&shared = shared_] {
    return shared.handler.Refusal(503, "overloaded: too many large answers wait to be read");
  };
  reply_ = std::make_shared<HttpReply>(std::move(form), std::move(wake));
  shared_.RequestBegins();  // last, because EndRequest counts connections that have a reply
}

void HttpConnection::SendInterim() {
  out_ += kContinue;
  Flush();
}

void HttpConnection::Flush() {
  if (reply_ && reply_->cut_off()) return Leave(Gone::kCutOff);
  while (!awaiting_room_) {
    if (AllIsSent()) {
      out_.clear();
      sent_ = 0;
      if (!reply_) return;
      const HttpReply::State reply = reply_->Take(out_);
      if (out_.empty()) {
        if (!reply.ended) return;
        if (tls_ != nullptr && !reply.keep_alive && tls_->Close()) continue;
        return FinishReply(reply.keep_alive);
      }
      silent_since_ = std::chrono::steady_clock::now();
      if (!std::exchange(reply_begun_, true) && shared_.options.on_answer) shared_.options.on_answer(reply.status);
    }
    if (tls_ != nullptr && tls_->outgoing().empty() && !tls_->can_send()) return AwaitMessage();
    Error error;
    const size_t bytes = WriteSome(error);
    sent_ += bytes;
    if (reply_) reply_->Sent(bytes);
    if (error == asio::error::would_block) return AwaitRoom();
    if (error) return Leave(Gone::kLeft);
  }
}

size_t HttpConnection::WriteSome(Error& error) {
  const std::string_view rest = std::string_view(out_).substr(sent_);
  if (tls_ == nullptr) return socket_.write_some(asio::buffer(rest.data(), rest.size()), error);
  if (tls_->outgoing().empty()) {
    encrypted_ = std::min(rest.size(), kEncryptedAtOnce);
    tls_->Send(rest.substr(0, encrypted_));
  }
  tls_->Sent(socket_.write_some(asio::buffer(tls_->outgoing().data(), tls_->outgoing().size()), error));
  return tls_->outgoing().empty() ? std::exchange(encrypted_, 0) : 0;
}

// Sends a part of the answer to find out whether the client has left. The traffic also keeps
// proxies on the way from closing the connection.
void HttpConnection::BreakSilence(TimePoint now) {
  if (awaiting_room_ || now - silent_since_ < absl::ToChronoNanoseconds(shared_.options.max_silence)) return;
  silent_since_ = now;
  if (reply_ && reply_->BreakSilence()) Guard([this] { Flush(); });
}

void HttpConnection::AwaitRoom() {
  awaiting_room_ = true;
  stalled_since_ = std::chrono::steady_clock::now();
  socket_.async_wait(Socket::wait_write, [self = shared_from_this()](const Error&) {
    self->awaiting_room_ = false;
    if (!self->closed_) self->Guard([&] { self->Flush(); });
  });
}

void HttpConnection::AwaitMessage() {
  if (input_ended_) return Leave(Gone::kLeft);
  awaiting_room_ = awaiting_message_ = true;
  // The same limit as for a client that does not read.
  stalled_since_ = std::chrono::steady_clock::now();
  Read();
}

void HttpConnection::FinishReply(bool keep_alive) {
  has_answered_ = true;
  EndRequest();
  shared_.table.EndRequest(id_);
  request_ = {};
  if (!keep_alive) return Linger();
  Enter(State::kHead, shared_.options.idle_timeout);
  Advance();
}

void HttpConnection::EndRequest() {
  if (!reply_) return;
  reply_.reset();
  if (out_.capacity() > kKeptBuffer) std::string().swap(out_);
  if (input_.capacity() > kKeptBuffer) input_.shrink_to_fit();
  shared_.RequestEnds();
}

void HttpConnection::Linger() {
  if (input_ended_) return Close();
  Error ignored;
  socket_.shutdown(Socket::shutdown_send, ignored);
  input_.clear();
  Enter(State::kLinger, shared_.options.linger_timeout);
  Read();
}

void HttpConnection::Leave(Gone why) {
  if (closed_) return;
  const std::shared_ptr<HttpReply> reply = reply_;
  if (why == Gone::kCutOff) {
    spdlog::warn("disconnected a client that does not read its answer");
    Error ignored;
    // Drops bytes that the client has not read.
    socket_.set_option(asio::socket_base::linger(true, 0), ignored);
  }
  Close();
  if (reply) reply->Leave(why);
}

void HttpConnection::Close() {
  closed_ = true;
  // Sends no close_notify after a truncated answer, because it would mark the answer as complete.
  const bool whole = reply_ == nullptr;
  EndRequest();
  DropRequest();
  Error ignored;
  if (tls_ != nullptr && whole && AllIsSent() && tls_->Close()) {
    socket_.write_some(asio::buffer(tls_->outgoing().data(), tls_->outgoing().size()), ignored);
  }
  socket_.close(ignored);
  shared_.table.Remove(id_);
  shared_.handshakes.End(id_);
  loop_->connections.erase(shared_from_this());
}

}  // namespace baton
