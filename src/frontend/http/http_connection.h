// One client's connection. It reads a request, has it answered, and reads the next. All of its code
// runs on one thread, that of its loop.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "boost/asio/ip/tcp.hpp"
#include "boost/beast/http/parser.hpp"
#include "boost/beast/http/string_body.hpp"
#include "frontend/http/connection_table.h"
#include "frontend/http/http_shared.h"
#include "frontend/http/incoming_body.h"
#include "frontend/http/tls_session.h"

namespace baton {

class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  using Socket = boost::asio::basic_stream_socket<boost::asio::ip::tcp, boost::asio::io_context::executor_type>;
  using TimePoint = std::chrono::steady_clock::time_point;

  // `shared` must outlive this object. `id` is the connection's id in shared.table. `peer` is the
  // client's address.
  HttpConnection(Socket socket, HttpShared& shared, const std::shared_ptr<HttpLoop>& loop, ConnectionTable::Id id,
                 std::string peer);
  ~HttpConnection();

  void Start();
  // Closes the connection, so that a new one takes its slot. Answers 503 first if the client
  // probably waits for an answer or is about to send its first request. Does nothing if a body is
  // being read or an answer is due, unless API keys are required and the connection is without one
  // (ConnectionTable).
  void MakeRoom();
  // Answers 503, because there is no free slot, and closes the connection.
  void StartRefused();
  void CheckDeadlines(TimePoint now);
  // Closes the connection. The reply, if there is one, reports `why` to its writer.
  void Leave(Gone why);

 private:
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;
  using Error = boost::system::error_code;
  enum class State {
    kHandshake,  // the handshake of TLS
    kHead,       // waits for a request, or reads its first line and headers
    kBody,       // reads the body
    kReply,      // the request waits for its answer
    // All is sent. More input is dropped, so that the client reads the answer and receives no
    // reset.
    kLinger,
  };

  // Closes the connection if `work` throws, for example for lack of memory. Other connections are
  // not affected.
  template <typename Work>
  void Guard(Work&& work);
  // Returns whether a client would find its request unanswered if the connection closed now.
  bool ExpectsAnswer() const;
  void RefuseForRoom();
  void Enter(State state, absl::Duration patience);
  void Open();
  void Read();
  void OnRead(const Error& error, size_t bytes);
  // Decrypts into input_. Returns false if the connection has been answered or closed.
  bool Receive(std::string_view bytes);
  void OnHandshake();
  void FailTls(const absl::Status& why);
  void Advance();  // parses the input that has been read
  void Parse();
  // Returns the bytes that the parser used, or nothing if the request has been refused.
  std::optional<size_t> Put(Error& error);
  // Takes the head into request_, or what has arrived of it.
  void TakeHead();
  // Returns false if the request has been answered.
  bool HeadIsFine();
  // Prepares to read a body. Returns false if the request has been refused.
  bool BeginBody();
  void AnswerHead(const HttpResponse& answer);
  // Removes empty lines before a request (RFC 9112, 2.2). Returns whether a request begins.
  bool SkipEmptyLines();
  void BeginParser();
  void TakeRequest();
  void BeginReply(HttpReply::Form form);
  void DropRequest();  // frees what the running request has read
  void Refuse(int status, const std::string& message);
  void OnInputEnd();
  void WatchErrors();
  void SendInterim();
  void Flush();
  bool AllIsSent() const { return sent_ == out_.size() && (tls_ == nullptr || tls_->outgoing().empty()); }
  // Returns the bytes of out_ that were sent.
  size_t WriteSome(Error& error);
  void BreakSilence(TimePoint now);
  void AwaitRoom();
  // Waits for the rest of a TLS message. Until it arrives, nothing can be sent.
  void AwaitMessage();
  void FinishReply(bool keep_alive);
  void EndRequest();
  void Linger();
  void Close();

  Socket socket_;
  HttpShared& shared_;
  const std::shared_ptr<HttpLoop> loop_;
  const ConnectionTable::Id id_;
  const std::string peer_;
  bool has_key_ = false;  // a request with a valid key has arrived
  State state_ = State::kHead;
  TimePoint deadline_ = TimePoint::max();  // the end of the state
  bool closed_ = false;
  bool has_answered_ = false;        // a request has been answered
  bool refused_ = false;             // the client is refused after the handshake
  std::unique_ptr<TlsSession> tls_;  // null if nothing is encrypted

  // Input.
  std::vector<char> chunk_;  // the buffer of the running read; its size is fixed meanwhile
  std::string input_;        // read and not yet parsed
  bool reading_ = false, input_ended_ = false, watching_ = false;
  std::optional<Parser> parser_;  // from a request's first byte to its last
  HttpRequest request_;           // the head without the body, from its end or a refusal on
  bool keep_alive_ = false;       // the head's value
  int empty_lines_ = 0;           // ignored before the next request
  size_t head_bytes_ = 0;
  std::optional<IncomingBody> body_;  // from the end of the head to the end of the request

  // Output.
  std::shared_ptr<HttpReply> reply_;
  bool reply_begun_ = false;  // part of the answer was taken to be sent
  bool http_1_0_ = false;
  std::string out_;  // [0, sent_) is sent
  size_t sent_ = 0;
  // Bytes of out_ after sent_ that tls_ has encrypted and is to send.
  size_t encrypted_ = 0;
  // If awaiting_message_ is set, awaiting_room_ is set too.
  bool awaiting_room_ = false, awaiting_message_ = false;
  TimePoint stalled_since_;
  // The time at which the last part of the answer was taken to be sent. Before the first part, the
  // time at which the request was taken.
  TimePoint silent_since_;
};

}  // namespace baton
