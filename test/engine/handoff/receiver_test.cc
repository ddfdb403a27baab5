#include "engine/handoff/receiver.h"

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "base/clock.h"
#include "base/logging.h"
#include "catch.h"
#include "engine/handoff/constants.h"

namespace baton {
namespace {

class Receiver {
 public:
  explicit Receiver(bool verify = false) : verify_(verify) {
    spdlog::set_level(spdlog::level::off);
    REQUIRE(receiver.OnLink(Link(1), clock.Now()).ok());
  }
  ~Receiver() { spdlog::set_level(spdlog::level::info); }

  static LinkRequest Link(uint64_t incarnation, const WorkerAddress& address = "p") {
    return {.version = kHandoffVersion,
            .prefill_address = address,
            .prefill_incarnation = Incarnation(incarnation),
            .module_digest = {},
            .layout = kLayout,
            .numerics_id = "cpu",
            .can_digest = true};
  }
  static WriterId Writer(uint64_t link) { return NthWriter(Incarnation(5), link); }
  static ReserveRequest Request(const RequestId& id, int32_t family) {
    const std::vector<TokenId> tokens(40, family);
    return {.request_id = id,
            .writer = Writer(1),
            .keys = BlockKeys(RootKey(Digest{}, ""), tokens),
            .kv_tokens = 40,
            .expected_new_tokens = 8};
  }
  Reserved Reserve(const RequestId& id, int32_t family = 1) {
    auto reply = receiver.OnReserve(Request(id, family), clock.Now());
    receiver.CheckInvariants();
    REQUIRE(reply.ok());
    REQUIRE(std::holds_alternative<Reserved>(*reply));
    return std::get<Reserved>(*reply);
  }
  static DecodeJob Job(const RequestId& id, const ReservationRef& ref, int32_t family = 1) {
    DecodeJob job;
    job.request_id = id;
    job.reservation = ref;
    job.decode_incarnation = Incarnation(5);
    job.blocks = 3;
    job.spec.tokens = std::vector<TokenId>(41, family);
    return job;
  }

  // Digests of three blocks with different contents.
  static std::vector<BlockDigest> Digests() { return {BlockDigest{1}, BlockDigest{2}, BlockDigest{3}}; }

 private:
  const bool verify_;

 public:
  ManualClock clock;
  BlockPool pool{16};
  RadixTree tree{pool};
  Admission answer = Admit{};
  ReserveRequest asked;
  int64_t asked_blocks = 0;
  HandoffReceiver receiver{HandoffReceiverOptions{.module_digest = {},
                                                  .layout = kLayout,
                                                  .numerics_id = "cpu",
                                                  .incarnation = Incarnation(5),
                                                  .transport_descriptor = "slab",
                                                  .lease = absl::Seconds(10),
                                                  .verify = verify_},
                           pool, tree, [this](const ReserveRequest& request, int64_t blocks_now) {
                             asked = request;
                             asked_blocks = blocks_now;
                             return answer;
                           }};
};

TEST_CASE("HandoffReceiver refuses a link of another version, digest or layout") {
  Receiver r;
  const auto refused = [&](const LinkRequest& request, const std::string& here, const std::string& there) {
    const absl::Status status = r.receiver.OnLink(request, r.clock.Now()).status();
    CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
    INFO(status.message());
    CHECK(absl::StrContains(status.message(), here));
    CHECK(absl::StrContains(status.message(), there));
  };
  LinkRequest version = Receiver::Link(2);
  version.version = 77;
  refused(version, absl::StrCat(kHandoffVersion, " at the decode worker"), "77 at the prefill worker");
  LinkRequest digest = Receiver::Link(2);
  digest.module_digest[31] = 0xab;
  refused(digest, "0000000000000000000000000000000000000000000000000000000000000000",
          "00000000000000000000000000000000000000000000000000000000000000ab");
  LinkRequest layout = Receiver::Link(2);
  layout.layout.kv_heads = 3;
  refused(layout, "4 layers x 1 kv heads", "4 layers x 3 kv heads");
  layout.layout = kLayout;
  layout.layout.order = KvOrder::kRows;
  refused(layout, "bf16, in pairs", "bf16, in rows");
  layout.layout = kLayout;
  layout.layout.format = KvFormat::kF32;
  refused(layout, "bf16, in pairs", "f32, in pairs");
  LinkRequest numerics = Receiver::Link(2);
  numerics.numerics_id = "cuda";
  CHECK(r.receiver.OnLink(numerics, r.clock.Now()).ok());
}

TEST_CASE("HandoffReceiver separates two prefill workers that advertise one address") {
  Receiver r;
  const Reserved first = r.Reserve("r1");
  REQUIRE(r.receiver.OnLink(Receiver::Link(2), r.clock.Now()).ok());
  CHECK(r.pool.counts().referenced == 3);  // incarnation 1 may still write them
  ReserveRequest request = Receiver::Request("r2", 2);
  request.writer = Receiver::Writer(2);
  const auto second = r.receiver.OnReserve(request, r.clock.Now());
  REQUIRE(second.ok());
  REQUIRE(r.receiver.OnLink(Receiver::Link(1), r.clock.Now()).ok());
  CHECK(r.receiver.OnHeartbeat({Receiver::Writer(1), {first.reservation}}, r.clock.Now())->revoked.empty());
  CHECK(r.receiver.OnCommit({first.reservation, 3}, r.clock.Now()).ok());
  CHECK(r.receiver.OnCommit({std::get<Reserved>(*second).reservation, 3}, r.clock.Now()).ok());
}

TEST_CASE("HandoffReceiver keeps a link apart from forged links of its incarnation") {
  Receiver r;
  // Before and after the prefill worker links, a forger links with the worker's incarnation.
  const WriterId early = r.receiver.OnLink(Receiver::Link(2, "forger"), r.clock.Now()).value().writer;
  const WriterId own = r.receiver.OnLink(Receiver::Link(2, "q"), r.clock.Now()).value().writer;
  const WriterId late = r.receiver.OnLink(Receiver::Link(2, "forger"), r.clock.Now()).value().writer;
  ReserveRequest request = Receiver::Request("r", 1);
  request.writer = own;
  const auto reserved = std::get<Reserved>(r.receiver.OnReserve(request, r.clock.Now()).value());
  for (const WriterId forged : {early, late}) {
    CHECK(forged != own);
    CHECK(r.receiver.OnHeartbeat({forged, {reserved.reservation}}, r.clock.Now())->revoked.size() == 1);
  }
  CHECK(r.receiver.OnHeartbeat({own, {reserved.reservation}}, r.clock.Now())->revoked.empty());
}

TEST_CASE("HandoffReceiver refuses a Reserve that arrives after the end of its process") {
  Receiver r;
  LinkRequest link = Receiver::Link(2);
  link.process = "ended";
  ReserveRequest request = Receiver::Request("r", 1);
  request.writer = r.receiver.OnLink(link, r.clock.Now()).value().writer;
  request.ends_with_process = true;
  REQUIRE(r.receiver.OnReserve(request, r.clock.Now()).ok());
  CHECK(r.receiver.OnProcessEnd("another", r.clock.Now()) == 0);
  CHECK(r.receiver.OnProcessEnd("ended", r.clock.Now()) == 3);
  r.receiver.CheckInvariants();
  CHECK(r.receiver.freed_by_process_end() == 3);
  CHECK(r.pool.counts().free == 16);
  CHECK(r.receiver.OnReserve(request, r.clock.Now()).status().code() == absl::StatusCode::kFailedPrecondition);
  CHECK(r.receiver.IsLinked(Receiver::Writer(1)));
}

TEST_CASE("HandoffReceiver asks for a new link when another worker linked after a restart") {
  // The old process and its successor each accept one link. The second is forged.
  const auto link = [](uint64_t incarnation, BlockPool& pool, RadixTree& tree) {
    auto receiver =
        std::make_unique<HandoffReceiver>(HandoffReceiverOptions{.layout = kLayout,
                                                                 .numerics_id = "cpu",
                                                                 .incarnation = Incarnation(incarnation),
                                                                 .transport_descriptor = ""},
                                          pool, tree, [](const ReserveRequest&, int64_t) { return Admit{}; });
    const WriterId writer = receiver->OnLink(Receiver::Link(2), absl::UnixEpoch()).value().writer;
    return std::pair(std::move(receiver), writer);
  };
  BlockPool pool(4), successors_pool(4);
  RadixTree tree(pool), successors_tree(successors_pool);
  const auto [old, writer] = link(5, pool, tree);
  const auto [successor, forged] = link(6, successors_pool, successors_tree);
  CHECK(successor->OnHeartbeat({writer, {}}, absl::UnixEpoch()).status().code() ==
        absl::StatusCode::kFailedPrecondition);
  CHECK(successor->OnReserve({.request_id = "r", .writer = writer}, absl::UnixEpoch()).status().code() ==
        absl::StatusCode::kFailedPrecondition);
}

TEST_CASE("HandoffReceiver keeps links with reservations and the latest others") {
  Receiver r;
  r.Reserve("r");  // for incarnation 1
  for (uint64_t i = 2; i < 5000; ++i) {
    r.clock.Advance(absl::Milliseconds(1));
    REQUIRE(r.receiver.OnLink(Receiver::Link(i, absl::StrCat("p", i)), r.clock.Now()).ok());
  }
  CHECK(r.receiver.IsLinked(Receiver::Writer(1)));
  CHECK_FALSE(r.receiver.IsLinked(Receiver::Writer(2)));
  CHECK_FALSE(r.receiver.IsLinked(Receiver::Writer(3000)));
  CHECK(r.receiver.IsLinked(Receiver::Writer(4000)));
  CHECK(r.receiver.IsLinked(Receiver::Writer(4999)));
}

TEST_CASE("HandoffReceiver refuses a contradictory Reserve") {
  Receiver r;
  const auto code = [&](auto change) {
    ReserveRequest request = Receiver::Request("r", 1);
    change(request);
    return r.receiver.OnReserve(request, r.clock.Now()).status().code();
  };
  CHECK(code([](auto& q) { q.writer = Receiver::Writer(99); }) == absl::StatusCode::kFailedPrecondition);
  CHECK(code([](auto& q) { q.kv_tokens = -1; }) == absl::StatusCode::kInvalidArgument);
  CHECK(code([](auto& q) { q.expected_new_tokens = -1; }) == absl::StatusCode::kInvalidArgument);
  CHECK(code([](auto& q) { q.keys.pop_back(); }) == absl::StatusCode::kInvalidArgument);
  CHECK(code([](auto& q) { q.keys.resize(100); }) == absl::StatusCode::kInvalidArgument);
  ReserveRequest huge = Receiver::Request("r", 1);
  huge.kv_tokens = 16 * 20;
  huge.keys.resize(20);
  CHECK(std::holds_alternative<NeverFits>(*r.receiver.OnReserve(huge, r.clock.Now())));
  CHECK(r.pool.counts().free == 16);
}

TEST_CASE("HandoffReceiver passes blocks_now to admission and returns its answer") {
  Receiver r;
  const Reserved first = r.Reserve("r1");
  CHECK(r.asked.kv_tokens == 40);
  CHECK(r.asked.expected_new_tokens == 8);
  CHECK(r.asked_blocks == 3);
  REQUIRE(r.receiver.OnCommit({first.reservation, 3}, r.clock.Now()).ok());
  r.Reserve("r2");
  CHECK(r.asked_blocks == 1);                          // r1 refers to the two full blocks
  CHECK(r.receiver.outstanding().growth_blocks == 0);  // 40 + 8 tokens are three blocks
  r.answer = Wait{};
  auto reply = r.receiver.OnReserve(Receiver::Request("r3", 2), r.clock.Now());
  CHECK(std::holds_alternative<Wait>(*reply));
  r.answer = NeverFits{"no"};
  reply = r.receiver.OnReserve(Receiver::Request("r3", 2), r.clock.Now());
  CHECK(std::get<NeverFits>(*reply).reason == "no");
  CHECK(r.pool.counts().referenced == 4);
}

TEST_CASE("HandoffReceiver::Start claims complete KV once, for the right job") {
  Receiver r;
  const Reserved reserved = r.Reserve("r");
  const auto start = [&](auto change) {
    DecodeJob job = Receiver::Job("r", reserved.reservation);
    change(job);
    return r.receiver.Start(job, r.clock.Now()).status().code();
  };
  CHECK(start([](auto&) {}) == absl::StatusCode::kFailedPrecondition);  // not committed
  REQUIRE(r.receiver.OnCommit({reserved.reservation, 3}, r.clock.Now()).ok());
  for (const auto& change : std::vector<std::function<void(DecodeJob&)>>{
           [](auto& job) { job.request_id = "s"; },
           [](auto& job) { job.reservation.id = ReservationId(9); },
           [](auto& job) { job.reservation.generation = Generation(9); },
           [](auto& job) { job.decode_incarnation = Incarnation(9); },
           [](auto& job) { job.blocks = 2; },
           [](auto& job) { job.spec.tokens = std::vector<TokenId>(40, 1); },
           [](auto& job) { job.spec.tokens = {}; },
           [](auto& job) { job.spec.tokens = std::vector<TokenId>(41, 12); },
           [](auto& job) { job.spec.cache_domain = "another tenant"; },
       }) {
    CHECK(start(change) == absl::StatusCode::kFailedPrecondition);
  }
  auto claim = r.receiver.Start(Receiver::Job("r", reserved.reservation), r.clock.Now());
  REQUIRE(claim.ok());
  auto* claimed = std::get_if<ClaimedKv>(&*claim);
  REQUIRE(claimed != nullptr);
  CHECK(claimed->table.size() == 3);
  CHECK(claimed->keys.size() == 2);
  CHECK(claimed->kv_tokens == 40);
  CHECK(start([](auto&) {}) == absl::StatusCode::kFailedPrecondition);  // claimed already
  CHECK(r.pool.counts().referenced == 3);
}

TEST_CASE("HandoffReceiver quarantines blocks when a commit names a wrong number") {
  Receiver r;
  const Reserved reserved = r.Reserve("r");
  CHECK(r.receiver.OnCommit({reserved.reservation, 2}, r.clock.Now()).code() == absl::StatusCode::kFailedPrecondition);
  CHECK(r.pool.counts().quarantined == 3);
  CHECK(r.receiver.OnCommit({reserved.reservation, 3}, r.clock.Now()).code() == absl::StatusCode::kFailedPrecondition);
  r.receiver.CheckInvariants();
  r.receiver.OnRelease({reserved.reservation}, r.clock.Now());
  CHECK(r.pool.counts().free == 16);
}

TEST_CASE("HandoffReceiver reports room when a reservation ends or is granted") {
  Receiver r;
  const Reserved held = r.Reserve("held", 1), other = r.Reserve("other", 2);
  const auto refuse = [&](const RequestId& id, int32_t family, bool cache_only = false) {
    r.answer = Wait{};
    ReserveRequest request = Receiver::Request(id, family);
    request.cache_only = cache_only;
    REQUIRE(std::holds_alternative<Wait>(*r.receiver.OnReserve(request, r.clock.Now())));
    CHECK(r.receiver.TakeRoom().requests == 0);
    r.answer = Admit{};
  };
  refuse("r1", 3);
  CHECK(r.receiver.TakeRoom().requests == 1);  // reservations were granted since the last report
  refuse("r2", 3);
  SECTION("the writer releases a reservation") { r.receiver.OnRelease({held.reservation}, r.clock.Now()); }
  SECTION("a reservation's request is cancelled") { r.receiver.Cancel("held", r.clock.Now()); }
  SECTION("the reservations lapse") {
    r.clock.Advance(absl::Seconds(10));
    r.receiver.Tick(r.clock.Now());
  }
  SECTION("the blocks of a cancelled request leave quarantine") {
    r.receiver.Cancel("held", r.clock.Now());
    CHECK(r.receiver.TakeRoom().requests == 1);
    refuse("r3", 3);
    r.receiver.OnRelease({held.reservation}, r.clock.Now());
  }
  SECTION("another reservation is granted") { r.Reserve("r4", 4); }
  SECTION("a sequence ends") { r.receiver.RoomMayHaveCome(); }
  CHECK(r.receiver.TakeRoom().requests == 1);
  CHECK(r.receiver.TakeRoom().requests == 0);
  refuse("for the cache", 5, /*cache_only=*/true);
  r.receiver.RoomMayHaveCome();
  CHECK(r.receiver.TakeRoom().requests == 0);
}

TEST_CASE("HandoffReceiver does not reuse quarantined blocks") {
  Receiver r;
  std::vector<Reserved> all;
  for (int i = 0; i < 5; ++i) all.push_back(r.Reserve(absl::StrCat("r", i), i));  // 15 of 16 blocks
  r.receiver.Cancel("r0", r.clock.Now());
  CHECK(r.pool.counts().quarantined == 3);
  const auto reply = r.receiver.OnReserve(Receiver::Request("s", 9), r.clock.Now());
  CHECK(std::holds_alternative<Wait>(*reply));
  CHECK(r.pool.counts().free == 1);  // its one block was given back
  // A release with another generation does not end the quarantine.
  r.receiver.OnRelease({{all[0].reservation.id, Generation(1)}}, r.clock.Now());
  CHECK(r.pool.counts().quarantined == 3);
  // A link of another incarnation does not end it either.
  REQUIRE(r.receiver.OnLink(Receiver::Link(2), r.clock.Now()).ok());
  CHECK(r.pool.counts().quarantined == 3);
  r.receiver.OnRelease({all[0].reservation}, r.clock.Now());
  CHECK(r.pool.counts().free == 4);
}

TEST_CASE("HandoffReceiver counts leases that end before and after the commit") {
  Receiver r;
  r.Reserve("reserved", 1);
  const Reserved committed = r.Reserve("committed", 2);
  REQUIRE(r.receiver.OnCommit({committed.reservation, 3}, r.clock.Now()).ok());
  const Reserved released = r.Reserve("released", 3);
  r.receiver.OnRelease({released.reservation}, r.clock.Now());
  CHECK(r.receiver.expired_leases() == 0);
  r.clock.Advance(absl::Minutes(1));
  r.receiver.Tick(r.clock.Now());
  CHECK(r.receiver.expired_leases() == 2);
  r.receiver.Tick(r.clock.Now());
  CHECK(r.receiver.expired_leases() == 2);
}

TEST_CASE("HandoffReceiver renews a writer's reservations and reports the rest as revoked") {
  Receiver r;
  REQUIRE(r.receiver.OnLink(Receiver::Link(2, "q"), r.clock.Now()).ok());
  const Reserved reserved = r.Reserve("r");
  r.clock.Advance(absl::Seconds(6));
  const auto strangers = r.receiver.OnHeartbeat({Receiver::Writer(2), {reserved.reservation}}, r.clock.Now());
  REQUIRE(strangers.ok());
  CHECK(strangers->revoked.size() == 1);
  const ReservationRef unknown{ReservationId(99), Generation(1)};
  const auto own = r.receiver.OnHeartbeat({Receiver::Writer(1), {unknown, reserved.reservation}}, r.clock.Now());
  REQUIRE(own.ok());
  CHECK(own->revoked == std::vector<ReservationRef>{unknown});
  r.clock.Advance(absl::Seconds(6));
  CHECK(r.receiver.OnCommit({reserved.reservation, 3}, r.clock.Now()).ok());
  CHECK(r.receiver.OnHeartbeat({Receiver::Writer(3), {}}, r.clock.Now()).status().code() ==
        absl::StatusCode::kFailedPrecondition);
}

TEST_CASE("HandoffReceiver refuses a link without digests when it verifies") {
  Receiver plain, verifying(true);
  LinkRequest old = Receiver::Link(2);
  CHECK_FALSE(plain.receiver.OnLink(old, plain.clock.Now())->wants_digests);
  CHECK(verifying.receiver.OnLink(old, verifying.clock.Now())->wants_digests);
  old.can_digest = false;
  CHECK(plain.receiver.OnLink(old, plain.clock.Now()).ok());
  const absl::Status refused = verifying.receiver.OnLink(old, verifying.clock.Now()).status();
  CHECK(refused.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(absl::StrContains(refused.message(), "--verify-kv"));
}

TEST_CASE("HandoffReceiver quarantines blocks when a commit lacks digests") {
  for (const size_t digests : {0, 2, 4}) {
    Receiver r(true);
    const Reserved reserved = r.Reserve("r");
    const Commit commit{reserved.reservation, 3, std::vector<BlockDigest>(digests)};
    const absl::Status status = r.receiver.OnCommit(commit, r.clock.Now());
    CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
    CHECK(absl::StrContains(status.message(), absl::StrCat("digests of ", digests, " blocks, expected 3")));
    CHECK(r.pool.counts().quarantined == 3);
    r.receiver.CheckInvariants();
  }
}

TEST_CASE("HandoffReceiver ignores the digests of a repeated commit when it verifies none") {
  Receiver r;
  const Reserved reserved = r.Reserve("r");
  REQUIRE(r.receiver.OnCommit({reserved.reservation, 3}, r.clock.Now()).ok());
  CHECK(r.receiver.OnCommit({reserved.reservation, 3, Receiver::Digests()}, r.clock.Now()).ok());
  r.receiver.CheckInvariants();
  CHECK(r.receiver.Start(Receiver::Job("r", reserved.reservation), r.clock.Now()).ok());
}

TEST_CASE("HandoffReceiver gives up a reservation that is committed with two digests") {
  Receiver r(true);
  const Reserved reserved = r.Reserve("r");
  const Commit commit{reserved.reservation, 3, Receiver::Digests()};
  for (int i = 0; i < 2; ++i) REQUIRE(r.receiver.OnCommit(commit, r.clock.Now()).ok());
  Commit forged = commit;
  forged.digests[2][0] ^= 1;
  const absl::Status status = r.receiver.OnCommit(forged, r.clock.Now());
  CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(absl::StrContains(status.message(), "was committed with other digests before"));
  CHECK(r.pool.counts().quarantined == 3);
  CHECK_FALSE(r.receiver.Start(Receiver::Job("r", reserved.reservation), r.clock.Now()).ok());
  r.receiver.CheckInvariants();
}

TEST_CASE("HandoffReceiver releases and counts blocks that fail their check") {
  Receiver r(true);
  const auto claim = [&](const RequestId& id, const absl::StatusOr<std::vector<BlockDigest>>& found) {
    const Reserved reserved = r.Reserve(id);
    CHECK(reserved.missing.size() == 3);
    REQUIRE(r.receiver.OnCommit({reserved.reservation, 3, Receiver::Digests()}, r.clock.Now()).ok());
    REQUIRE(r.receiver.Start(Receiver::Job(id, reserved.reservation), r.clock.Now()).ok());
    const BlockCheck check = r.receiver.NextCheck().value();
    CHECK(check.blocks.size() == 3);
    CHECK_FALSE(r.receiver.NextCheck().has_value());
    r.clock.Advance(absl::Minutes(1));  // time does not end a check
    r.receiver.Tick(r.clock.Now());
    CHECK(r.receiver.outstanding().committed == 1);
    r.receiver.CheckInvariants();
    return r.receiver.OnDigests(check.id, found, r.clock.Now()).value();
  };
  std::vector<BlockDigest> forged = Receiver::Digests();
  forged[1][31] = 1;
  const absl::Status refused = claim("r", forged).status();
  CHECK(refused.code() == absl::StatusCode::kDataLoss);
  CHECK(absl::StrContains(refused.message(), "request r: KV block 1 of 3"));
  CHECK(r.pool.counts().free == 16);
  const absl::Status unread = claim("s", absl::InternalError("the device failed")).status();
  CHECK(unread.code() == absl::StatusCode::kInternal);
  CHECK(r.pool.counts().free == 16);
  CHECK(r.receiver.failed_checks() == 1);  // the other check failed without digests

  CHECK(claim("t", Receiver::Digests())->table.size() == 3);
  CHECK(r.pool.counts().cached == 2);
  CHECK(r.receiver.failed_checks() == 1);
}

TEST_CASE("HandoffReceiver shares cache-only blocks only after their check") {
  Receiver r(true);
  ReserveRequest request = Receiver::Request("r", 1);
  request.cache_only = true;
  const auto reserved = std::get<Reserved>(*r.receiver.OnReserve(request, r.clock.Now()));
  REQUIRE(r.receiver.OnCommit({reserved.reservation, 3, Receiver::Digests()}, r.clock.Now()).ok());
  CHECK(r.pool.counts().referenced == 3);
  // The writer has not received the answer to its commit.
  r.receiver.OnRelease({reserved.reservation}, r.clock.Now());
  r.receiver.Cancel("r", r.clock.Now());
  const BlockCheck check = r.receiver.NextCheck().value();
  CHECK_FALSE(r.receiver.OnDigests(check.id, std::vector<BlockDigest>(3), r.clock.Now()));
  CHECK(r.pool.counts().free == 16);
  CHECK(r.receiver.failed_checks() == 1);

  request.request_id = "s";
  const auto again = std::get<Reserved>(*r.receiver.OnReserve(request, r.clock.Now()));
  REQUIRE(r.receiver.OnCommit({again.reservation, 3, Receiver::Digests()}, r.clock.Now()).ok());
  CHECK_FALSE(r.receiver.OnDigests(r.receiver.NextCheck()->id, Receiver::Digests(), r.clock.Now()));
  CHECK(r.pool.counts().cached == 2);
  r.receiver.CheckInvariants();
}

TEST_CASE("HandoffReceiver draws disjoint generations for two incarnations") {
  BlockPool pool(4);
  RadixTree tree(pool);
  std::vector<uint64_t> generations;
  for (uint64_t incarnation : {1, 2, 3}) {
    HandoffReceiver receiver(
        {.layout = kLayout, .numerics_id = "cpu", .incarnation = Incarnation(incarnation), .transport_descriptor = ""},
        pool, tree, [](const ReserveRequest&, int64_t) { return Admit{}; });
    const WriterId writer = receiver.OnLink(Receiver::Link(9), absl::UnixEpoch()).value().writer;
    auto reply = receiver.OnReserve({.request_id = "r", .writer = writer, .keys = {}}, absl::UnixEpoch());
    generations.push_back(std::get<Reserved>(*reply).reservation.generation.value());
  }
  for (size_t i = 1; i < generations.size(); ++i) CHECK(generations[i] - generations[i - 1] > uint64_t{1} << 32);
}

}  // namespace
}  // namespace baton
