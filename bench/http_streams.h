// HTTP clients for bench_router. Each client streams a completion over its own connection.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace baton {

// Returns a blocking socket that is connected to HOST:PORT and sends without delay (TCP_NODELAY).
int ConnectTcp(const std::string& address);

class HttpStreams {
 public:
  // `microseconds_since` returns the time since the step with a number. A thread of this object
  // calls it.
  HttpStreams(const std::string& address, int count, std::function<double(int)> microseconds_since);
  ~HttpStreams();

  // Waits for the first token of all streams.
  void AwaitFirst();
  void Measure(bool measuring) { measuring_ = measuring; }
  std::vector<double> TakeLatencies();

 private:
  struct Stream {
    int socket = -1;
    bool started = false;
    // The incomplete text of a token.
    std::string unread;
  };
  void Loop();
  void OnBytes(Stream& stream, const char* bytes, size_t size);

  const std::function<double(int)> microseconds_since_;
  std::vector<Stream> streams_;
  int poll_ = -1;
  std::atomic<bool> measuring_ = false, stopping_ = false;
  std::atomic<int> started_ = 0;
  std::mutex mutex_;
  // Guarded by mutex_.
  std::vector<double> latencies_us_;
  std::thread thread_;
};

}  // namespace baton
