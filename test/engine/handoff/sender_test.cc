#include "engine/handoff/sender.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/logging.h"
#include "catch.h"
#include "engine/handoff/constants.h"

namespace baton {
namespace {

// A sender that is linked to "d". Its hand-off "r" of three blocks waits for the answer to Reserve.
class Linked {
 public:
  explicit Linked(bool wants_digests = false) {
    spdlog::set_level(spdlog::level::off);
    sender.Begin("d", {.request_id = "r", .keys = std::vector<BlockKey>(2), .kv_tokens = 40}, Now());
    const auto link = Take<SendLink>()->link;
    sender.OnLinkReply(link,
                       LinkReply{.decode_incarnation = Incarnation(9),
                                 .transport_descriptor = "slab",
                                 .slab_blocks = 100,
                                 .numerics_id = "cpu",
                                 .lease = kLease,
                                 .wants_digests = wants_digests},
                       Now());
    sender.OnConnected(Take<OpenConnection>()->link, absl::OkStatus(), Now());
    handoff = Take<SendReserve>()->handoff;
  }
  ~Linked() { spdlog::set_level(spdlog::level::info); }

  absl::Time Now() const { return clock.Now(); }
  // Returns the first action of this type since the last call, and drops all other actions.
  template <typename T>
  std::optional<T> Take() {
    std::optional<T> found;
    for (SenderAction& action : sender.TakeActions()) {
      if (T* is = std::get_if<T>(&action); is != nullptr && !found.has_value()) found = std::move(*is);
    }
    sender.CheckInvariants();
    return found;
  }
  void TickNext() {
    clock.Advance(sender.NextTick() - Now());
    sender.Tick(Now());
  }
  void Reserve(std::vector<MissingBlock> missing, std::optional<WriteKey> write_key = std::nullopt) {
    sender.OnReserveReply(handoff, ReserveReply(Reserved{kRef, std::move(missing), write_key}), Now());
  }
  void Ready(int32_t index, uint32_t source, int64_t layers) {
    const ReadyBlock block{index, BlockId(source), layers};
    sender.BlocksReady("r", std::span(&block, 1), Now());
  }

  ManualClock clock;
  HandoffSender sender{HandoffSenderOptions{.self = {.prefill_address = "p",
                                                     .prefill_incarnation = Incarnation(1),
                                                     .module_digest = {},
                                                     .layout = kLayout,
                                                     .numerics_id = "cpu"}}};
  HandoffId handoff;
};

TEST_CASE("HandoffSender uses the reservation's write key for pushes and the commit") {
  const WriteKey write_key{.id = 7, .bits = {1, 2, 3}};
  for (const std::optional<WriteKey>& given : {std::optional<WriteKey>(), std::optional(write_key)}) {
    Linked linked;
    linked.Reserve({{1, BlockId(51)}}, given);
    linked.Ready(1, 31, 4);
    const auto push = linked.Take<PushBlocks>();
    REQUIRE(push.has_value());
    CHECK(push->write_key == given);
    linked.sender.OnPushDone(push->push, absl::OkStatus(), linked.Now());
    CHECK(linked.Take<SendCommit>()->commit.write_key == given);
  }
}

TEST_CASE("HandoffSender fails only one hand-off when a push is refused") {
  Linked linked;
  linked.Reserve({{1, BlockId(51)}}, WriteKey{.id = 7});
  linked.Ready(1, 31, 4);
  const auto push = linked.Take<PushBlocks>();
  linked.sender.OnPushDone(push->push, absl::PermissionDeniedError("the reservation is over"), linked.Now());
  const auto actions = linked.sender.TakeActions();
  const auto failed = std::ranges::find_if(
      actions, [](const SenderAction& action) { return std::holds_alternative<HandoffFailed>(action); });
  REQUIRE(failed != actions.end());
  const absl::Status& status = std::get<HandoffFailed>(*failed).status;
  CHECK(status == absl::UnavailableError("decode worker d refused a KV write: the reservation is over"));
  CHECK(linked.sender.link_state("d") == HandoffSender::LinkState::kLinked);
  CHECK(std::ranges::any_of(actions,
                            [](const SenderAction& action) { return std::holds_alternative<SendRelease>(action); }));
}

TEST_CASE("HandoffSender pushes each layer of missing blocks once") {
  Linked linked;
  linked.Ready(0, 30, 4);
  linked.Ready(2, 32, 1);
  linked.Reserve({{1, BlockId(51)}, {2, BlockId(52)}});
  const auto first = linked.Take<PushBlocks>();
  REQUIRE(first.has_value());
  REQUIRE(first->copies.size() == 1);
  CHECK(first->copies[0].source_offset == 32 * kLayout.BlockBytes());
  CHECK(first->copies[0].target_offset == 52 * kLayout.BlockBytes());
  CHECK(first->copies[0].bytes == kLayout.LayerBytes());

  linked.Ready(2, 32, 3);
  const auto second = linked.Take<PushBlocks>();
  REQUIRE(second->copies.size() == 1);
  CHECK(second->copies[0].source_offset == 32 * kLayout.BlockBytes() + kLayout.LayerBytes());
  CHECK(second->copies[0].target_offset == 52 * kLayout.BlockBytes() + kLayout.LayerBytes());
  CHECK(second->copies[0].bytes == 2 * kLayout.LayerBytes());

  linked.Ready(2, 32, 4);
  const auto third = linked.Take<PushBlocks>();
  linked.Ready(1, 31, 4);
  const auto fourth = linked.Take<PushBlocks>();
  REQUIRE(fourth->copies.size() == 1);
  CHECK(fourth->copies[0].bytes == kLayout.BlockBytes());

  // The commit waits for the last push, whatever the order in which pushes finish.
  for (const auto& push : {fourth, second, first}) linked.sender.OnPushDone(push->push, absl::OkStatus(), linked.Now());
  CHECK_FALSE(linked.Take<SendCommit>().has_value());
  linked.sender.OnPushDone(third->push, absl::OkStatus(), linked.Now());
  const auto commit = linked.Take<SendCommit>();
  REQUIRE(commit.has_value());
  CHECK(commit->commit.blocks_written == 2);
  linked.sender.OnCommitReply(commit->handoff, absl::OkStatus(), linked.Now());
  const auto committed = linked.Take<HandoffCommitted>();
  REQUIRE(committed.has_value());
  CHECK(committed->reservation == kRef);
  CHECK(committed->decode_incarnation == Incarnation(9));
  CHECK(committed->blocks == 3);
  CHECK(committed->bytes_pushed == 2 * kLayout.BlockBytes());
  CHECK(linked.sender.idle());
  const HandoffTotals& totals = linked.sender.totals();
  CHECK(totals.ended == std::map<absl::StatusCode, int64_t>{{absl::StatusCode::kOk, 1}});
  CHECK(totals.blocks_pushed == 2);
  CHECK(totals.blocks_held == 1);
  CHECK(totals.expired_leases == 0);
}

TEST_CASE("HandoffSender commits digests in order when the peer wants them") {
  Linked linked(true);
  linked.Ready(2, 32, 4);
  linked.Reserve({{1, BlockId(51)}, {2, BlockId(52)}});
  std::vector<PushId> pushes;
  std::vector<DigestBlocks> digests;
  bool committed = false;
  const auto collect = [&] {
    for (SenderAction& action : linked.sender.TakeActions()) {
      if (auto* is = std::get_if<PushBlocks>(&action)) pushes.push_back(is->push);
      if (auto* is = std::get_if<DigestBlocks>(&action)) digests.push_back(*is);
      committed = committed || std::holds_alternative<SendCommit>(action);
    }
    linked.sender.CheckInvariants();
  };
  collect();
  linked.Ready(0, 30, 4);  // the decode worker holds it already
  linked.Ready(1, 31, 2);  // not digested until all its layers are posted
  collect();
  CHECK(digests.size() == 1);
  linked.Ready(1, 31, 4);
  collect();
  REQUIRE(digests.size() == 2);
  CHECK(digests[0].blocks == std::vector{BlockId(32)});
  CHECK(digests[1].blocks == std::vector{BlockId(31)});

  for (const PushId push : pushes) linked.sender.OnPushDone(push, absl::OkStatus(), linked.Now());
  linked.sender.OnDigests(digests[1].id, std::vector{BlockDigest{1}}, linked.Now());
  // A repeated answer is ignored.
  linked.sender.OnDigests(digests[1].id, std::vector{BlockDigest{9}}, linked.Now());
  collect();
  CHECK_FALSE(committed);
  linked.sender.OnDigests(digests[0].id, std::vector{BlockDigest{2}}, linked.Now());
  CHECK(linked.Take<SendCommit>()->commit.digests == std::vector{BlockDigest{1}, BlockDigest{2}});
}

TEST_CASE("HandoffSender fails when a digest fails, after the other digests") {
  Linked linked(true);
  linked.Ready(0, 30, 4);
  linked.Reserve({{0, BlockId(50)}, {1, BlockId(51)}});
  linked.Ready(1, 31, 4);
  std::vector<PushId> pushes;
  std::vector<DigestId> digests;
  for (const SenderAction& action : linked.sender.TakeActions()) {
    if (const auto* is = std::get_if<PushBlocks>(&action)) pushes.push_back(is->push);
    if (const auto* is = std::get_if<DigestBlocks>(&action)) digests.push_back(is->id);
  }
  REQUIRE(digests.size() == 2);
  linked.sender.OnDigests(digests[0], absl::InternalError("the device failed"), linked.Now());
  CHECK_FALSE(linked.Take<HandoffFailed>().has_value());
  for (const PushId push : pushes) linked.sender.OnPushDone(push, absl::OkStatus(), linked.Now());
  CHECK_FALSE(linked.Take<HandoffFailed>().has_value());
  linked.sender.OnDigests(digests[1], std::vector<BlockDigest>(1), linked.Now());
  CHECK(linked.Take<HandoffFailed>()->status.code() == absl::StatusCode::kInternal);
}

TEST_CASE("HandoffSender fails when a reply names impossible blocks") {
  const std::vector<std::vector<MissingBlock>> answers = {{{-1, BlockId(1)}},
                                                          {{3, BlockId(1)}},
                                                          {{1, BlockId(1)}, {1, BlockId(2)}},
                                                          {{2, BlockId(1)}, {1, BlockId(2)}},
                                                          {{0, BlockId(100)}},
                                                          {{0, BlockId(UINT32_MAX)}},
                                                          {{0, BlockId(5)}, {1, BlockId(5)}}};
  for (const auto& answer : answers) {
    CAPTURE(answer[0].index, answer[0].target.value());
    Linked linked;
    for (int32_t i = 0; i < 3; ++i) linked.Ready(i, static_cast<uint32_t>(i), 4);
    linked.Reserve(answer);
    std::optional<HandoffFailed> failed;
    bool released = false;
    for (SenderAction& action : linked.sender.TakeActions()) {
      if (auto* is = std::get_if<HandoffFailed>(&action)) failed = *is;
      if (auto* is = std::get_if<SendRelease>(&action)) released = is->release.reservation == kRef;
      CHECK_FALSE(std::holds_alternative<PushBlocks>(action));
    }
    REQUIRE(failed.has_value());
    CHECK(failed->status.code() == absl::StatusCode::kInternal);
    CHECK(released);
  }
}

TEST_CASE("HandoffSender refuses a peer with an impossible lease or slab") {
  for (const auto& [blocks, lease] :
       {std::pair{int64_t{-1}, kLease}, std::pair{int64_t{1} << 33, kLease},
        std::pair{int64_t{1}, absl::ZeroDuration()}, std::pair{int64_t{1}, absl::InfiniteDuration()}}) {
    Linked linked;
    linked.sender.Begin("e", {.request_id = "s", .keys = {}, .kv_tokens = 1}, linked.Now());
    LinkReply reply;
    reply.slab_blocks = blocks;
    reply.numerics_id = "cpu";
    reply.lease = lease;
    linked.sender.OnLinkReply(linked.Take<SendLink>()->link, reply, linked.Now());
    const auto failed = linked.Take<HandoffFailed>();
    REQUIRE(failed.has_value());
    CHECK(failed->status.code() == absl::StatusCode::kFailedPrecondition);
    CHECK(linked.sender.link_state("e") == HandoffSender::LinkState::kRefused);
  }
}

TEST_CASE("HandoffSender counts a lease from the sending of the heartbeat") {
  Linked linked;
  linked.Reserve({{0, BlockId(0)}, {1, BlockId(1)}, {2, BlockId(2)}});
  linked.clock.Advance(absl::Seconds(8));
  linked.sender.Tick(linked.Now());
  const auto heartbeat = linked.Take<SendHeartbeat>();
  REQUIRE(heartbeat.has_value());
  linked.clock.Advance(absl::Seconds(1));
  linked.sender.OnHeartbeatReply(heartbeat->id, HeartbeatReply{}, linked.Now());
  linked.clock.Advance(absl::Seconds(8.9));  // now 17.9; the lease ends at 8 + 10
  linked.Ready(0, 0, 4);
  CHECK(linked.Take<PushBlocks>().has_value());
  linked.clock.Advance(absl::Seconds(0.2));
  linked.Ready(1, 1, 4);
  CHECK_FALSE(linked.Take<PushBlocks>().has_value());
  CHECK(linked.sender.totals().expired_leases == 1);
}

TEST_CASE("HandoffSender ignores repeated, late and unknown answers") {
  Linked linked;
  linked.Reserve({{0, BlockId(0)}});
  linked.sender.TakeActions();
  linked.sender.OnReserveReply(linked.handoff, ReserveReply(NeverFits{"late"}), linked.Now());
  linked.sender.OnReserveReply(HandoffId(12345), ReserveReply(Reserved{}), linked.Now());
  linked.sender.OnCommitReply(linked.handoff, absl::UnavailableError("late"), linked.Now());
  linked.sender.OnPushDone(PushId(12345), absl::UnavailableError("late"), linked.Now());
  linked.sender.OnHeartbeatReply(HeartbeatId(12345), absl::UnavailableError("late"), linked.Now());
  linked.sender.OnReleaseReply("d", kRef, absl::UnavailableError("late"), linked.Now());
  linked.sender.OnLinkReply(LinkId(12345), absl::UnavailableError("late"), linked.Now());
  linked.sender.BlocksReady("nobody", {}, linked.Now());
  linked.sender.Cancel("nobody", linked.Now());
  CHECK(linked.sender.TakeActions().empty());
  CHECK(linked.sender.handoffs() == 1);
  linked.sender.CheckInvariants();
}

TEST_CASE("HandoffSender closes a connection without hand-offs") {
  Linked linked;
  linked.sender.OnConnected(LinkId(12345), absl::OkStatus(), linked.Now());
  CHECK(linked.Take<CloseConnection>()->link == LinkId(12345));
}

TEST_CASE("HandoffSender refuses a peer with another transport version") {
  Linked linked;
  linked.sender.Begin("e", {.request_id = "s", .keys = {}, .kv_tokens = 1}, linked.Now());
  linked.sender.OnLinkReply(linked.Take<SendLink>()->link,
                            LinkReply{.decode_incarnation = Incarnation(8),
                                      .transport_descriptor = "slab",
                                      .slab_blocks = 1,
                                      .numerics_id = "cpu",
                                      .lease = kLease},
                            linked.Now());
  linked.sender.OnConnected(linked.Take<OpenConnection>()->link,
                            absl::FailedPreconditionError("UCX version differs: 1.13.1 here, 1.22.0 at the peer"),
                            linked.Now());
  const auto failed = linked.Take<HandoffFailed>();
  CHECK(failed->status.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(failed->status.message().find("1.13.1 here, 1.22.0 at the peer") != std::string::npos);
  CHECK(linked.sender.link_state("e") == HandoffSender::LinkState::kRefused);
}

TEST_CASE("HandoffSender reserves under its link and states whether writes end with it") {
  for (const bool ends_with_process : {false, true}) {
    HandoffSender sender{HandoffSenderOptions{
        .self = {
            .prefill_address = "p", .prefill_incarnation = Incarnation(1), .layout = kLayout, .numerics_id = "cpu"}}};
    sender.Begin("d", {.request_id = "r", .keys = {}, .kv_tokens = 0}, absl::UnixEpoch());
    const auto link = std::get<SendLink>(sender.TakeActions().at(0)).link;
    sender.OnLinkReply(link,
                       LinkReply{.decode_incarnation = Incarnation(9),
                                 .writer = WriterId(77),
                                 .transport_descriptor = "slab",
                                 .slab_blocks = 100,
                                 .numerics_id = "cpu",
                                 .lease = kLease},
                       absl::UnixEpoch());
    sender.TakeActions();
    sender.OnConnected(link, absl::OkStatus(), absl::UnixEpoch(), ends_with_process);
    const auto reserve = std::get<SendReserve>(sender.TakeActions().at(0)).request;
    CHECK(reserve.writer == WriterId(77));
    CHECK(reserve.ends_with_process == ends_with_process);
  }
}

TEST_CASE("HandoffSender closes the connection when a push outlives a cancelled lease") {
  Linked linked;
  linked.Ready(0, 30, 4);
  linked.Reserve({{0, BlockId(50)}});
  const auto push = linked.Take<PushBlocks>();
  linked.sender.Cancel("r", linked.Now());
  CHECK_FALSE(linked.Take<HandoffFailed>().has_value());
  CHECK(linked.sender.NextTick() <= linked.Now() + kLease);
  linked.clock.Advance(kLease);
  linked.sender.Tick(linked.Now());
  CHECK(linked.Take<CloseConnection>()->link == push->link);
  linked.sender.OnPushDone(push->push, absl::UnavailableError("closed"), linked.Now());
  std::vector<SenderAction> actions = linked.sender.TakeActions();
  REQUIRE(actions.size() == 1);  // no Release, because bytes in flight may still be written
  CHECK(std::get<HandoffFailed>(actions[0]).status.code() == absl::StatusCode::kCancelled);
  CHECK(linked.sender.idle());
  CHECK(linked.sender.totals().ended == std::map<absl::StatusCode, int64_t>{{absl::StatusCode::kCancelled, 1}});
  CHECK(linked.sender.totals().expired_leases == 0);  // the hand-off was cancelled before
}

TEST_CASE("HandoffSender sets no time limit on a push with a write key") {
  Linked linked;
  linked.Ready(0, 30, 4);
  linked.Ready(1, 31, 4);
  linked.Reserve({{0, BlockId(50)}}, WriteKey{.id = 7, .bits = {1}});
  const auto push = linked.Take<PushBlocks>();
  const absl::Time start = linked.Now();
  while (linked.Now() < start + 5 * kLease) {
    linked.clock.Advance(linked.sender.NextTick() - linked.Now());
    linked.sender.Tick(linked.Now());
    for (SenderAction& action : linked.sender.TakeActions()) {
      auto* beat = std::get_if<SendHeartbeat>(&action);
      REQUIRE(beat != nullptr);
      linked.sender.OnHeartbeatReply(beat->id, HeartbeatReply{}, linked.Now());
    }
  }
  SECTION("a slow push succeeds, and its commit is sent") {
    linked.sender.OnPushDone(push->push, absl::OkStatus(), linked.Now());
    CHECK(linked.Take<SendCommit>().has_value());
  }
  SECTION("a push hangs, and the connection is closed") {
    linked.sender.OnPushDone(push->push, absl::UnavailableError("hangs"), linked.Now());
    std::optional<CloseConnection> closed;
    std::optional<HandoffFailed> failed;
    for (SenderAction& action : linked.sender.TakeActions()) {
      if (auto* close = std::get_if<CloseConnection>(&action)) closed = *close;
      if (auto* fail = std::get_if<HandoffFailed>(&action)) failed = *fail;
    }
    CHECK(closed.has_value());
    REQUIRE(failed.has_value());
    CHECK(failed->status.code() == absl::StatusCode::kUnavailable);
  }
}

TEST_CASE("HandoffSender closes the connection when a push takes two leases") {
  Linked linked;
  linked.Ready(0, 30, 4);
  linked.Reserve({{0, BlockId(50)}});
  const auto push = linked.Take<PushBlocks>();
  std::optional<CloseConnection> closed;
  const absl::Time start = linked.Now();
  while (!closed.has_value() && linked.Now() < start + 5 * kLease) {
    linked.clock.Advance(linked.sender.NextTick() - linked.Now());
    linked.sender.Tick(linked.Now());
    for (SenderAction& action : linked.sender.TakeActions()) {
      if (auto* beat = std::get_if<SendHeartbeat>(&action)) {
        linked.sender.OnHeartbeatReply(beat->id, HeartbeatReply{}, linked.Now());
      }
      if (auto* close = std::get_if<CloseConnection>(&action)) closed = *close;
    }
  }
  REQUIRE(closed.has_value());
  CHECK(linked.Now() == start + 2 * kLease);
  linked.sender.OnPushDone(push->push, absl::UnavailableError("closed"), linked.Now());
  CHECK(linked.Take<HandoffFailed>()->status.code() == absl::StatusCode::kUnavailable);
  CHECK(linked.sender.idle());
}

TEST_CASE("HandoffSender sends no Release when a peer is mute during a push") {
  Linked linked;
  linked.Ready(0, 30, 4);
  linked.Reserve({{0, BlockId(50)}});
  const auto push = linked.Take<PushBlocks>();
  const absl::Time start = linked.Now();
  std::optional<CloseConnection> closed;
  while (!closed.has_value() && linked.Now() < start + kLease) {
    linked.TickNext();
    closed = linked.Take<CloseConnection>();  // heartbeats wait without an answer
  }
  REQUIRE(closed.has_value());
  // The first heartbeat is due after half of the time for answers.
  CHECK(linked.Now() == start + 1.5 * HandoffSenderOptions{}.answer_within);
  CHECK(linked.sender.totals().mute_peers == 1);
  linked.sender.OnPushDone(push->push, absl::UnavailableError("closed"), linked.Now());
  const std::vector<SenderAction> actions = linked.sender.TakeActions();
  REQUIRE(actions.size() == 1);
  CHECK(std::get<HandoffFailed>(actions[0]).status ==
        absl::UnavailableError("decode worker d was lost: it has answered nothing for 2s"));
  CHECK(linked.sender.totals().expired_leases == 0);
}

TEST_CASE("HandoffSender loses no peer when this process stood still") {
  Linked linked;  // Reserve waits
  for (int check = 0; check < 3; ++check) linked.TickNext();
  linked.clock.Advance(absl::Seconds(5));
  linked.sender.Tick(linked.Now());
  CHECK(linked.sender.TakeActions().empty());
  linked.Reserve({});  // the answer that lay unread
  CHECK(linked.Take<SendCommit>().has_value());
  CHECK(linked.sender.link_state("d") == HandoffSender::LinkState::kLinked);
}

TEST_CASE("HandoffSender forgets an idle peer and links again") {
  Linked linked;
  const absl::Duration idle = HandoffSenderOptions{}.forget_idle;
  linked.clock.Advance(idle);
  linked.sender.Tick(linked.Now());
  // An answer is due.
  CHECK(linked.sender.link_state("d") == HandoffSender::LinkState::kLinked);

  linked.sender.OnReserveReply(linked.handoff, ReserveReply(NeverFits{"too long"}), linked.Now());
  linked.sender.TakeActions();
  linked.sender.Tick(linked.Now());  // the peer owes no answer now
  CHECK(linked.sender.NextTick() == linked.Now() + idle);
  linked.clock.Advance(idle - absl::Seconds(1));
  linked.sender.Tick(linked.Now());
  CHECK(linked.sender.TakeActions().empty());
  linked.clock.Advance(absl::Seconds(1));
  linked.sender.Tick(linked.Now());
  const std::vector<SenderAction> actions = linked.sender.TakeActions();
  REQUIRE(actions.size() == 2);
  CHECK(std::holds_alternative<CloseConnection>(actions[0]));
  CHECK(std::get<ForgetPeer>(actions[1]).peer == "d");
  CHECK(linked.sender.NextTick() == absl::InfiniteFuture());

  linked.sender.Begin("d", {.request_id = "s", .keys = {}, .kv_tokens = 1}, linked.Now());
  CHECK(linked.Take<SendLink>().has_value());
}

// In an earlier version each event searched all hand-offs. A thousand hand-offs then made no
// progress until their pushes counted as hanging.
TEST_CASE("HandoffSender needs linear work for a thousand hand-offs") {
  constexpr int kHandoffs = 1000;
  constexpr int64_t kLayers = 30;
  ManualClock clock;
  HandoffSenderOptions options;
  options.self.layout = {.layers = kLayers, .kv_heads = 1, .head_dim = 2, .format = KvFormat::kBf16};
  HandoffSender sender(options);
  int64_t events = 0;
  const auto happens = [&](const auto& event) {
    ++events;
    clock.Advance(absl::Microseconds(100));
    event(clock.Now());
    if (clock.Now() >= sender.NextTick()) sender.Tick(clock.Now());
    std::vector<SenderAction> actions = sender.TakeActions();
    for (const SenderAction& action : actions) {
      const auto* beat = std::get_if<SendHeartbeat>(&action);
      if (beat != nullptr) sender.OnHeartbeatReply(beat->id, HeartbeatReply{}, clock.Now());
    }
    return actions;
  };
  const auto name = [](int i) { return absl::StrCat("r", i); };

  for (int i = 0; i < kHandoffs; ++i) {
    happens([&](absl::Time now) { sender.Begin("d", {.request_id = name(i), .keys = {}, .kv_tokens = 1}, now); });
  }
  const LinkId link(1);  // the id of the first link
  LinkReply reply;
  reply.slab_blocks = kHandoffs;
  reply.lease = kLease;
  happens([&](absl::Time now) { sender.OnLinkReply(link, reply, now); });
  const auto linked = happens([&](absl::Time now) { sender.OnConnected(link, absl::OkStatus(), now); });
  REQUIRE(linked.size() == kHandoffs);
  for (int i = 0; i < kHandoffs; ++i) {
    const ReservationRef ref{ReservationId(i + 1u), Generation(i + 1u)};
    happens([&](absl::Time now) {
      sender.OnReserveReply(std::get<SendReserve>(linked[i]).handoff,
                            ReserveReply(Reserved{ref, {{0, BlockId(static_cast<uint32_t>(i))}}}), now);
    });
  }
  // One step completes all hand-offs, layer by layer. All pushes begin before the first one ends.
  std::vector<PushId> pushes;
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    for (int i = 0; i < kHandoffs; ++i) {
      const ReadyBlock ready{0, BlockId(static_cast<uint32_t>(i)), layer + 1};
      for (const auto& action : happens([&](auto now) { sender.BlocksReady(name(i), std::span(&ready, 1), now); })) {
        if (const auto* push = std::get_if<PushBlocks>(&action)) pushes.push_back(push->push);
      }
    }
  }
  REQUIRE(pushes.size() == kHandoffs * kLayers);
  std::vector<HandoffId> committing;
  for (const PushId push : pushes) {
    for (const auto& action : happens([&](absl::Time now) { sender.OnPushDone(push, absl::OkStatus(), now); })) {
      if (const auto* commit = std::get_if<SendCommit>(&action)) committing.push_back(commit->handoff);
    }
  }
  REQUIRE(committing.size() == kHandoffs);
  for (const HandoffId id : committing) {
    happens([&](absl::Time now) { sender.OnCommitReply(id, absl::OkStatus(), now); });
  }
  CHECK(sender.idle());
  // Only the heartbeats, one each second, visit all 1,000 hand-offs and up to 30,000 pushes.
  CAPTURE(events, sender.visits());
  CHECK(sender.visits() < 8 * events);
}

}  // namespace
}  // namespace baton
