// Admission of sessions.
//
// If more sessions run than KV memory holds, each turn finds its KV evicted and computes it again.
// All sessions together then get less done than a few sessions one after the other. SessionGate
// therefore admits a limited number of sessions. Requests of other sessions wait here.
//
// A session is active, and has a slot, from the admission of its first request. Its further
// requests are admitted at once, unless one of the last two rules holds. It loses its slot when
// none of its requests runs and one of these rules holds:
// - It has been idle for options.keep while no session waits for a slot, or for linger() while one
//   waits.
// - Its quantum (options.quantum) has expired, and a session waits for a slot. The gate checks this
//   when a request of the session arrives or ends. A request that arrives then waits, also while
//   earlier requests of the session run.
// - SessionWindow's limit has fallen, and the session is not among the oldest active sessions
//   within the limit. The gate checks this only when a request of the session arrives. That request
//   waits, before its tenant's later sessions.
//
// The limit is options.sessions, or else SessionWindow's. Slots go to tenants alternately, and to a
// tenant's sessions in order of arrival. A session is admitted with all its waiting requests.
//
// A request that an admitted request depends on (Needed) is admitted whatever the limit and the
// quantum. If requests end, no session waits forever. docs/design/sessions.md has the reasons.
//
// I/O-free: events and the time come in, and admitted requests go out. Not thread-safe.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/node_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "base/lru_map.h"
#include "kv/prefix_key.h"
#include "router/session_window.h"

namespace baton {

struct Request;

struct SessionLimits {
  // Upper bound on active sessions. 0: SessionWindow sets it.
  int32_t sessions = 0;
  // Upper bound on waiting requests of all sessions.
  int32_t waiting_requests = 2048;
  // Longest idle time of an active session while no session waits.
  absl::Duration keep = absl::Minutes(1);
  // The quantum. While a session waits for a slot, a session that has been active for longer gets
  // no further request admitted, unless an admitted request depends on it.
  absl::Duration quantum = absl::Minutes(2);
  // Bounds of linger(). The upper bound is a constant near the time in which prefill computes as
  // much KV as memory holds: 36 s for Llama-3.1-8B on an A100. A slot that is kept for longer costs
  // other sessions more than computing the KV again (the five-minute rule, Gray and Putzolu 1987).
  absl::Duration shortest_linger = absl::Milliseconds(100), longest_linger = absl::Seconds(30);
};

struct SessionKey {
  // The tenant, or the cache domain on a router without API keys.
  std::string tenant;
  std::string name;
  friend auto operator<=>(const SessionKey&, const SessionKey&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const SessionKey& key) {
    return H::combine(std::move(h), key.tenant, key.name);
  }
};

class SessionGate {
 public:
  explicit SessionGate(const SessionLimits& limits) : limits_(limits) {}

  // Adds a request, which is admitted now or later. `needed`: as if Needed followed. Returns
  // RESOURCE_EXHAUSTED if too many requests wait; the request is then not added. REQUIRES: the
  // request's state is kUnknown.
  absl::Status Arrived(Request& request, const SessionKey& session, bool needed, absl::Time now);
  // Memory of all prefill workers. No sign lowers SessionWindow's limit below the number of active
  // sessions that should fit in half of `blocks`.
  struct Capacity {
    int64_t blocks = 0;       // in KV memory
    int64_t host_blocks = 0;  // additional, in host memory
  };
  void SetCapacity(const Capacity& capacity) { capacity_ = capacity; }
  // The prefill of one request.
  struct Prefill {
    WorkerAddress worker{};
    // Keys of the prompt's full blocks, as far as the router has them.
    std::span<const BlockKey> keys{};
    int64_t found = 0;                             // tokens of the prompt that were not computed
    int64_t computed = 0;                          // tokens that were computed
    absl::Duration queued{}, compute{}, copied{};  // as in PrefillDone
    bool awaited = true;                           // false for a shadow prefill
  };
  // Records a prefill of the session. Does nothing unless the session is active.
  void Prefilled(const SessionKey& session, const Prefill& prefill, absl::Time now);
  // Records that sessions have lost their KV at this worker. The loss does not count as a sign that
  // too many sessions are active.
  void WorkerLost(const WorkerAddress& worker);
  // Records that an admitted request waits for the end of `request`, and admits `request`. Does
  // nothing unless `request` waits here.
  void Needed(Request& request, absl::Time now);
  // Removes a request, admitted or not. Does nothing if the gate does not have it.
  void Ended(Request& request, absl::Time now);
  void Tick(absl::Time now);
  // Before this time Tick does nothing.
  absl::Time NextTick() const;

  // Returns requests admitted since the last call, in order, excluding those that have ended since.
  std::vector<Request*> TakeAdmitted() { return std::exchange(admitted_, {}); }

  enum class State { kUnknown, kWaiting, kAdmitted };
  struct Counts {
    // Number of active sessions, and of sessions with waiting requests.
    int64_t active = 0;
    int64_t waiting = 0;
    int64_t waiting_requests = 0;
    friend bool operator==(const Counts&, const Counts&) = default;
  };
  Counts counts() const { return counts_; }
  struct View {
    SessionKey key{};
    bool active = false;
    int64_t running = 0, waiting = 0;  // requests
    int64_t blocks = 0;                // KV blocks that workers should have of it
  };
  // Returns sessions with running requests, then sessions with waiting requests, then the others.
  // Each group begins with the youngest session.
  std::vector<View> Latest(size_t most) const;
  // How long an active session may be idle while a session waits.
  absl::Duration linger() const;
  // The limit on active sessions. 0: no limit.
  int64_t limit() const;
  void CheckInvariants() const;

 private:
  // The full blocks of one prompt, whose KV a worker had.
  struct Held {
    WorkerAddress worker;
    BlockKey last;
    int64_t blocks = 0;
  };
  struct Session {
    bool active = false;
    absl::Time since;               // if active: time of admission
    int64_t running = 0;            // admitted requests
    absl::Time idle;                // if active without running requests: since when
    std::vector<Request*> waiting;  // in order
    // Order of arrival. Orders the session in its tenant's queue, and is its age.
    int64_t number = 0;
    // Recorded since the session became active; the latest is last.
    std::vector<Held> held;
  };
  using Sessions = absl::node_hash_map<SessionKey, Session>;

 public:
  // The gate's part of a request.
  struct Part {
    State state = State::kUnknown;
    Sessions::value_type* session = nullptr;  // null if kUnknown
  };

 private:
  using Queue = std::set<std::pair<int64_t, std::string>>;  // a tenant's sessions, by number

  bool QuantumExpired(const Session& session, absl::Time now) const;
  int64_t Places() const;  // SessionWindow::kUnbounded: no limit
  bool MustPark(const Session& session) const;
  void MarkSessionsToPark();
  // Number of blocks that workers should have of the session: at each worker, those of its longest
  // prompt there.
  static int64_t BlocksOf(const Session& session);
  // Estimate of the sessions that fit in half of `blocks` blocks.
  int64_t FitInHalf(int64_t blocks) const;
  void CountHeld(const Session& session, int64_t sign);
  // Admits one request.
  void Run(Request& request, Session& session, const SessionKey& key);
  // Makes the session active and admits all its waiting requests.
  void Admit(const SessionKey& key, Session& session, absl::Time now);
  void Leave(const SessionKey& key, Session& session);
  // Removes a waiting request.
  void Withdraw(Request& request, Session& session, const SessionKey& key);
  void Enqueue(const SessionKey& key, const Session& session);
  void Unqueue(const SessionKey& key, const Session& session);
  void ForgetUnlessUsed(const SessionKey& key);
  // Returns the next session to get a slot. REQUIRES: a session waits for a slot.
  SessionKey Next() const;
  void AdmitNext(absl::Time now);
  void LearnPause(const SessionKey& key, absl::Time now);

  const SessionLimits limits_;
  // Sessions that are active, or wait, or both. Entries have stable addresses.
  Sessions sessions_;
  int64_t requests_ = 0;
  // Sessions that wait for a slot, by tenant. No queue is empty.
  absl::btree_map<std::string, Queue> queues_;
  // Active sessions that wait because their quantum has expired, by number.
  std::set<std::pair<int64_t, SessionKey>> expired_;
  std::string last_tenant_;  // tenant of the last session that got a slot
  // Active sessions without a running request, by the time since when.
  std::set<std::pair<absl::Time, SessionKey>> idle_;
  // Time at which the last running request of a session ended.
  LruMap<SessionKey, absl::Time> ended_{1 << 14};
  // Mean pause between requests of a session.
  absl::Duration pause_ = absl::Milliseconds(125);
  // Sets the limit if limits_.sessions is 0.
  SessionWindow window_;
  // While more sessions are active than the window allows, the next requests of sessions with a
  // higher number wait.
  int64_t parks_after_ = 0;
  Capacity capacity_;
  // Active sessions with entries in `held`, and the sum of their BlocksOf.
  int64_t holding_sessions_ = 0, held_blocks_ = 0;
  int64_t arrivals_ = 0;
  Counts counts_;
  std::vector<Request*> admitted_;
};

}  // namespace baton
