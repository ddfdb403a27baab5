// Clients of every kind that call without a pause, and what becomes of their requests.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "rolling_surfaces.h"

namespace baton {

class Load {
 public:
  // Asks every question once, to have the answers of a quiet cluster; then a client of each kind goes on by itself.
  Load(std::vector<SurfaceKind> kinds, size_t routers);
  ~Load() { Stop(); }
  void Stop();

  // Waits until each client has so many more answers, or a request was lost.
  void AwaitMore(int count);
  // For each kind how many were answered, were sent again and were lost, and of those why.
  std::string Report();
  int lost();
  int sent_again();

 private:
  struct Client {
    SurfaceKind kind;
    std::vector<std::string> answers{};  // by prompt
    // Guarded by mutex_.
    int done = 0, sent_again = 0;
    std::vector<std::string> lost{};
  };

  void Loop(Client& client, size_t number);
  // Why it is lost; empty: it is not.
  std::string AskUntilAnswered(Client& client, Surface& surface, Question question);

  const size_t routers_;
  std::vector<Client> clients_;
  std::atomic<bool> stopping_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::thread> threads_;
};

}  // namespace baton
