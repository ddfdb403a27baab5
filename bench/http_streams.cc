#include "bench/http_streams.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cctype>
#include <chrono>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace baton {
namespace {

constexpr char kBody[] = R"({"model":"bytes","prompt":"hello","max_tokens":500000,"stream":true})";
// The text of a token is this character and the number of its step.
constexpr char kMark = '#';

}  // namespace

int ConnectTcp(const std::string& address) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  const size_t colon = address.rfind(':');
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(std::atoi(address.c_str() + colon + 1)));
  BATON_CHECK(inet_pton(AF_INET, address.substr(0, colon).c_str(), &to.sin_addr) == 1, address);
  BATON_CHECK(connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0, "no connection to the router");
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return fd;
}

HttpStreams::HttpStreams(const std::string& address, int count, std::function<double(int)> microseconds_since)
    : microseconds_since_(std::move(microseconds_since)),
      streams_(static_cast<size_t>(count)),
      poll_(epoll_create1(0)) {
  const std::string request = absl::StrCat(
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: ", sizeof kBody - 1, "\r\n\r\n", kBody);
  for (Stream& stream : streams_) {
    stream.socket = ConnectTcp(address);
    epoll_event event{.events = EPOLLIN, .data = {.ptr = &stream}};
    epoll_ctl(poll_, EPOLL_CTL_ADD, stream.socket, &event);
    BATON_CHECK(send(stream.socket, request.data(), request.size(), 0) == std::ssize(request), "not sent");
  }
  thread_ = std::thread([this] { Loop(); });
}

HttpStreams::~HttpStreams() {
  stopping_ = true;
  thread_.join();
  for (const Stream& stream : streams_) close(stream.socket);
  close(poll_);
}

void HttpStreams::AwaitFirst() {
  while (started_ < std::ssize(streams_)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

std::vector<double> HttpStreams::TakeLatencies() {
  const std::lock_guard lock(mutex_);
  return std::exchange(latencies_us_, {});
}

void HttpStreams::Loop() {
  std::array<epoll_event, 64> events;
  std::array<char, 16384> bytes;
  while (!stopping_) {
    const int ready = epoll_wait(poll_, events.data(), events.size(), /*timeout_ms=*/100);
    for (int i = 0; i < ready; ++i) {
      Stream& stream = *static_cast<Stream*>(events[static_cast<size_t>(i)].data.ptr);
      const ssize_t size = recv(stream.socket, bytes.data(), bytes.size(), 0);
      BATON_CHECK(size > 0, "the router ended a stream");
      OnBytes(stream, bytes.data(), static_cast<size_t>(size));
    }
  }
}

void HttpStreams::OnBytes(Stream& stream, const char* bytes, size_t size) {
  stream.unread.append(bytes, size);
  size_t done = 0;
  for (size_t mark = stream.unread.find(kMark); mark != std::string::npos; mark = stream.unread.find(kMark, mark + 1)) {
    size_t end = mark + 1;
    while (end < stream.unread.size() && std::isdigit(static_cast<unsigned char>(stream.unread[end]))) ++end;
    // The next bytes may have more digits.
    if (end == stream.unread.size()) break;
    done = end;
    if (!std::exchange(stream.started, true)) ++started_;
    if (!measuring_) continue;
    const std::lock_guard lock(mutex_);
    latencies_us_.push_back(microseconds_since_(std::atoi(stream.unread.c_str() + mark + 1)));
  }
  stream.unread.erase(0, done);
}

}  // namespace baton
