// Clients of a router's HTTP front, for bench_router: each streams a completion over a connection of its own.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace baton {

// A socket to HOST:PORT, which blocks and sends at once.
int ConnectTcp(const std::string& address);

class HttpStreams {
 public:
  // `microseconds_since`: the step whose number a token's text is; from another thread.
  HttpStreams(const std::string& address, int count, std::function<double(int)> microseconds_since);
  ~HttpStreams();

  void AwaitFirst();  // tokens, of all
  void Measure(bool measuring) { measuring_ = measuring; }
  std::vector<double> TakeLatencies();

 private:
  struct Stream {
    int socket = -1;
    bool started = false;
    std::string unread;  // the beginning of a token's text
  };
  void Loop();
  void OnBytes(Stream& stream, const char* bytes, size_t size);

  const std::function<double(int)> microseconds_since_;
  std::vector<Stream> streams_;
  int poll_ = -1;
  std::atomic<bool> measuring_ = false, stopping_ = false;
  std::atomic<int> started_ = 0;
  std::mutex mutex_;
  std::vector<double> latencies_us_;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace baton
