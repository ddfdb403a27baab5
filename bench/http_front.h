// Clients for bench_router that make one call at a time, over HTTP and over gRPC.
#pragma once

#include <string>
#include <vector>

namespace baton {

// An HTTP client with one connection. Calls run one after another.
class HttpCaller {
 public:
  explicit HttpCaller(const std::string& address);
  ~HttpCaller();
  HttpCaller(const HttpCaller&) = delete;
  HttpCaller& operator=(const HttpCaller&) = delete;

  struct Answer {
    int status = 0;
    // True if the answer has the header Retry-After.
    bool retry_after = false;
    // Microseconds from the call to the first token. 0 if there is none.
    double first_token_us = 0;
    double end_us = 0;
  };
  // Streams a completion of one token.
  Answer FirstToken();
  Answer Metrics();

 private:
  Answer Call(const std::string& request);

  int socket_ = -1;
  std::string unread_;
};

// Makes `count` gRPC calls over one connection. Returns the microseconds from each call to its
// first token.
std::vector<double> GrpcFirstTokens(const std::string& address, int count);

}  // namespace baton
