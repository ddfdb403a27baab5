// What a prefill worker knows of each decode worker: whether they are linked, or why not (design section 4). A state
// machine: events and the time come in, actions go out.
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
#include "engine/handoff/messages.h"
#include "engine/handoff/sender_actions.h"

namespace baton {

struct PeerLinksOptions {
  LinkRequest self;              // what this worker says of itself when it links
  absl::Duration relink_after;   // a lost peer is left alone for this long
  absl::Duration refused_again;  // a peer that refused to link is asked again after this long
  absl::Duration forget_idle;    // without hand-offs
};

// Not thread-safe. Events about links that are not known (any more) are ignored.
class PeerLinks {
 public:
  enum class State { kUnlinked, kLinking, kLinked, kRefused, kLost };
  struct Peer {
    State state = State::kUnlinked;
    LinkId link;              // the current attempt or connection
    bool connecting = false;  // kLinking: the peer has agreed, the transport connects
    Incarnation incarnation;  // from here on: as the peer said when it was last linked
    int64_t slab_blocks = 0;
    absl::Duration lease;
    bool wants_digests = false;
    absl::Status problem;  // why lost or refused
    absl::Time retry_at;   // lost or refused: not asked again before
    absl::Time next_heartbeat;
    absl::Time last_used;  // a hand-off began, or was seen under way
  };
  using Entry = std::pair<const WorkerAddress, Peer>;

  // Actions are appended to `actions`, which must outlive it.
  PeerLinks(PeerLinksOptions options, std::vector<SenderAction>& actions)
      : options_(std::move(options)), actions_(actions) {}

  // A hand-off wants this peer: a link is begun unless there is one, or the peer is to be left alone; then its state is
  // kRefused or kLost until `retry_at`.
  const Peer& Seek(const WorkerAddress& to, absl::Time now);

  // The peer that an event has concerned; peers() has its state, which may still be kLinking.
  struct Change {
    WorkerAddress peer;
    // Its incarnation is not that of the last link, so that no reservation made then stands. True for the first link.
    bool other_process = false;
  };
  std::optional<Change> OnLinkReply(LinkId link, absl::StatusOr<LinkReply> reply, absl::Time now);
  std::optional<Change> OnConnected(LinkId link, const absl::Status& status, absl::Time now);

  // The link is broken. Nothing if that is known already.
  std::optional<Change> Lose(LinkId link, const absl::Status& why, absl::Time now);
  // The peer does not know this worker any more, since it has restarted: links again. Returns the peer, nothing if the
  // link is gone already.
  std::optional<WorkerAddress> Relink(LinkId link);

  // REQUIRES: the link is current.
  void SetNextHeartbeat(LinkId link, absl::Time time) { Find(link)->second.next_heartbeat = time; }

  // Forgets peers that have been idle. `busy`: an answer from them is due, or will be.
  void Tick(absl::flat_hash_set<WorkerAddress> busy, absl::Time now);
  absl::Time NextTick() const;

  // The peer that is linking or linked by it, else null.
  const Entry* Current(LinkId link) const { return const_cast<PeerLinks*>(this)->Find(link); }
  const std::map<WorkerAddress, Peer>& peers() const { return peers_; }
  State state(const WorkerAddress& peer) const;

 private:
  Entry* Find(LinkId link);  // as Current
  void Start(const WorkerAddress& to, Peer& peer);
  Change Refuse(Entry& entry, const absl::Status& why, absl::Time now);
  Change LosePeer(Entry& entry, const absl::Status& why, absl::Time now);
  void CloseIfLinked(const Peer& peer);

  const PeerLinksOptions options_;
  std::vector<SenderAction>& actions_;
  uint64_t next_link_ = 1;
  std::map<WorkerAddress, Peer> peers_;
};

}  // namespace baton
