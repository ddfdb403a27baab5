// The output of a request in the agent graph, and the streaming prompts that refer to it.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <tuple>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "agent/output.h"
#include "base/ids.h"

namespace baton {

struct AgentNode;

struct AgentOutput {
  // kAnnounced: prompts wait for a submission of the request.
  // kLive: the request is live, and owns the output.
  // kEnded: the request has ended.
  enum class State { kAnnounced, kLive, kEnded };
  // An accepted submission of the request.
  struct Attempt {
    std::unique_ptr<Output> text{};  // null: none
    std::string agent{};             // the request's agent name; empty: none
    int32_t number = 0;              // as counted in `attempts`; 0: none
  };
  struct ById {
    bool operator()(const AgentNode* a, const AgentNode* b) const;
  };
  RequestId id{};       // of the request
  uint64_t serial = 0;  // distinguishes the object from others with the same id
  State state = State::kAnnounced;
  AgentNode* producer = nullptr;  // kLive: the request that generates it; else null
  // kLive: the present attempt. Otherwise the last attempt with a token, or else the last one.
  // kAnnounced: without a text, no attempt was accepted. `agent` is then that of the last refusal.
  Attempt current{};
  // kLive: the attempt whose output prompts use until the present one has tokens. Without a text
  // there is none.
  Attempt former{};
  std::set<AgentNode*, ById> downstreams{};  // streaming prompts that refer to it
  // References of clients' prompts to it that are not settled, and those that RetryHolds has.
  int64_t needs = 0;
  absl::Time expires = absl::InfiniteFuture();
  // Value of `expires` before the request was submitted.
  absl::Time announced_until = absl::InfiniteFuture();
  // kAnnounced: why the last submission was refused or failed. OK if there was none.
  // kEnded: the status of the request.
  absl::Status status{};
  bool refused = false;         // whether `status` is that of a refused submission
  absl::Duration retry_wait{};  // kAnnounced: from that refusal or failure until the wait ends
  int32_t attempts = 0;         // accepted submissions since the first or the last success
  bool is_value = false;
  // The effect on prompts if KeptBytes drops the output: none, they begin again, or they fail.
  enum class Loss { kNone, kRestart, kFailure };
  // The values that KeptBytes has counted.
  struct Counted {
    int64_t bytes = 0;
    Loss loss = Loss::kNone;
    absl::Time expires;
  };
  Counted counted{};

  // The attempt whose output prompts use now.
  const Attempt& readable() const { return former.text == nullptr ? current : former; }
  Loss loss() const {
    if (downstreams.empty()) return Loss::kNone;
    return state == State::kLive ? Loss::kRestart : Loss::kFailure;
  }
  // The output that no live request generates. Null: none.
  const Output* kept() const { return state == State::kLive ? former.text.get() : current.text.get(); }
};

}  // namespace baton
