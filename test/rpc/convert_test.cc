// Tests that conversions to protobuf and back keep all values, and that hostile messages are
// refused.
#include <limits>

#include "catch.h"
#include "rpc/kv_convert.h"
#include "rpc/worker_convert.h"

namespace baton {
namespace {

constexpr KvLayout kWireLayout{
    .layers = 30, .kv_heads = 3, .head_dim = 64, .format = KvFormat::kBf16, .order = KvOrder::kRows};

TEST_CASE("Jobs and results survive the wire") {
  DecodeJob job;
  job.request_id = std::string("r");
  job.reservation = {ReservationId(1ull << 63), Generation(7)};
  job.decode_incarnation = Incarnation(~0ull);
  job.blocks = 3;
  job.spec.tokens = std::vector<TokenId>{0, 5, 49151};
  job.spec.cache_domain = std::string("tenant");
  job.spec.sampling.draw.temperature = 0;
  job.spec.sampling.draw.top_k = 40;
  job.spec.sampling.seed = 0;
  job.spec.sampling.max_tokens = 9;
  job.spec.sampling.stop = {"a", "b"};
  job.spec.sampling.stop_ids = {2};
  job.spec.sampling.ignore_eos = true;
  job.spec.sampling.logprobs = 0;
  job.spec.tenant = std::string("team");
  job.spec.priority = -4;
  job.spec.arrival_offset = absl::Milliseconds(-1500);
  const DecodeJob back = FromProto(ToProto(job));
  CHECK(back.reservation == job.reservation);
  CHECK(back.decode_incarnation == job.decode_incarnation);
  CHECK(back.spec.tokens == job.spec.tokens);
  CHECK(back.spec.cache_domain == "tenant");
  CHECK(back.spec.sampling.draw.temperature == 0);
  CHECK(back.spec.sampling.draw.top_p == 1);
  CHECK(back.spec.sampling.seed == 0);
  CHECK(back.spec.sampling.stop == job.spec.sampling.stop);
  CHECK(back.spec.sampling.stop_ids == job.spec.sampling.stop_ids);
  CHECK(back.spec.sampling.ignore_eos);
  CHECK(back.spec.sampling.logprobs == 0);
  CHECK(back.spec.tenant == "team");
  CHECK(back.spec.priority == -4);
  CHECK(back.spec.arrival_offset == absl::Milliseconds(-1500));

  PrefillDone done;
  done.request_id = "r";
  done.handoff = absl::Milliseconds(3);
  done.copied = absl::Milliseconds(7);
  done.computed_tokens = 11;
  done.held_tokens = 12;
  done.steps = {{.began = absl::Milliseconds(9), .ended = absl::Milliseconds(5), .tokens = 64, .steps = 2},
                {.began = absl::Milliseconds(4), .ended = absl::ZeroDuration()}};
  const PrefillDone done_back = FromProto(ToProto(done));
  CHECK(done_back.handoff == done.handoff);
  CHECK(done_back.copied == done.copied);
  CHECK(done_back.computed_tokens == 11);
  CHECK(done_back.held_tokens == 12);
  REQUIRE(done_back.steps.size() == 2);
  CHECK(done_back.steps[0].began == absl::Milliseconds(9));
  CHECK(done_back.steps[0].ended == absl::Milliseconds(5));
  CHECK(done_back.steps[0].tokens == 64);
  CHECK(done_back.steps[0].steps == 2);
  CHECK(done_back.steps[1].tokens == 0);

  TokenUpdate update{.request_id = std::string("r"),
                     .tokens = {1, 2},
                     .logprobs = {{.logprob = -1, .top = {{3, -0.5f}, {4, -2.f}}}, {.logprob = -2, .top = {}}},
                     .text = std::string("hi"),
                     .finish = FinishReason::kStop};
  const TokenUpdate update_back = FromProto(ToProto(update));
  CHECK(update_back.tokens == update.tokens);
  REQUIRE(update_back.logprobs.size() == 2);
  CHECK(update_back.logprobs[0].top == update.logprobs[0].top);
  CHECK(update_back.finish == FinishReason::kStop);
  update.finish.reset();
  CHECK_FALSE(FromProto(ToProto(update)).finish.has_value());
  CHECK_FALSE(FromProto(ToProto(update)).queued.has_value());
  for (const absl::Duration queued : {absl::ZeroDuration(), absl::Microseconds(1234567)}) {
    update.queued = queued;
    CHECK(FromProto(ToProto(update)).queued == queued);
  }
}

TEST_CASE("A prefill job's arrival offset survives the wire, set or unset") {
  PrefillJob job;
  job.spec.arrival_offset = absl::Seconds(3);
  job.spec.tenant = std::string("team");
  CHECK(FromProto(ToProto(job)).spec.arrival_offset == absl::Seconds(3));
  CHECK(FromProto(ToProto(job)).spec.tenant == "team");
  PrefillAppend append;
  CHECK_FALSE(FromProto(ToProto(append)).arrival_offset.has_value());
  append.arrival_offset = absl::ZeroDuration();
  CHECK(FromProto(ToProto(append)).arrival_offset == absl::ZeroDuration());
}

TEST_CASE("FromProto reads a job without a spec as a spec without tokens") {
  for (const RequestSpec& spec : {FromProto(worker::v1::PrefillJob()).spec, FromProto(worker::v1::DecodeJob()).spec}) {
    CHECK(spec.tokens.empty());
    CHECK(spec.sampling.max_tokens == 0);
  }
}

TEST_CASE("FromProto keeps extreme values of a spec for the checks of the engine") {
  for (const bool most : {false, true}) {
    worker::v1::PrefillJob hostile;
    worker::v1::RequestSpec& sent = *hostile.mutable_spec();
    const auto extreme = [most]<typename T>(T) {
      return most ? std::numeric_limits<T>::max() : std::numeric_limits<T>::min();
    };
    sent.add_tokens(extreme(int32_t{}));
    sent.set_priority(extreme(int32_t{}));
    sent.set_handicap_us(extreme(int64_t{}));
    sent.mutable_sampling()->set_max_tokens(extreme(int32_t{}));
    sent.set_expected_tokens(extreme(int32_t{}));
    const PrefillJob job = FromProto(hostile);
    CHECK(job.spec.tokens[0] == sent.tokens(0));
    CHECK(job.spec.priority == sent.priority());
    CHECK(absl::ToInt64Microseconds(job.spec.arrival_offset) == sent.handicap_us());
    CHECK(job.spec.sampling.max_tokens == sent.sampling().max_tokens());
    CHECK(job.spec.expected_tokens == std::max(sent.expected_tokens(), 0));
  }
}

TEST_CASE("Leases survive the wire, and hostile values are bounded") {
  PrefillJob job;
  job.lease = {.tokens = 7, .duration = absl::Seconds(60), .only_protects = true};
  CHECK(FromProto(ToProto(job)).lease.tokens == 7);
  CHECK(FromProto(ToProto(job)).lease.duration == absl::Seconds(60));
  PrefillAppend append{.request_id = std::string("r"), .tokens = {}, .decode_worker = {}, .lease = job.lease};
  CHECK(FromProto(ToProto(append)).lease.tokens == 7);
  CHECK(FromProto(ToProto(append)).lease.only_protects);
  worker::v1::PrefillJob hostile;
  hostile.mutable_lease()->set_tokens(-1);
  hostile.mutable_lease()->set_duration_us(std::numeric_limits<int64_t>::max());
  CHECK(FromProto(hostile).lease.tokens == 0);
  CHECK(FromProto(hostile).lease.duration == absl::Hours(1));
  hostile.mutable_lease()->set_duration_us(-1);
  CHECK(FromProto(hostile).lease.duration == absl::ZeroDuration());
}

TEST_CASE("A KV layout survives the wire in each format") {
  KvLayout layout = kWireLayout;
  for (const KvFormatRow& row : kKvFormats) {
    layout.format = row.format;
    const worker::v1::KvLayout proto = ToProto(layout);
    CHECK(proto.kv_format() == row.name);
    CHECK(FromProto(proto).value() == layout);
  }
}

TEST_CASE("FromProto refuses an unknown KV format and names it and the known ones") {
  WorkerInfo known;
  known.address = "host:1";
  known.layout = kWireLayout;
  known.blocks_total = known.context = known.max_batch = 1;
  worker::v1::WorkerInfo info = ToProto(known);
  LinkRequest request;
  request.layout = kWireLayout;
  kv::v1::LinkRequest link = ToProto(request);
  REQUIRE(FromProto(info, WorkerRole::kDecode).ok());
  REQUIRE(FromProto(link).ok());
  const auto check = [&](const std::string& sent, const std::string& shown) {
    info.mutable_layout()->set_kv_format(sent);
    link.mutable_layout()->set_kv_format(sent);
    for (const absl::Status& refusal : {FromProto(info, WorkerRole::kPrefill).status(),
                                        FromProto(info, WorkerRole::kDecode).status(), FromProto(link).status()}) {
      CHECK(absl::IsInvalidArgument(refusal));
      CHECK(refusal.message() == absl::StrCat("layout: kv_format: expected bf16 or f32, got '", shown,
                                              "'. All processes of a cluster must run the same release"));
    }
  };
  check("fp8_e4m3", "fp8_e4m3");
  check("BF16", "BF16");
  check("", "");
  check(std::string("bf16\0", 5), "bf16\\x00");
  check("\n" + std::string(1 << 20, 'x'), "\\n" + std::string(63, 'x'));
}

TEST_CASE("Hand-off messages survive the wire") {
  LinkRequest link;
  link.prefill_address = std::string("127.0.0.1:1");
  link.prefill_incarnation = Incarnation(77);
  link.module_digest.fill(0xab);
  link.layout = kWireLayout;
  link.numerics_id = std::string("cpu");
  link.process = std::string("boot/1/2/3");
  const auto link_back = FromProto(ToProto(link));
  REQUIRE(link_back.ok());
  CHECK(link_back->process == link.process);
  CHECK(link_back->module_digest == link.module_digest);
  CHECK(link_back->layout == kWireLayout);
  for (const bool digests : {false, true}) {
    link.can_digest = digests;
    CHECK(FromProto(ToProto(link))->can_digest == digests);
    link.supports_write_keys = digests;
    CHECK(FromProto(ToProto(link))->supports_write_keys == digests);
    LinkReply reply;
    reply.slab_blocks = 1;
    reply.lease = absl::Seconds(1);
    reply.wants_digests = digests;
    CHECK(FromProto(ToProto(reply))->wants_digests == digests);
  }

  const Commit commit{{ReservationId(4), Generation(5)}, 2, {BlockDigest{1}, BlockDigest{2}}};
  const auto commit_back = FromProto(ToProto(commit));
  REQUIRE(commit_back.ok());
  CHECK(commit_back->reservation == commit.reservation);
  CHECK(commit_back->blocks_written == 2);
  CHECK(commit_back->digests == commit.digests);
  CHECK_FALSE(commit_back->write_key.has_value());
  const WriteKey write_key{.id = 6, .bits = {1, 2, 3}};
  CHECK(FromProto(ToProto(Commit{{}, 0, {}, write_key}))->write_key == write_key);
  CHECK(std::get<Reserved>(*FromProto(ToProto(ReserveReply(Reserved{{}, {}, write_key})))).write_key == write_key);

  ReserveRequest reserve;
  reserve.ends_with_process = true;
  reserve.keys.resize(3);
  for (uint8_t i = 0; i < 3; ++i) reserve.keys[i].bytes.fill(i);
  reserve.kv_tokens = 50;
  reserve.cache_only = true;
  const auto reserve_back = FromProto(ToProto(reserve));
  REQUIRE(reserve_back.ok());
  CHECK(reserve_back->keys == reserve.keys);
  CHECK(reserve_back->cache_only);
  CHECK(reserve_back->ends_with_process);

  const ReserveReply reserved = Reserved{{ReservationId(4), Generation(5)}, {{0, BlockId(9)}, {2, BlockId(7)}}};
  const auto reserved_back = FromProto(ToProto(reserved));
  REQUIRE(reserved_back.ok());
  const auto& missing = std::get<Reserved>(*reserved_back).missing;
  REQUIRE(missing.size() == 2);
  CHECK(missing[1].index == 2);
  CHECK(missing[1].target == BlockId(7));
  CHECK(std::holds_alternative<Wait>(*FromProto(ToProto(ReserveReply(Wait{})))));
  CHECK(std::get<NeverFits>(*FromProto(ToProto(ReserveReply(NeverFits{"no"})))).reason == "no");

  Heartbeat heartbeat{WriterId(1), {{ReservationId(2), Generation(3)}}};
  CHECK(FromProto(ToProto(heartbeat)).active == heartbeat.active);
}

TEST_CASE("FromProto reads a link of another version up to its version") {
  kv::v1::LinkRequest link;
  link.set_version(kHandoffVersion + 1);
  const absl::StatusOr<LinkRequest> read = FromProto(link);  // no digest and no layout
  REQUIRE(read.ok());
  CHECK(read->version == kHandoffVersion + 1);
}

TEST_CASE("FromProto refuses messages that contradict themselves") {
  kv::v1::LinkRequest link;
  link.set_version(kHandoffVersion);
  CHECK(absl::IsInvalidArgument(FromProto(link).status()));  // no digest
  link.set_module_digest(std::string(32, 'x'));
  CHECK(absl::IsInvalidArgument(FromProto(link).status()));  // no layout
  *link.mutable_layout() = ToProto(kWireLayout);
  CHECK(FromProto(link).ok());
  link.mutable_layout()->set_layers(int64_t{1} << 62);
  CHECK(absl::IsInvalidArgument(FromProto(link).status()));

  kv::v1::ReserveRequest reserve;
  reserve.set_keys(std::string(33, 'x'));
  CHECK(absl::IsInvalidArgument(FromProto(reserve).status()));

  kv::v1::CommitRequest commit;
  commit.set_digests(std::string(33, 'x'));
  CHECK(absl::IsInvalidArgument(FromProto(commit).status()));

  commit.clear_digests();
  commit.mutable_right()->set_key("short");
  CHECK(absl::IsInvalidArgument(FromProto(commit).status()));

  kv::v1::WriteRequest write;
  write.set_data("0123456789");
  // The data has 10 bytes, and no copy takes them.
  CHECK(absl::IsInvalidArgument(CopiesOf(write).status()));
  write.add_target(100);
  CHECK(absl::IsInvalidArgument(CopiesOf(write).status()));
  write.add_bytes(4);
  CHECK(absl::IsInvalidArgument(CopiesOf(write).status()));  // the copies take too few bytes
  write.add_target(200);
  for (const int64_t wrong : {int64_t{7}, int64_t{0}, int64_t{-4}, std::numeric_limits<int64_t>::max()}) {
    write.mutable_bytes()->Truncate(1);
    write.add_bytes(wrong);
    CHECK(absl::IsInvalidArgument(CopiesOf(write).status()));
  }
  write.set_bytes(1, 6);
  const auto copies = CopiesOf(write);
  REQUIRE(copies.ok());
  REQUIRE(copies->size() == 2);
  CHECK((*copies)[1].source_offset == 4);
  CHECK((*copies)[1].target_offset == 200);
  CHECK((*copies)[1].bytes == 6);
  write.clear_target();
  write.clear_bytes();
  write.set_data(std::string(kMostWriteTargets + 1, 'x'));
  for (int i = 0; i <= kMostWriteTargets; ++i) write.add_target(i), write.add_bytes(1);
  CHECK(absl::IsInvalidArgument(CopiesOf(write).status()));

  kv::v1::ReserveReply reply;
  CHECK(absl::IsInvalidArgument(FromProto(reply).status()));
  reply.mutable_reserved()->add_missing_index(1);
  CHECK(absl::IsInvalidArgument(FromProto(reply).status()));

  worker::v1::WorkerInfo info;
  info.set_version(kWorkerProtocolVersion);
  CHECK(absl::IsInvalidArgument(FromProto(info, WorkerRole::kDecode).status()));
  info.set_address("host:1");
  info.set_blocks_total(1);
  info.set_context(1);
  info.set_max_batch(1);
  info.set_module_digest(std::string(32, 'd'));
  *info.mutable_layout() = ToProto(kWireLayout);
  info.set_staging_blocks(7);
  info.set_host_blocks(5);
  CHECK(FromProto(info, WorkerRole::kPrefill)->host_blocks == 5);
  CHECK(FromProto(ToProto(*FromProto(info, WorkerRole::kPrefill)), WorkerRole::kPrefill)->host_blocks == 5);
  info.set_host_blocks(8);  // more than the total of 7
  CHECK(FromProto(info, WorkerRole::kPrefill)->host_blocks == 7);

  worker::v1::Load load;
  load.set_queued_tokens(-5);
  load.set_blocks_free(std::numeric_limits<int64_t>::max());
  CHECK(FromProto(load).queued_tokens == 0);
  CHECK(FromProto(load).blocks_free < std::numeric_limits<int64_t>::max() / 2);

  worker::v1::TokenUpdate early;
  early.set_queued_us(-7);
  CHECK(FromProto(std::move(early)).queued == absl::ZeroDuration());

  worker::v1::PrefillDone many;
  for (int i = 0; i < 1000; ++i) many.add_steps()->set_tokens(-1);
  CHECK(FromProto(many).steps.size() == kMaxPrefillSteps);
  CHECK(FromProto(many).steps[0].tokens == 0);
  CHECK(FromProto(many).steps[0].steps == 1);

  // The last field is no_room_to_decode.
  RequestFailed full{"r", absl::ResourceExhaustedError("full"), absl::Milliseconds(50), true};
  CHECK(FromProto(ToProto(full)).no_room_to_decode);
  CHECK(FromProto(ToProto(full)).status == full.status);

  worker::v1::RequestFailed failed;
  failed.set_code(1234);
  failed.set_retry_after_us(-1);
  CHECK(FromProto(failed).status.code() == absl::StatusCode::kUnknown);
  CHECK(FromProto(failed).retry_after == absl::ZeroDuration());
}

TEST_CASE("A worker's load survives the wire") {
  const WorkerLoad load = FromProto(ToProto(WorkerLoad{.running_requests = 1,
                                                       .queued_requests = 2,
                                                       .queued_tokens = 3,
                                                       .blocks_free = 4,
                                                       .blocks_cached = 5,
                                                       .blocks_quarantined = 6,
                                                       .draining = true,
                                                       .steps = 7,
                                                       .step_time = absl::Microseconds(8),
                                                       .step_forecast = absl::Microseconds(9),
                                                       .longest_wait = absl::Microseconds(10),
                                                       .commands = 11}));
  CHECK(load.running_requests == 1);
  CHECK(load.queued_requests == 2);
  CHECK(load.queued_tokens == 3);
  CHECK(load.blocks_free == 4);
  CHECK(load.blocks_cached == 5);
  CHECK(load.blocks_quarantined == 6);
  CHECK(load.draining);
  CHECK(load.steps == 7);
  CHECK(load.step_time == absl::Microseconds(8));
  CHECK(load.step_forecast == absl::Microseconds(9));
  CHECK(load.longest_wait == absl::Microseconds(10));
  CHECK(load.commands == 11);
  CHECK_FALSE(FromProto(ToProto(WorkerLoad{})).commands.has_value());
}

TEST_CASE("FromProto names both versions when a worker has another protocol version") {
  worker::v1::WorkerInfo info;
  const auto refusal = [&](uint32_t version) {
    info.set_version(version);
    const absl::Status status = FromProto(info, WorkerRole::kPrefill).status();
    CHECK(absl::IsFailedPrecondition(status));
    return std::string(status.message());
  };
  const std::string rest = absl::StrCat(", expected ", kWorkerProtocolVersion,
                                        ": all processes of a cluster must run the same release of Baton");
  CHECK(refusal(kWorkerProtocolVersion + 1) == absl::StrCat("protocol version ", kWorkerProtocolVersion + 1, rest));
  CHECK(refusal(0) == "protocol version 0 (the worker is older than this check)" + rest);
}

}  // namespace
}  // namespace baton
