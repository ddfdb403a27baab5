#include "rolling_load.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "catch.h"

namespace baton {
namespace {

constexpr int kPrompts = 8;

}  // namespace

Load::Load(std::vector<SurfaceKind> kinds, size_t routers) : routers_(routers) {
  for (SurfaceKind& kind : kinds) {
    Client& client = clients_.emplace_back(Client{.kind = std::move(kind)});
    const auto surface = client.kind.make();
    for (int prompt = 0; prompt < kPrompts; ++prompt) {
      const Try quiet = surface->Ask({.prompt = prompt, .tag = absl::StrCat("quiet-", clients_.size(), "-", prompt)});
      INFO(client.kind.name << ": " << quiet.failure);
      REQUIRE_FALSE(quiet.answer.empty());
      client.answers.push_back(quiet.answer);
    }
  }
  for (size_t i = 0; i < clients_.size(); ++i) {
    threads_.emplace_back([this, i] { Loop(clients_[i], i); });
  }
}

void Load::Stop() {
  stopping_ = true;
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void Load::Loop(Client& client, size_t number) {
  const auto surface = client.kind.make();
  for (int turn = 0; !stopping_; ++turn) {
    const std::string lost = AskUntilAnswered(
        client, *surface,
        {.prompt = turn % kPrompts, .tag = absl::StrCat(number, "-", turn), .router = (number + turn) % routers_});
    const std::lock_guard lock(mutex_);
    lost.empty() ? static_cast<void>(++client.done) : client.lost.push_back(lost);
    changed_.notify_all();
  }
}

std::string Load::AskUntilAnswered(Client& client, Surface& surface, Question question) {
  const std::string tag = question.tag;
  std::vector<std::string> tries;
  while (tries.size() < client.kind.tries) {
    question.tag = absl::StrCat(tag, "-", tries.size());
    const Try one = surface.Ask(question);
    if (!one.answer.empty()) {
      const std::string& quiet = client.answers[static_cast<size_t>(question.prompt)];
      return one.answer == quiet ? "" : absl::StrCat("other tokens: ", one.answer, "\ninstead of ", quiet);
    }
    tries.push_back(one.failure);
    if (!one.may_repeat) break;
    std::this_thread::sleep_for(one.wait);  // the wait that the server asked for
    question.router = (question.router + 1) % routers_;
    question.is_first = false;
    const std::lock_guard lock(mutex_);
    ++client.sent_again;
  }
  return absl::StrJoin(tries, "; then ");
}

void Load::AwaitMore(int count) {
  std::unique_lock lock(mutex_);
  std::vector<int> wanted;
  for (const Client& client : clients_) wanted.push_back(client.done + count);
  changed_.wait(lock, [&] {
    bool all = true;
    for (size_t i = 0; i < clients_.size(); ++i) {
      if (!clients_[i].lost.empty()) return true;
      all &= clients_[i].done >= wanted[i];
    }
    return all;
  });
}

std::string Load::Report() {
  const std::lock_guard lock(mutex_);
  std::string report;
  for (const Client& client : clients_) {
    absl::StrAppend(&report, "  ", client.kind.name, ": ", client.done, " answered, ", client.sent_again,
                    " sent again, ", client.lost.size(), " lost\n");
    for (const std::string& why : client.lost) absl::StrAppend(&report, "    ", why, "\n");
  }
  return report;
}

int Load::lost() {
  const std::lock_guard lock(mutex_);
  size_t lost = 0;
  for (const Client& client : clients_) lost += client.lost.size();
  return static_cast<int>(lost);
}

int Load::sent_again() {
  const std::lock_guard lock(mutex_);
  int sent_again = 0;
  for (const Client& client : clients_) sent_again += client.sent_again;
  return sent_again;
}

}  // namespace baton
