// One client's connection: reads a request, has it answered, and again. All of it runs on one thread, its loop's.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "boost/asio/io_context.hpp"
#include "boost/asio/ip/tcp.hpp"
#include "boost/beast/http/parser.hpp"
#include "boost/beast/http/string_body.hpp"
#include "frontend/http/body_bytes.h"
#include "frontend/http/connection_table.h"
#include "frontend/http/http_server.h"
#include "frontend/http/tls_session.h"

namespace baton {

class HttpConnection;

// A thread that serves connections.
struct HttpLoop {
  boost::asio::io_context context{1};
  absl::flat_hash_set<std::shared_ptr<HttpConnection>> connections;  // that are open
  bool stopped = false;                                              // no connection opens any more
};

// What the connections of a server have in common. Thread-safe.
class HttpShared {
 public:
  HttpShared(const HttpOptions& options_in, HttpHandler& handler_in) : options(options_in), handler(handler_in) {}
  const HttpOptions options;
  HttpHandler& handler;
  std::atomic<bool> draining = false;
  std::atomic<int> connections = 0;
  ConnectionTable table{options.max_connections, options.asks_for_keys};
  // Outlives the server with the requests that are kept.
  const std::shared_ptr<BodyBytes> bodies = std::make_shared<BodyBytes>(options.max_bodies_bytes);

  void RequestBegins();
  void RequestEnds();
  bool AwaitIdle(std::chrono::nanoseconds patience);
  void Tell(HttpEvent event) const {
    if (options.on_event) options.on_event(event);
  }

 private:
  std::mutex mutex_;  // guards what follows
  std::condition_variable idle_;
  int requests_ = 0;  // that wait for their answers
};

class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  using Socket = boost::asio::basic_stream_socket<boost::asio::ip::tcp, boost::asio::io_context::executor_type>;
  using TimePoint = std::chrono::steady_clock::time_point;

  // `shared` must outlive it. `id`: in its table. `peer`: the client's address.
  HttpConnection(Socket socket, HttpShared& shared, const std::shared_ptr<HttpLoop>& loop, ConnectionTable::Id id,
                 std::string peer);
  ~HttpConnection();

  void Start();
  // Closes it for one that came, unless it has become somebody's to whom an answer is due.
  void MakeRoom();
  // Tells the client that there is no room for it.
  void TurnAway();
  void CheckDeadlines(TimePoint now);
  // Whoever it answers is told that the client left.
  void Leave(Gone why);

 private:
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;
  using Error = boost::system::error_code;
  enum class State {
    kHandshake,  // of TLS
    kHead,       // waits for a request, or reads its line and headers
    kBody,       // reads its body
    kReply,      // the request waits for its answer
    kLinger,     // all is sent; what the client still sends is dropped, so that it sees the answer and no reset
  };

  // Closes the connection if `work` throws, as whatever allocates may: the others go on.
  template <typename Work>
  void Guard(Work&& work);
  void Enter(State state, absl::Duration patience);
  void Open();
  void Read();
  void OnRead(const Error& error, size_t bytes);
  bool Receive(std::string_view bytes);  // decrypted, into input_; false: the connection has been answered or left
  void OnHandshake();
  void FailTls(const absl::Status& why);
  void Advance();  // with what has been read
  void Parse();
  std::optional<size_t> Put(Error& error);  // bytes that the parser used; nothing: the request has been refused
  bool HeadIsFine();                        // else it has been answered
  void AnswerHead(const HttpResponse& answer);
  void BeginParser();
  void TakeRequest();
  void BeginReply(HttpReply::Form form);
  void Refuse(int status, const std::string& message);
  void OnInputEnd();
  void WatchErrors();
  void SendInterim();
  void Flush();
  bool AllIsSent() const { return sent_ == out_.size() && (tls_ == nullptr || tls_->outgoing().empty()); }
  size_t WriteSome(Error& error);  // bytes of out_ that went with it
  void BreakSilence(TimePoint now);
  void AwaitRoom();
  void AwaitMessage();  // the rest of one of TLS, without which nothing can be sent
  void FinishReply(bool keep_alive);
  void EndRequest();
  void Linger();
  void Close();

  Socket socket_;
  HttpShared& shared_;
  const std::shared_ptr<HttpLoop> loop_;
  const ConnectionTable::Id id_;
  const std::string peer_;
  bool has_key_ = false;  // some request of it had
  State state_ = State::kHead;
  TimePoint deadline_ = TimePoint::max();  // of the state
  bool closed_ = false;
  bool turned_away_ = false;         // which it is told after the handshake
  std::unique_ptr<TlsSession> tls_;  // null: nothing is encrypted

  // What comes in.
  std::vector<char> chunk_;  // what is being read; of fixed size meanwhile
  std::string input_;        // read and not yet parsed
  bool reading_ = false, input_ended_ = false, watching_ = false;
  std::optional<Parser> parser_;  // from a request's first byte to its last
  HttpRequest request_;           // without its body; from the end of its head on
  bool keep_alive_ = false;       // as its head says
  size_t head_bytes_ = 0;
  std::shared_ptr<BodyCharge> charge_;  // for the body that is being read

  // What goes out.
  std::shared_ptr<HttpReply> reply_;
  bool reply_begun_ = false;  // some of it was taken to be sent
  bool http_1_0_ = false;
  std::string out_;  // [0, sent_) is sent
  size_t sent_ = 0;
  size_t encrypted_ = 0;                                   // bytes after these, which tls_ is to send
  bool awaiting_room_ = false, awaiting_message_ = false;  // the second never without the first
  TimePoint stalled_since_;
  TimePoint silent_since_;  // when an answer's last part was taken to be sent; before the first: when it was due
};

}  // namespace baton
