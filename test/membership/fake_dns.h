// A DNS server on loopback with the records that a test sets.
#pragma once

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "catch.h"

namespace baton {

class FakeDns {
 public:
  enum class Answers { kTruly, kServerFailure, kGarbage, kNever };

  FakeDns() {
    socket_ = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    REQUIRE(bind(socket_, reinterpret_cast<sockaddr*>(&address), size) == 0);
    REQUIRE(getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
    address_ = StrCat("127.0.0.1:", ntohs(address.sin_port));
    REQUIRE(pipe(stop_.data()) == 0);
    thread_ = std::thread([this] { Loop(); });
  }
  ~FakeDns() {
    close(stop_[1]);
    thread_.join();
    close(stop_[0]);
    close(socket_);
  }

  const std::string& address() const { return address_; }
  // Sets the addresses of a host. Names without records do not exist.
  void SetHosts(const std::string& name, const std::vector<std::string>& addresses) {
    std::vector<std::string> records;
    for (const std::string& address : addresses) {
      std::string bytes(4, '\0');
      REQUIRE(inet_pton(AF_INET, address.c_str(), bytes.data()) == 1);
      records.push_back(std::move(bytes));
    }
    Set({name, kA}, std::move(records));
  }
  // Sets the workers of a service, each as HOST:PORT.
  void SetService(const std::string& name, const std::vector<std::string>& workers) {
    std::vector<std::string> records;
    for (const std::string& worker : workers) {
      const size_t colon = worker.rfind(':');
      records.push_back(Number(0) + Number(1) + Number(std::stoi(worker.substr(colon + 1))) +
                        Labels(worker.substr(0, colon)));
    }
    Set({name, kSrv}, std::move(records));
  }
  void Answer(Answers answers) { answers_ = answers; }
  // Number of questions so far.
  int queries() const { return queries_; }

 private:
  static constexpr int kA = 1, kSrv = 33;
  using Key = std::pair<std::string, int>;

  static std::string Number(int value) { return {static_cast<char>(value >> 8), static_cast<char>(value)}; }
  static std::string Labels(const std::string& name) {
    std::string bytes;
    for (size_t begin = 0, end; begin <= name.size(); begin = end + 1) {
      end = std::min(name.find('.', begin), name.size());
      bytes += static_cast<char>(end - begin) + name.substr(begin, end - begin);
    }
    return bytes + '\0';
  }
  void Set(const Key& key, std::vector<std::string> records) {
    const std::lock_guard lock(mutex_);
    records_[key] = std::move(records);
  }

  void Loop() {
    while (true) {
      std::array<pollfd, 2> polled = {{{socket_, POLLIN, 0}, {stop_[0], POLLIN, 0}}};
      poll(polled.data(), polled.size(), -1);
      if (polled[1].revents != 0) return;
      std::array<char, 512> query{};
      sockaddr_in from{};
      socklen_t size = sizeof from;
      const ssize_t length =
          recvfrom(socket_, query.data(), query.size(), 0, reinterpret_cast<sockaddr*>(&from), &size);
      if (length < 17) continue;
      if (answers_ == Answers::kNever) continue;
      const std::string reply = Reply({query.data(), static_cast<size_t>(length)});
      ++queries_;
      sendto(socket_, reply.data(), reply.size(), 0, reinterpret_cast<sockaddr*>(&from), size);
    }
  }

  // Builds a reply after RFC 1035, section 4.
  std::string Reply(const std::string& query) {
    std::string name;
    size_t at = 12;
    while (query[at] != 0) {
      const auto length = static_cast<size_t>(query[at]);
      name += (name.empty() ? "" : ".") + query.substr(at + 1, length);
      at += length + 1;
    }
    const int type = query[at + 2];
    const std::string question = query.substr(12, at + 5 - 12);
    const std::lock_guard lock(mutex_);
    const std::vector<std::string>& records = records_[{name, type}];
    const bool known = !records_[{name, kA}].empty() || !records_[{name, kSrv}].empty();
    const Answers answers = answers_;
    const int code = answers == Answers::kServerFailure ? 2 : known ? 0 : 3;
    std::string reply = query.substr(0, 2) + Number(0x8180 | code) + Number(1) +
                        Number(code == 0 ? static_cast<int>(records.size()) : 0) + Number(0) + Number(0) + question;
    if (code != 0) return reply;
    for (const std::string& record : records) {
      const int bytes = static_cast<int>(record.size());
      // Garbage: each record claims to be longer than the rest of the message.
      const int length = answers == Answers::kGarbage ? 60'000 : bytes;
      reply += Number(0xc00c) + Number(type) + Number(1) + Number(0) + Number(5) + Number(length) + record;
    }
    return reply;
  }

  int socket_ = -1;
  std::array<int, 2> stop_{};
  std::string address_;
  std::atomic<Answers> answers_ = Answers::kTruly;
  std::atomic<int> queries_ = 0;
  std::mutex mutex_;  // guards records_
  std::map<Key, std::vector<std::string>> records_;
  std::thread thread_;
};

}  // namespace baton
