// What a router's HTTP front is asked one call at a time, for bench_router: first tokens, metrics, refusals.
#pragma once

#include <string>
#include <vector>

namespace baton {

// One connection, one call after another.
class HttpCaller {
 public:
  explicit HttpCaller(const std::string& address);
  ~HttpCaller();
  HttpCaller(const HttpCaller&) = delete;
  HttpCaller& operator=(const HttpCaller&) = delete;

  struct Answer {
    int status = 0;
    bool retry_after = false;   // it says when to try again
    double first_token_us = 0;  // from the call; 0: there is none
    double end_us = 0;
  };
  Answer FirstToken();  // a completion of one token, streamed
  Answer Metrics();

 private:
  Answer Call(const std::string& request);

  int socket_ = -1;
  std::string unread_;
};

// The same over gRPC: microseconds from the call to the first token, `count` times over one connection.
std::vector<double> GrpcFirstTokens(const std::string& address, int count);

}  // namespace baton
