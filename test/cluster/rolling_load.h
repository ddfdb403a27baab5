// Clients of every kind that call without a pause, and the fate of their requests.
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
  // Asks every question once for the answers of a quiet cluster. Then starts a client of each kind.
  Load(std::vector<SurfaceKind> kinds, size_t routers);
  ~Load() { Stop(); }
  void Stop();

  // Waits until each client has `count` more answers, or until a request is lost.
  void AwaitMore(int count);
  // For each kind, the numbers of requests that were answered, sent again and lost, with the
  // reasons of the losses.
  std::string Report();
  int lost();
  int sent_again();

 private:
  struct Client {
    SurfaceKind kind;
    std::vector<std::string> answers{};  // by prompt
    // The following members are guarded by mutex_.
    int done = 0, sent_again = 0;
    std::vector<std::string> lost{};
  };

  void Loop(Client& client, size_t number);
  // Returns the reason if the request is lost, and an empty string otherwise.
  std::string AskUntilAnswered(Client& client, Surface& surface, Question question);

  const size_t routers_;
  std::vector<Client> clients_;
  std::atomic<bool> stopping_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::thread> threads_;
};

}  // namespace baton
