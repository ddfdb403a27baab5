#include "engine/handoff/peer_links.h"

#include <optional>
#include <vector>

#include "base/logging.h"
#include "catch.h"
#include "engine/handoff/constants.h"

namespace baton {
namespace {

const absl::Time kStart = absl::UnixEpoch();
constexpr absl::Duration kRelinkAfter = absl::Seconds(1), kRefusedAgain = absl::Seconds(10);
constexpr absl::Duration kForgetIdle = absl::Minutes(10), kAnswerWithin = absl::Seconds(2);

LinkReply Reply(uint64_t incarnation = 9) {
  return {.decode_incarnation = Incarnation(incarnation),
          .transport_descriptor = "slab",
          .slab_blocks = 100,
          .numerics_id = "cpu",
          .lease = kLease};
}

class Links {
 public:
  Links() { spdlog::set_level(spdlog::level::off); }
  ~Links() { spdlog::set_level(spdlog::level::info); }

  // Returns the action since the last call. REQUIRES: there is one action, and it has this type.
  template <typename T>
  T Take() {
    const std::vector<SenderAction> taken = std::exchange(actions, {});
    REQUIRE(taken.size() == 1);
    REQUIRE(std::holds_alternative<T>(taken[0]));
    return std::get<T>(taken[0]);
  }
  LinkId Link(const WorkerAddress& to, absl::Time now, uint64_t incarnation = 9) {
    links.LinkTo(to, now);
    const LinkId link = Take<SendLink>().link;
    links.OnLinkReply(link, Reply(incarnation), now);
    REQUIRE(Take<OpenConnection>().link == link);
    links.OnConnected(link, absl::OkStatus(), now);
    REQUIRE(links.state(to) == PeerLinks::State::kLinked);
    return link;
  }

  // Does each check that is due until then. Returns the peers that have become mute.
  std::vector<WorkerAddress> Mute(absl::Time until) {
    std::vector<WorkerAddress> mute;
    for (absl::Time now = links.NextTick(); now <= until; now = links.NextTick()) {
      for (const PeerLinks::Change& change : links.FindMute(now)) mute.push_back(change.peer);
    }
    return mute;
  }

  std::vector<SenderAction> actions;
  PeerLinks links{{.self = {.prefill_address = "p",
                            .prefill_incarnation = Incarnation(1),
                            .module_digest = {},
                            .layout = kLayout,
                            .numerics_id = "cpu"},
                   .relink_after = kRelinkAfter,
                   .retry_refused_after = kRefusedAgain,
                   .forget_idle = kForgetIdle,
                   .answer_within = kAnswerWithin},
                  actions};
};

}  // namespace

TEST_CASE("PeerLinks links once for any number of hand-offs") {
  Links l;
  CHECK(l.links.LinkTo("d", kStart).state == PeerLinks::State::kLinking);
  const LinkId link = l.Take<SendLink>().link;
  l.links.LinkTo("d", kStart);
  CHECK(l.actions.empty());
  l.links.OnLinkReply(link, Reply(), kStart);
  CHECK(l.Take<OpenConnection>().transport_descriptor == "slab");
  const auto change = l.links.OnConnected(link, absl::OkStatus(), kStart);
  REQUIRE(change.has_value());
  CHECK(change->peer == "d");
  const PeerLinks::Peer& peer = l.links.LinkTo("d", kStart);
  CHECK(peer.state == PeerLinks::State::kLinked);
  CHECK(peer.incarnation == Incarnation(9));
  CHECK(peer.slab_blocks == 100);
  CHECK(peer.lease == kLease);
  CHECK(l.actions.empty());
}

TEST_CASE("PeerLinks retries a refusing peer after 10 s and a lost one after 1 s") {
  for (const bool refused : {true, false}) {
    Links l;
    l.links.LinkTo("d", kStart);
    const absl::Status why = refused ? absl::FailedPreconditionError("other weights") : absl::UnavailableError("gone");
    REQUIRE(l.links.OnLinkReply(l.Take<SendLink>().link, why, kStart).has_value());
    const absl::Duration again = refused ? kRefusedAgain : kRelinkAfter;
    const PeerLinks::Peer& peer = l.links.LinkTo("d", kStart + again - absl::Nanoseconds(1));
    CHECK(l.actions.empty());
    CHECK(peer.state == (refused ? PeerLinks::State::kRefused : PeerLinks::State::kLost));
    CHECK(peer.retry_at == kStart + again);
    CHECK(peer.problem == (refused ? absl::FailedPreconditionError("decode worker d cannot be linked: other weights")
                                   : absl::UnavailableError("decode worker d was lost: gone")));
    l.links.LinkTo("d", kStart + again);
    l.Take<SendLink>();
  }
}

TEST_CASE("PeerLinks refuses a reply with an impossible slab or lease") {
  for (const auto& damage :
       {+[](LinkReply& r) { r.slab_blocks = -1; }, +[](LinkReply& r) { r.slab_blocks = (int64_t{1} << 32) + 1; },
        +[](LinkReply& r) { r.lease = absl::Milliseconds(9); }, +[](LinkReply& r) { r.lease = absl::Hours(2); }}) {
    Links l;
    l.links.LinkTo("d", kStart);
    LinkReply reply = Reply();
    damage(reply);
    l.links.OnLinkReply(l.Take<SendLink>().link, reply, kStart);
    CHECK(l.links.state("d") == PeerLinks::State::kRefused);
    CHECK(l.actions.empty());
  }
}

TEST_CASE("PeerLinks refuses a peer when the transport reports a difference") {
  const std::pair<absl::Status, PeerLinks::State> cases[] = {
      {absl::FailedPreconditionError("another layout"), PeerLinks::State::kRefused},
      {absl::InvalidArgumentError("no descriptor"), PeerLinks::State::kRefused},
      {absl::UnavailableError("unreachable"), PeerLinks::State::kLost},
      {absl::InternalError("?"), PeerLinks::State::kLost},
  };
  for (const auto& [status, state] : cases) {
    Links l;
    l.links.LinkTo("d", kStart);
    const LinkId link = l.Take<SendLink>().link;
    l.links.OnLinkReply(link, Reply(), kStart);
    l.Take<OpenConnection>();
    l.links.OnConnected(link, status, kStart);
    CHECK(l.links.state("d") == state);
    CHECK(l.actions.empty());  // there is no connection to close
  }
}

TEST_CASE("PeerLinks closes a lost connection once and ignores later answers") {
  Links l;
  const LinkId link = l.Link("d", kStart);
  CHECK(l.links.Lose(link, absl::UnavailableError("reset"), kStart).has_value());
  CHECK(l.Take<CloseConnection>().link == link);
  CHECK_FALSE(l.links.Lose(link, absl::UnavailableError("reset"), kStart).has_value());
  CHECK_FALSE(l.links.Relink(link, kStart).has_value());
  CHECK_FALSE(l.links.OnLinkReply(link, Reply(), kStart).has_value());
  CHECK(l.actions.empty());
  CHECK(l.links.Current(link) == nullptr);
}

TEST_CASE("PeerLinks closes a connection whose attempt is over") {
  Links l;
  l.links.LinkTo("d", kStart);
  const LinkId link = l.Take<SendLink>().link;
  l.links.OnLinkReply(link, Reply(), kStart);
  l.Take<OpenConnection>();
  l.links.Lose(link, absl::UnavailableError("reset"), kStart);
  CHECK_FALSE(l.links.OnConnected(link, absl::OkStatus(), kStart).has_value());
  CHECK(l.Take<CloseConnection>().link == link);
}

TEST_CASE("PeerLinks links a restarted peer again at once, as another process") {
  Links l;
  const LinkId old = l.Link("d", kStart);
  CHECK(l.links.Relink(old, kStart) == "d");
  REQUIRE(l.actions.size() == 2);
  CHECK(std::get<CloseConnection>(l.actions[0]).link == old);
  const LinkId link = std::get<SendLink>(l.actions[1]).link;
  CHECK(link != old);
  CHECK(l.links.OnLinkReply(link, Reply(/*incarnation=*/10), kStart)->is_new_process);

  Links same;
  const LinkId first = same.Link("d", kStart);
  same.links.Relink(first, kStart);
  CHECK_FALSE(same.links.OnLinkReply(std::get<SendLink>(same.actions[1]).link, Reply(), kStart)->is_new_process);
}

TEST_CASE("PeerLinks loses a mute peer until the two are linked again") {
  Links l;
  const LinkId link = l.Link("d", kStart);
  CHECK(l.Mute(kStart + absl::Minutes(1)).empty());  // no message waits
  absl::Time now = kStart + absl::Minutes(1);
  l.links.Sent(link, now);
  l.links.Sent(link, now);
  l.links.Ended(link, absl::OkStatus(), now + absl::Seconds(1));
  CHECK(l.Mute(now + absl::Seconds(3) - absl::Nanoseconds(1)).empty());
  now += absl::Seconds(3);
  REQUIRE(l.Mute(now) == std::vector<WorkerAddress>{"d"});
  CHECK(l.Take<CloseConnection>().link == link);
  CHECK(l.links.LinkTo("d", now).state == PeerLinks::State::kLost);
  CHECK(l.Mute(now + absl::Minutes(9)).empty());
  l.links.Ended(link, absl::OkStatus(), now);  // a late answer, which is ignored

  // The peer stays mute during the attempt to link.
  now += kRelinkAfter;
  const PeerLinks::Peer& peer = l.links.LinkTo("d", now);
  CHECK(peer.state == PeerLinks::State::kLinking);
  CHECK(peer.mute);
  CHECK(peer.problem == absl::UnavailableError("decode worker d was lost: it has answered nothing for 2s"));
  const LinkId again = l.Take<SendLink>().link;
  CHECK(l.Mute(now + absl::Minutes(1)).empty());  // it has not become mute again
  l.links.OnLinkReply(again, Reply(), now);
  l.Take<OpenConnection>();
  CHECK(peer.mute);
  l.links.OnConnected(again, absl::OkStatus(), now);
  CHECK_FALSE(peer.mute);
}

TEST_CASE("PeerLinks ends the muteness of a peer that refuses to link") {
  Links l;
  const PeerLinks::Peer& peer = l.links.LinkTo("d", kStart);
  REQUIRE(l.Mute(kStart + kAnswerWithin) == std::vector<WorkerAddress>{"d"});
  l.links.OnLinkReply(l.Take<SendLink>().link, absl::FailedPreconditionError("other weights"), kStart + kAnswerWithin);
  CHECK(peer.state == PeerLinks::State::kRefused);
  CHECK_FALSE(peer.mute);
}

TEST_CASE("PeerLinks waits twice as long as a slow peer took to answer Link") {
  Links l;
  const PeerLinks::Peer& peer = l.links.LinkTo("d", kStart);
  const LinkId link = l.Take<SendLink>().link;
  CHECK(l.Mute(kStart + kAnswerWithin - absl::Nanoseconds(1)).empty());
  CHECK(l.Mute(kStart + kAnswerWithin) == std::vector<WorkerAddress>{"d"});
  CHECK(peer.state == PeerLinks::State::kLinking);  // the attempt goes on
  CHECK(peer.mute);
  const absl::Time linked = kStart + absl::Seconds(3);
  l.links.OnLinkReply(link, Reply(), linked);
  l.Take<OpenConnection>();
  l.links.OnConnected(link, absl::OkStatus(), linked);
  l.links.Sent(link, linked);
  CHECK(l.Mute(linked + absl::Seconds(6) - absl::Nanoseconds(1)).empty());
  CHECK(l.Mute(linked + absl::Seconds(6)) == std::vector<WorkerAddress>{"d"});
}

TEST_CASE("PeerLinks takes no peer for mute while the transport connects") {
  Links l;
  l.links.LinkTo("d", kStart);
  l.links.OnLinkReply(l.Take<SendLink>().link, Reply(), kStart);
  l.Take<OpenConnection>();
  CHECK(l.Mute(kStart + absl::Minutes(9)).empty());
  CHECK(l.links.state("d") == PeerLinks::State::kLinking);
}

TEST_CASE("PeerLinks forgets an idle peer after 10 minutes, but no busy or linking one") {
  Links l;
  const LinkId idle = l.Link("idle", kStart);
  l.Link("busy", kStart);
  l.links.LinkTo("linking", kStart);
  l.links.OnLinkReply(l.Take<SendLink>().link, Reply(), kStart);
  l.Take<OpenConnection>();
  l.links.Tick({"busy"}, kStart + kForgetIdle - absl::Nanoseconds(1));
  CHECK(l.actions.empty());
  CHECK(l.links.NextTick() == kStart + kForgetIdle);
  l.links.Tick({"busy"}, kStart + kForgetIdle);
  REQUIRE(l.actions.size() == 2);
  CHECK(std::get<CloseConnection>(l.actions[0]).link == idle);
  CHECK(std::get<ForgetPeer>(l.actions[1]).peer == "idle");
  CHECK(l.links.peers().size() == 2);
  CHECK(l.links.NextTick() == kStart + 2 * kForgetIdle);
}

}  // namespace baton
