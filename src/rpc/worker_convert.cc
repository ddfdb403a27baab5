#include "rpc/worker_convert.h"

#include <algorithm>
#include <limits>

#include "absl/strings/escaping.h"
#include "absl/strings/str_join.h"
#include "base/named_value.h"
#include "base/status.h"
#include "base/strings.h"
#include "rpc/grpc_status.h"
#include "rpc/sampling_convert.h"

namespace baton {
namespace {

// Upper bound on each dimension of a layout. Real models stay far below it, and products of
// dimensions cannot overflow.
constexpr int64_t kMaxDimension = 1 << 16;
constexpr absl::Duration kLongestLease = absl::Hours(1);

template <typename Field>
std::vector<TokenId> Tokens(const Field& field) {
  return {field.begin(), field.end()};
}

void ToProto(const RequestSpec& spec, worker::v1::RequestSpec& proto) {
  proto.mutable_tokens()->Assign(spec.tokens.begin(), spec.tokens.end());
  proto.set_cache_salt(spec.cache_domain);
  proto.set_tenant(spec.tenant);
  proto.set_priority(spec.priority);
  proto.set_handicap_us(absl::ToInt64Microseconds(spec.arrival_offset));
  *proto.mutable_sampling() = ToProto(spec.sampling);
  proto.set_traceparent(spec.traceparent);
  proto.set_generated(spec.generated);
  proto.set_expected_tokens(spec.expected_tokens);
}

RequestSpec FromProto(const worker::v1::RequestSpec& proto) {
  return {.tokens = Tokens(proto.tokens()),
          .generated = proto.generated(),
          .cache_domain = proto.cache_salt(),
          .tenant = proto.tenant(),
          .priority = proto.priority(),
          .arrival_offset = absl::Microseconds(proto.handicap_us()),
          .sampling = baton::FromProto(proto.sampling()),
          .expected_tokens = std::max(proto.expected_tokens(), 0),
          .traceparent = proto.traceparent()};
}

// Returns INVALID_ARGUMENT if this release has no format of that name.
absl::StatusOr<KvFormat> FormatFrom(const std::string& name) {
  if (const std::optional<KvFormat> format = KvFormatNamed(name)) return *format;
  return absl::InvalidArgumentError(
      absl::StrCat("layout: kv_format: expected ", absl::StrJoin(NamesIn(kKvFormats), " or "), ", got '",
                   absl::CHexEscape(name.substr(0, 64)), "'. All processes of a cluster must run the same release"));
}

TokenLogprobs FromProto(const v1::TokenLogprobs& proto) {
  TokenLogprobs result{.logprob = proto.logprob(), .top = {}, .rank = proto.rank()};
  const int n = std::min(proto.top_ids_size(), proto.top_logprobs_size());
  for (int i = 0; i < n; ++i) result.top.emplace_back(proto.top_ids(i), proto.top_logprobs(i));
  return result;
}

PromptLogprobs FromProto(const v1::PromptLogprobs& proto) {
  PromptLogprobs result{.tokens = {proto.token_ids().begin(), proto.token_ids().end()}, .logprobs = {}};
  result.logprobs.reserve(static_cast<size_t>(proto.logprobs_size()));
  for (const v1::TokenLogprobs& logprobs : proto.logprobs()) result.logprobs.push_back(FromProto(logprobs));
  return result;
}

worker::v1::KvLease ToProto(const KvLease& lease) {
  worker::v1::KvLease proto;
  proto.set_tokens(lease.tokens);
  proto.set_duration_us(absl::ToInt64Microseconds(lease.duration));
  proto.set_yields(lease.only_protects);
  return proto;
}

KvLease FromProto(const worker::v1::KvLease& proto) {
  return {.tokens = std::max(proto.tokens(), 0),
          .duration = std::clamp(absl::Microseconds(proto.duration_us()), absl::ZeroDuration(), kLongestLease),
          .only_protects = proto.yields()};
}

std::optional<FinishReason> FromProto(v1::FinishReason reason) {
  switch (reason) {
    case v1::FINISH_REASON_STOP:
      return FinishReason::kStop;
    case v1::FINISH_REASON_LENGTH:
      return FinishReason::kLength;
    case v1::FINISH_REASON_CANCELLED:
      return FinishReason::kCancelled;
    default:
      return std::nullopt;
  }
}

}  // namespace

worker::v1::KvLayout ToProto(const KvLayout& layout) {
  worker::v1::KvLayout proto;
  proto.set_layers(layout.layers);
  proto.set_kv_heads(layout.kv_heads);
  proto.set_head_dim(layout.head_dim);
  proto.set_kv_format(RowOf(layout.format).name);
  proto.set_order(static_cast<int32_t>(layout.order));
  return proto;
}

absl::StatusOr<KvLayout> FromProto(const worker::v1::KvLayout& proto) {
  for (const int64_t value : {proto.layers(), proto.kv_heads(), proto.head_dim()}) {
    if (value < 1 || value > kMaxDimension) {
      return absl::InvalidArgumentError(absl::StrCat("layout: expected dimensions in [1, ", kMaxDimension, "], got ",
                                                     proto.layers(), ", ", proto.kv_heads(), ", ", proto.head_dim()));
    }
  }
  if (proto.order() < 0 || proto.order() > static_cast<int32_t>(KvOrder::kRows)) {
    return absl::InvalidArgumentError(absl::StrCat("layout: order: expected 0 or 1, got ", proto.order()));
  }
  ASSIGN_OR_RETURN(const KvFormat format, FormatFrom(proto.kv_format()));
  return KvLayout{.layers = proto.layers(),
                  .kv_heads = proto.kv_heads(),
                  .head_dim = proto.head_dim(),
                  .format = format,
                  .order = static_cast<KvOrder>(proto.order())};
}

absl::StatusOr<Digest> DigestFrom(const std::string& bytes, std::string_view field) {
  Digest digest;
  if (bytes.size() != digest.size()) {
    return absl::InvalidArgumentError(StrCat(field, ": expected ", digest.size(), " bytes, got ", bytes.size()));
  }
  std::ranges::copy(bytes, digest.begin());
  return digest;
}

std::string ToBytes(const Digest& digest) { return {digest.begin(), digest.end()}; }

worker::v1::WorkerInfo ToProto(const WorkerInfo& info) {
  worker::v1::WorkerInfo proto;
  proto.set_version(kWorkerProtocolVersion);
  proto.set_address(info.address);
  proto.set_incarnation(info.incarnation.value());
  proto.set_model(info.model);
  proto.set_module_digest(ToBytes(info.module_digest));
  proto.set_weights_digest(ToBytes(info.weights_digest));
  proto.set_numerics_id(info.numerics_id);
  *proto.mutable_layout() = ToProto(info.layout);
  proto.set_blocks_total(info.blocks_total);
  proto.set_context(info.context);
  proto.set_staging_blocks(info.staging_blocks);
  proto.set_host_blocks(info.host_blocks);
  proto.set_max_batch(info.max_batch);
  return proto;
}

absl::StatusOr<WorkerInfo> FromProto(const worker::v1::WorkerInfo& proto, WorkerRole role) {
  if (proto.version() != kWorkerProtocolVersion) {
    return absl::FailedPreconditionError(absl::StrCat(
        "protocol version ", proto.version(), proto.version() == 0 ? " (the worker is older than this check)" : "",
        ", expected ", kWorkerProtocolVersion, ": all processes of a cluster must run the same release of Baton"));
  }
  if (proto.address().empty()) return absl::InvalidArgumentError("address: expected host:port, got nothing");
  if (proto.blocks_total() < 1 || proto.context() < 1 || proto.max_batch() < 1) {
    return absl::InvalidArgumentError(absl::StrCat("expected blocks_total, context and max_batch >= 1, got ",
                                                   proto.blocks_total(), ", ", proto.context(), ", ",
                                                   proto.max_batch()));
  }
  WorkerInfo info;
  info.role = role;
  info.address = proto.address();
  info.incarnation = Incarnation(proto.incarnation());
  info.model = proto.model();
  ASSIGN_OR_RETURN(info.module_digest, DigestFrom(proto.module_digest(), "module_digest"));
  if (role == WorkerRole::kDecode) {
    ASSIGN_OR_RETURN(info.weights_digest, DigestFrom(proto.weights_digest(), "weights_digest"));
  }
  info.numerics_id = proto.numerics_id();
  ASSIGN_OR_RETURN(info.layout, FromProto(proto.layout()));
  info.blocks_total = proto.blocks_total();
  info.staging_blocks = std::clamp<int64_t>(proto.staging_blocks(), 0, int64_t{1} << 48);
  info.host_blocks = std::clamp<int64_t>(proto.host_blocks(), 0, std::min(info.staging_blocks, int64_t{1} << 32));
  info.context = proto.context();
  info.max_batch = proto.max_batch();
  return info;
}

worker::v1::Load ToProto(const WorkerLoad& load) {
  worker::v1::Load proto;
  proto.set_running_requests(load.running_requests);
  proto.set_queued_requests(load.queued_requests);
  proto.set_queued_tokens(load.queued_tokens);
  proto.set_blocks_free(load.blocks_free);
  proto.set_blocks_cached(load.blocks_cached);
  proto.set_blocks_quarantined(load.blocks_quarantined);
  proto.set_draining(load.draining);
  proto.set_steps(load.steps);
  proto.set_step_us(absl::ToInt64Microseconds(load.step_time));
  proto.set_step_forecast_us(absl::ToInt64Microseconds(load.step_forecast));
  proto.set_longest_wait_us(absl::ToInt64Microseconds(load.longest_wait));
  if (load.commands) proto.set_commands(*load.commands);
  return proto;
}

WorkerLoad FromProto(const worker::v1::Load& proto) {
  // Clamp counts, so that sums of many loads cannot overflow.
  const auto count = [](int64_t value) { return std::clamp<int64_t>(value, 0, int64_t{1} << 48); };
  return {.running_requests = std::max(proto.running_requests(), 0),
          .queued_requests = std::max(proto.queued_requests(), 0),
          .queued_tokens = count(proto.queued_tokens()),
          .blocks_free = count(proto.blocks_free()),
          .blocks_cached = count(proto.blocks_cached()),
          .blocks_quarantined = count(proto.blocks_quarantined()),
          .draining = proto.draining(),
          .steps = count(proto.steps()),
          .step_time = absl::Microseconds(count(proto.step_us())),
          .step_forecast = absl::Microseconds(count(proto.step_forecast_us())),
          .longest_wait = absl::Microseconds(count(proto.longest_wait_us())),
          .commands = proto.has_commands() ? std::optional(count(proto.commands())) : std::nullopt};
}

worker::v1::PrefillJob ToProto(const PrefillJob& job) {
  worker::v1::PrefillJob proto;
  proto.set_request_id(job.request_id);
  ToProto(job.spec, *proto.mutable_spec());
  proto.set_decode_worker(job.decode_worker);
  proto.set_open(job.streaming);
  *proto.mutable_lease() = ToProto(job.lease);
  return proto;
}

PrefillJob FromProto(const worker::v1::PrefillJob& proto) {
  return {.request_id = proto.request_id(),
          .spec = FromProto(proto.spec()),
          .decode_worker = proto.decode_worker(),
          .streaming = proto.open(),
          .lease = FromProto(proto.lease())};
}

worker::v1::PrefillAppend ToProto(const PrefillAppend& append) {
  worker::v1::PrefillAppend proto;
  proto.set_request_id(append.request_id);
  proto.mutable_tokens()->Assign(append.tokens.begin(), append.tokens.end());
  proto.set_restart(append.restart);
  proto.set_last(append.last);
  proto.set_expected_new_tokens(append.expected_new_tokens);
  proto.set_decode_worker(append.decode_worker);
  if (append.arrival_offset) proto.set_handicap_us(absl::ToInt64Microseconds(*append.arrival_offset));
  *proto.mutable_lease() = ToProto(append.lease);
  return proto;
}

PrefillAppend FromProto(const worker::v1::PrefillAppend& proto) {
  PrefillAppend append;
  append.request_id = proto.request_id();
  append.tokens = Tokens(proto.tokens());
  append.restart = proto.restart();
  append.last = proto.last();
  append.expected_new_tokens = std::max(proto.expected_new_tokens(), 0);
  append.decode_worker = proto.decode_worker();
  if (proto.has_handicap_us()) append.arrival_offset = absl::Microseconds(proto.handicap_us());
  append.lease = FromProto(proto.lease());
  return append;
}

worker::v1::PrefillDone ToProto(const PrefillDone& done) {
  worker::v1::PrefillDone proto;
  proto.set_request_id(done.request_id);
  proto.set_reservation_id(done.reservation.id.value());
  proto.set_generation(done.reservation.generation.value());
  proto.set_decode_incarnation(done.decode_incarnation.value());
  proto.set_blocks(done.blocks);
  proto.set_cached_tokens(done.cached_tokens);
  proto.set_shared_tokens(done.shared_tokens);
  proto.set_computed_tokens(done.computed_tokens);
  proto.set_held_tokens(done.held_tokens);
  proto.set_bytes_pushed(done.bytes_pushed);
  proto.set_queued_us(absl::ToInt64Microseconds(done.queued));
  proto.set_compute_us(absl::ToInt64Microseconds(done.compute));
  proto.set_copied_us(absl::ToInt64Microseconds(done.copied));
  proto.set_handoff_us(absl::ToInt64Microseconds(done.handoff));
  for (const PrefillStep& step : done.steps) {
    worker::v1::PrefillStep& out = *proto.add_steps();
    out.set_began_us(absl::ToInt64Microseconds(step.began));
    out.set_ended_us(absl::ToInt64Microseconds(step.ended));
    out.set_tokens(step.tokens);
    out.set_steps(step.steps);
  }
  return proto;
}

PrefillDone FromProto(const worker::v1::PrefillDone& proto) {
  PrefillDone done;
  done.request_id = proto.request_id();
  done.reservation = {ReservationId(proto.reservation_id()), Generation(proto.generation())};
  done.decode_incarnation = Incarnation(proto.decode_incarnation());
  done.blocks = proto.blocks();
  done.cached_tokens = proto.cached_tokens();
  done.shared_tokens = proto.shared_tokens();
  done.computed_tokens = proto.computed_tokens();
  done.held_tokens = proto.held_tokens();
  done.bytes_pushed = proto.bytes_pushed();
  done.queued = absl::Microseconds(proto.queued_us());
  done.compute = absl::Microseconds(proto.compute_us());
  done.copied = absl::Microseconds(proto.copied_us());
  done.handoff = absl::Microseconds(proto.handoff_us());
  const int steps = std::min(proto.steps_size(), static_cast<int>(kMaxPrefillSteps));
  for (int i = 0; i < steps; ++i) {
    const worker::v1::PrefillStep& step = proto.steps(i);
    done.steps.push_back({.began = absl::Microseconds(step.began_us()),
                          .ended = absl::Microseconds(step.ended_us()),
                          .tokens = std::max(step.tokens(), 0),
                          .steps = std::max(step.steps(), 1)});
  }
  return done;
}

worker::v1::DecodeJob ToProto(const DecodeJob& job) {
  worker::v1::DecodeJob proto;
  proto.set_request_id(job.request_id);
  ToProto(job.spec, *proto.mutable_spec());
  proto.set_reservation_id(job.reservation.id.value());
  proto.set_generation(job.reservation.generation.value());
  proto.set_decode_incarnation(job.decode_incarnation.value());
  proto.set_blocks(job.blocks);
  return proto;
}

DecodeJob FromProto(const worker::v1::DecodeJob& proto) {
  return {.request_id = proto.request_id(),
          .spec = FromProto(proto.spec()),
          .reservation = {ReservationId(proto.reservation_id()), Generation(proto.generation())},
          .decode_incarnation = Incarnation(proto.decode_incarnation()),
          .blocks = proto.blocks()};
}

worker::v1::KeepRoom ToProto(const KeepRoom& request) {
  worker::v1::KeepRoom proto;
  proto.set_request_id(request.request_id);
  proto.set_kv_tokens(request.kv_tokens);
  proto.set_expected_new_tokens(request.expected_new_tokens);
  proto.set_waited_us(absl::ToInt64Microseconds(request.waited));
  return proto;
}

KeepRoom FromProto(const worker::v1::KeepRoom& proto) {
  return {.request_id = proto.request_id(),
          .kv_tokens = std::max(proto.kv_tokens(), 0),
          .expected_new_tokens = std::max(proto.expected_new_tokens(), 0),
          .waited = absl::Microseconds(std::max<int64_t>(proto.waited_us(), 0))};
}

worker::v1::Room ToProto(const RoomReport& report) {
  worker::v1::Room proto;
  proto.set_requests(report.requests);
  proto.set_kept_request_id(report.kept);
  return proto;
}

RoomReport FromProto(const worker::v1::Room& proto) {
  return {.requests = std::max<int64_t>(proto.requests(), 0), .kept = proto.kept_request_id()};
}

worker::v1::TokenUpdate ToProto(const TokenUpdate& update) {
  worker::v1::TokenUpdate proto;
  ToProto(update, proto);
  return proto;
}

void ToProto(const TokenUpdate& update, worker::v1::TokenUpdate& proto) {
  proto.set_request_id(update.request_id);
  proto.mutable_tokens()->Assign(update.tokens.begin(), update.tokens.end());
  for (const TokenLogprobs& logprobs : update.logprobs) *proto.add_logprobs() = ToProto(logprobs);
  proto.set_text(update.text);
  if (update.finish) proto.set_finish(ToProto(*update.finish));
  if (update.queued) proto.set_queued_us(absl::ToInt64Microseconds(*update.queued));
  if (update.prompt) *proto.mutable_prompt_logprobs() = ToProto(*update.prompt);
}

TokenUpdate FromProto(worker::v1::TokenUpdate&& proto) {
  TokenUpdate update;
  update.request_id = std::move(*proto.mutable_request_id());
  update.tokens = Tokens(proto.tokens());
  for (const v1::TokenLogprobs& logprobs : proto.logprobs()) update.logprobs.push_back(FromProto(logprobs));
  update.text = std::move(*proto.mutable_text());
  update.finish = FromProto(proto.finish());
  if (proto.has_queued_us()) update.queued = absl::Microseconds(std::max<int64_t>(proto.queued_us(), 0));
  if (proto.has_prompt_logprobs()) update.prompt = FromProto(proto.prompt_logprobs());
  return update;
}

worker::v1::RequestFailed ToProto(const RequestFailed& failed) {
  worker::v1::RequestFailed proto;
  proto.set_request_id(failed.request_id);
  proto.set_code(static_cast<int>(failed.status.code()));
  proto.set_message(std::string(failed.status.message()));
  proto.set_retry_after_us(absl::ToInt64Microseconds(failed.retry_after));
  proto.set_no_room_to_decode(failed.no_room_to_decode);
  return proto;
}

RequestFailed FromProto(const worker::v1::RequestFailed& proto) {
  RequestFailed failed;
  failed.request_id = proto.request_id();
  failed.status = absl::Status(StatusCodeFrom(proto.code()), proto.message());
  failed.retry_after = absl::Microseconds(std::clamp<int64_t>(proto.retry_after_us(), 0, 60'000'000));
  failed.no_room_to_decode = proto.no_room_to_decode();
  return failed;
}

v1::PromptLogprobs ToProto(const PromptLogprobs& prompt) {
  v1::PromptLogprobs proto;
  proto.mutable_token_ids()->Assign(prompt.tokens.begin(), prompt.tokens.end());
  for (const TokenLogprobs& logprobs : prompt.logprobs) *proto.add_logprobs() = ToProto(logprobs);
  return proto;
}

v1::TokenLogprobs ToProto(const TokenLogprobs& logprobs) {
  v1::TokenLogprobs proto;
  proto.set_logprob(logprobs.logprob);
  proto.set_rank(logprobs.rank);
  for (const auto& [id, value] : logprobs.top) {
    proto.add_top_ids(id);
    proto.add_top_logprobs(value);
  }
  return proto;
}

v1::FinishReason ToProto(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return v1::FINISH_REASON_STOP;
    case FinishReason::kLength:
      return v1::FINISH_REASON_LENGTH;
    case FinishReason::kCancelled:
      return v1::FINISH_REASON_CANCELLED;
  }
  return v1::FINISH_REASON_UNSPECIFIED;
}

}  // namespace baton
