// Which sessions may run. The KV of more sessions than memory holds is evicted before their next turn and computed
// again, so that all of them together get less done than fewer one after the other. So only some are active at a time,
// and requests of the others wait here. I/O-free: events and the time come in, admitted requests go out. Not
// thread-safe.
//
// A session is active from the admission of its first request on, and its requests are admitted at once. It loses its
// place when it has been idle, with no request running, for
//
//   options.keep             if nobody waits
//   linger()                 if others do: sixteen times the mean of the pauses that sessions make between requests:
//                            most turns follow at once, and tools now and then take long
//   no time at all           if others do and it has had its place for options.turn
//
// so those that have been idle for longest make room first, and a session that pauses as sessions do keeps its KV until
// its next turn. One that has had its turn and is never idle gets nothing more admitted while others wait for a place;
// its own is free when what runs has ended, and till then it is in nobody's way.
//
// There is a place for a session where fewer than options.sessions are active, or, without such a number, fewer than
// SessionWindow allows. Where that has become less than are active, the youngest are parked when they come with their
// next request: they wait before what of their tenant came later.
//
// Places go to tenants in turn, and to a tenant's sessions in the order in which they came; all that waits of a session
// is admitted with it. What an admitted request waits for (Needed) must never wait behind it, so it is admitted
// whatever the limit; its session then counts like any other. Nobody waits for ever, if requests end: each place is
// free at the latest when what runs of its session `turn` after its admission has ended.
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
#include "kv/prefix_key.h"
#include "router/lru_map.h"
#include "router/session_window.h"

namespace baton {

struct Request;

struct SessionLimits {
  int32_t sessions = 0;             // active at a time; 0: as SessionWindow says
  int32_t waiting_requests = 2048;  // of all sessions that are not
  absl::Duration keep = absl::Minutes(1);
  absl::Duration turn = absl::Minutes(2);
  // The longest is about what prefill takes to compute all that KV memory holds, 36 s of Llama-3.1-8B on an A100: a
  // place that is kept for longer costs others more than computing its KV again does (the five-minute rule, Gray and
  // Putzolu 1987).
  absl::Duration shortest_linger = absl::Milliseconds(100), longest_linger = absl::Seconds(30);
};

struct SessionKey {
  std::string tenant;  // the cache salt
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

  // It is admitted, now or later, unless this is RESOURCE_EXHAUSTED: too many requests wait.
  // `needed`: as for Needed. REQUIRES: kUnknown.
  absl::Status Arrived(Request& request, const SessionKey& session, bool needed, absl::Time now);
  // Of all prefill workers. Sessions that half of `blocks` should hold may always be active.
  struct Capacity {
    int64_t blocks = 0;       // KV memory
    int64_t host_blocks = 0;  // what host memory holds besides
  };
  void SetCapacity(const Capacity& capacity) { capacity_ = capacity; }
  // A request of the session was prefilled. Harmless if the session is not known.
  struct Prefill {
    WorkerAddress worker{};
    std::span<const BlockKey> keys{};  // of its prompt's full blocks, as far as they are known
    int64_t found = 0;                 // tokens of its prompt that were not computed
    int64_t computed = 0;              // tokens that were
    absl::Duration queued{}, compute{}, copied{};
    bool awaited = true;  // false: a shadow
  };
  void Prefilled(const SessionKey& session, const Prefill& prefill, absl::Time now);
  // What sessions had there is gone, and no one's fault.
  void WorkerLost(const WorkerAddress& worker);
  // An admitted request waits for the end of this one. Harmless if it does not wait or is not known.
  void Needed(Request& request, absl::Time now);
  // The request is over, whether it was admitted or not. Harmless if it is not known.
  void Ended(Request& request, absl::Time now);
  void Tick(absl::Time now);
  absl::Time NextTick() const;  // when Tick has something to do at the latest; InfiniteFuture: nothing

  // In order, without those that have ended since.
  std::vector<Request*> TakeAdmitted() { return std::exchange(admitted_, {}); }

  enum class State { kUnknown, kWaiting, kAdmitted };
  struct Counts {
    int64_t active = 0;   // sessions
    int64_t waiting = 0;  // sessions
    int64_t waiting_requests = 0;
    friend bool operator==(const Counts&, const Counts&) = default;
  };
  Counts counts() const { return counts_; }
  struct View {
    SessionKey key{};
    bool active = false;
    int64_t running = 0, waiting = 0;  // requests
    int64_t blocks = 0;                // that workers should have of it
  };
  std::vector<View> Latest(size_t most) const;  // those that run, then those that wait, then those that came last
  absl::Duration linger() const;
  int64_t limit() const;  // of active sessions; 0: none
  void CheckInvariants() const;

 private:
  // Some blocks of a prompt whose KV a worker had.
  struct Held {
    WorkerAddress worker;
    BlockKey last;
    int64_t blocks = 0;
  };
  struct Session {
    bool active = false;
    absl::Time since;               // active: when it was admitted
    int64_t running = 0;            // admitted requests
    absl::Time idle;                // active, none runs: since when
    std::vector<Request*> waiting;  // in order
    int64_t number = 0;             // in its tenant's queue, and its age
    std::vector<Held> held;         // since it is active; the latest last
  };
  using Sessions = absl::node_hash_map<SessionKey, Session>;

 public:
  // What it keeps of a request.
  struct Part {
    State state = State::kUnknown;
    Sessions::value_type* session = nullptr;  // null: kUnknown
  };

 private:
  using Queue = std::set<std::pair<int64_t, std::string>>;  // sessions of a tenant, by number

  bool HasHadItsTurn(const Session& session, absl::Time now) const;
  int64_t Places() const;  // SessionWindow::kUnbounded: any number
  bool MustPark(const Session& session) const;
  void NoteCut();
  static int64_t BlocksOf(const Session& session);  // that it should have: at each worker the longest it had there
  int64_t FitInHalf(int64_t blocks) const;          // sessions, roughly
  void CountHeld(const Session& session, int64_t sign);
  void Run(Request& request, Session& session, const SessionKey& key);  // it is admitted
  void Admit(const SessionKey& key, Session& session, absl::Time now);  // with all that waits of it
  void Leave(const SessionKey& key, Session& session);
  void Withdraw(Request& request, Session& session, const SessionKey& key);  // it waits no more
  void Enqueue(const SessionKey& key, const Session& session);
  void Unqueue(const SessionKey& key, const Session& session);
  void ForgetUnlessUsed(const SessionKey& key);
  SessionKey Next() const;  // REQUIRES: some wait for a place
  void AdmitNext(absl::Time now);
  void LearnPause(const SessionKey& key, absl::Time now);

  const SessionLimits limits_;
  Sessions sessions_;  // that are active, or wait, or both; an entry stays where it is
  int64_t requests_ = 0;
  absl::btree_map<std::string, Queue> queues_;        // of those that wait for a place, by tenant; none is empty
  std::set<std::pair<int64_t, SessionKey>> over_;     // that wait and have a place, but have had their turn, by number
  std::string last_tenant_;                           // that got a place
  std::set<std::pair<absl::Time, SessionKey>> idle_;  // active ones of which nothing runs, since when
  LruMap<SessionKey, absl::Time> ended_{1 << 14};     // when the last request of a session did
  absl::Duration pause_ = absl::Milliseconds(125);    // between a session's requests, a mean
  SessionWindow window_;                              // where there is no number
  int64_t parks_after_ = 0;  // sessions whose number is higher, while more are active than the window allows
  Capacity capacity_;
  int64_t having_ = 0, held_blocks_ = 0;  // active sessions with something held, and BlocksOf them
  int64_t arrivals_ = 0;
  Counts counts_;
  std::vector<Request*> admitted_;
};

}  // namespace baton
