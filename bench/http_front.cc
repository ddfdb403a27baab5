#include "bench/http_front.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "bench/http_streams.h"
#include "grpcpp/grpcpp.h"
#include "inference.grpc.pb.h"

namespace baton {
namespace {

constexpr char kBody[] = R"({"model":"bytes","prompt":"hello","max_tokens":1,"stream":true})";

double MicrosecondsSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
}

// Returns the size of the first answer in `text`, with its head. Returns 0 if the answer is
// incomplete.
size_t AnswerSize(const std::string& text) {
  const size_t head = text.find("\r\n\r\n");
  if (head == std::string::npos) return 0;
  constexpr std::string_view kLength = "content-length: ";
  const size_t length = text.find(kLength);
  if (length < head) {
    const size_t size = head + 4 + static_cast<size_t>(std::atoll(text.c_str() + length + kLength.size()));
    return text.size() < size ? 0 : size;
  }
  // The end of a body in chunks.
  const size_t end = text.find("\r\n0\r\n\r\n", head);
  return end == std::string::npos ? 0 : end + 7;
}

}  // namespace

HttpCaller::HttpCaller(const std::string& address) : socket_(ConnectTcp(address)) {}
HttpCaller::~HttpCaller() { close(socket_); }

HttpCaller::Answer HttpCaller::FirstToken() {
  return Call(absl::StrCat("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: ", sizeof kBody - 1,
                           "\r\n\r\n", kBody));
}

HttpCaller::Answer HttpCaller::Metrics() { return Call("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"); }

HttpCaller::Answer HttpCaller::Call(const std::string& request) {
  Answer answer;
  const auto begin = std::chrono::steady_clock::now();
  BATON_CHECK(send(socket_, request.data(), request.size(), 0) == std::ssize(request), "not sent");
  size_t size = 0;
  for (std::array<char, 65536> bytes; size == 0; size = AnswerSize(unread_)) {
    const ssize_t got = recv(socket_, bytes.data(), bytes.size(), 0);
    BATON_CHECK(got > 0, absl::StrCat("the router ended the connection after ", unread_));
    unread_.append(bytes.data(), static_cast<size_t>(got));
    if (answer.first_token_us == 0 && unread_.find('#') != std::string::npos) {
      answer.first_token_us = MicrosecondsSince(begin);
    }
  }
  answer.end_us = MicrosecondsSince(begin);
  answer.status = std::atoi(unread_.c_str() + sizeof "HTTP/1.1");
  answer.retry_after = unread_.find("retry-after: ") != std::string::npos;
  unread_.erase(0, size);
  return answer;
}

std::vector<double> GrpcFirstTokens(const std::string& address, int count) {
  const auto stub = v1::Inference::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  v1::GenerateRequest request;
  request.set_model("bytes");
  request.mutable_segments()->add_segments()->set_text("hello");
  request.mutable_sampling()->set_max_tokens(1);
  std::vector<double> microseconds;
  for (int i = 0; i < count; ++i) {
    grpc::ClientContext context;
    v1::GenerateResponse response;
    const auto begin = std::chrono::steady_clock::now();
    const auto reader = stub->Generate(&context, request);
    while (reader->Read(&response) && response.token_ids().empty()) {
    }
    BATON_CHECK(!response.token_ids().empty(), "no token came");
    microseconds.push_back(MicrosecondsSince(begin));
    while (reader->Read(&response)) {
    }
    const grpc::Status status = reader->Finish();
    BATON_CHECK(status.ok(), status.error_message());
  }
  return microseconds;
}

}  // namespace baton
