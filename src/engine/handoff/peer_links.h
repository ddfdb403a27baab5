// The links of a prefill worker to decode workers (docs/design/overview.md, section 4). A state
// machine: events and the time come in, and actions go out.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "engine/handoff/answer_watch.h"
#include "engine/handoff/messages.h"
#include "engine/handoff/sender_actions.h"

namespace baton {

struct PeerLinksOptions {
  LinkRequest self;                    // the request that this worker sends to link
  absl::Duration relink_after;         // a lost peer is not linked again for this long
  absl::Duration retry_refused_after;  // a peer that refused to link is asked again after this long
  absl::Duration forget_idle;          // a peer without hand-offs for this long is forgotten
  // A peer that owes answers and sends none for this long is mute. If its answer to Link took
  // longer than half of this time, twice that time applies.
  absl::Duration answer_within;
};

// Keeps a state for each decode worker. Ignores events about links that are no longer current. Not
// thread-safe.
class PeerLinks {
 public:
  enum class State { kUnlinked, kLinking, kLinked, kRefused, kLost };
  struct Peer {
    State state = State::kUnlinked;
    LinkId link;              // the current attempt or connection
    bool connecting = false;  // kLinking: the peer has accepted, and the transport connects
    // The next five fields are from the peer's last LinkReply.
    Incarnation incarnation;
    WriterId writer;
    int64_t slab_blocks = 0;
    absl::Duration lease;
    bool wants_digests = false;
    bool ends_with_process = false;  // kLinked: Link::EndsWithProcess of the connection
    absl::Status problem;            // kRefused, kLost, or `mute`: the reason
    absl::Time retry_at;             // kRefused, kLost: no attempt to link before this time
    absl::Time next_heartbeat;
    absl::Time last_used;  // the last LinkTo, or the last Tick at which the peer was busy
    absl::Time link_sent;  // kLinking
    bool mute = false;     // the peer was mute, and was neither linked nor refused since
    // kLinking, kLinked: the answers to Link, Reserve, Commit and heartbeats.
    AnswerWatch answers{absl::InfiniteDuration()};
  };
  using Entry = std::pair<const WorkerAddress, Peer>;

  // Appends actions to `actions`, which must outlive this object.
  PeerLinks(PeerLinksOptions options, std::vector<SenderAction>& actions)
      : options_(std::move(options)), actions_(actions) {}

  // Begins to link to the peer, for a hand-off. Begins no attempt if the peer is linked or linking,
  // or before `retry_at` of a peer that is kRefused or kLost. Returns the peer's state.
  const Peer& LinkTo(const WorkerAddress& to, absl::Time now);

  // An event has changed a peer. peers() has the peer's state, which may still be kLinking.
  struct Change {
    WorkerAddress peer;
    // The peer's incarnation differs from that of the last link, so all earlier reservations are
    // gone. True for the first link.
    bool is_new_process = false;
  };
  std::optional<Change> OnLinkReply(LinkId link, absl::StatusOr<LinkReply> reply, absl::Time now);
  std::optional<Change> OnConnected(LinkId link, const absl::Status& status, absl::Time now,
                                    bool ends_with_process = false);

  // The link is broken. Returns nullopt if the link is not current.
  std::optional<Change> Lose(LinkId link, const absl::Status& why, absl::Time now);
  // The peer has restarted, so it has no link to this worker. Begins to link again and returns the
  // peer. Returns nullopt if the link is not current.
  std::optional<WorkerAddress> Relink(LinkId link, absl::Time now);

  // A Reserve, Commit or heartbeat has been sent. Returns the time at which FindMute is due, or
  // InfiniteFuture if the link is not current.
  absl::Time Sent(LinkId link, absl::Time now);
  // The message has ended. DEADLINE_EXCEEDED is no answer of the peer. REQUIRES: it was Sent.
  void Ended(LinkId link, const absl::Status& reply, absl::Time now);
  // Finds the peers that have become mute. Loses a linked one. An attempt to link goes on, because
  // the answer measures how slow the peer is, but no hand-off should wait for the attempt.
  std::vector<Change> FindMute(absl::Time now);

  // REQUIRES: the link is current.
  void SetNextHeartbeat(LinkId link, absl::Time time) { Find(link)->second.next_heartbeat = time; }

  // Forgets idle peers. Peers in `busy` are not idle: they have an unfinished hand-off, or a
  // Release or heartbeat without an answer.
  void Tick(absl::flat_hash_set<WorkerAddress> busy, absl::Time now);
  absl::Time NextTick() const;

  // Returns the peer that is linking or linked by `link`, or null.
  const Entry* Current(LinkId link) const { return const_cast<PeerLinks*>(this)->Find(link); }
  const std::map<WorkerAddress, Peer>& peers() const { return peers_; }
  State state(const WorkerAddress& peer) const;

 private:
  static bool IsCurrent(const Peer& peer);
  Entry* Find(LinkId link);  // as Current, but the result may be changed
  void Start(const WorkerAddress& to, Peer& peer, absl::Time now);
  Change Refuse(Entry& entry, const absl::Status& why, absl::Time now);
  Change LosePeer(Entry& entry, const absl::Status& why, absl::Time now);
  void CloseIfLinked(const Peer& peer);
  static void SetProblem(const WorkerAddress& to, Peer& peer, const absl::Status& why);

  const PeerLinksOptions options_;
  std::vector<SenderAction>& actions_;
  uint64_t next_link_ = 1;
  std::map<WorkerAddress, Peer> peers_;
};

}  // namespace baton
