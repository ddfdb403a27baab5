#include "rpc/kv_convert.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/status.h"
#include "rpc/worker_convert.h"

namespace baton {
namespace {

kv::v1::ReservationRef ToProto(const ReservationRef& ref) {
  kv::v1::ReservationRef proto;
  proto.set_id(ref.id.value());
  proto.set_generation(ref.generation.value());
  return proto;
}

ReservationRef FromProto(const kv::v1::ReservationRef& proto) {
  return {ReservationId(proto.id()), Generation(proto.generation())};
}

absl::Status CheckMultiple(absl::string_view field, const std::string& bytes, size_t size) {
  if (bytes.size() % size == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": expected a multiple of ", size, " bytes, got ", bytes.size()));
}

absl::Duration DurationFrom(int64_t us) { return absl::Microseconds(std::max<int64_t>(us, 0)); }

}  // namespace

kv::v1::LinkRequest ToProto(const LinkRequest& request) {
  kv::v1::LinkRequest proto;
  proto.set_version(request.version);
  proto.set_prefill_address(request.prefill_address);
  proto.set_prefill_incarnation(request.prefill_incarnation.value());
  proto.set_module_digest(ToBytes(request.module_digest));
  *proto.mutable_layout() = ToProto(request.layout);
  proto.set_numerics_id(request.numerics_id);
  proto.set_can_digest(request.can_digest);
  proto.set_can_show_right(request.supports_write_keys);
  proto.set_process(request.process);
  return proto;
}

absl::StatusOr<LinkRequest> FromProto(const kv::v1::LinkRequest& proto) {
  LinkRequest request;
  request.version = proto.version();
  // The receiver refuses any other version. The other fields may then have another meaning.
  if (request.version != kHandoffVersion) return request;
  request.prefill_address = proto.prefill_address();
  request.prefill_incarnation = Incarnation(proto.prefill_incarnation());
  ASSIGN_OR_RETURN(request.module_digest, DigestFrom(proto.module_digest(), "module_digest"));
  ASSIGN_OR_RETURN(request.layout, FromProto(proto.layout()));
  request.numerics_id = proto.numerics_id();
  request.can_digest = proto.can_digest();
  request.supports_write_keys = proto.can_show_right();
  request.process = proto.process();
  return request;
}

kv::v1::LinkReply ToProto(const LinkReply& reply) {
  kv::v1::LinkReply proto;
  proto.set_decode_incarnation(reply.decode_incarnation.value());
  proto.set_transport_descriptor(reply.transport_descriptor);
  proto.set_slab_blocks(reply.slab_blocks);
  proto.set_numerics_id(reply.numerics_id);
  proto.set_lease_us(absl::ToInt64Microseconds(reply.lease));
  proto.set_wants_digests(reply.wants_digests);
  proto.set_writer(reply.writer.value());
  return proto;
}

absl::StatusOr<LinkReply> FromProto(const kv::v1::LinkReply& proto) {
  if (proto.slab_blocks() < 1 || proto.lease_us() < 1) {
    return absl::InvalidArgumentError(absl::StrCat("link reply: expected slab_blocks and lease_us >= 1, got ",
                                                   proto.slab_blocks(), " and ", proto.lease_us()));
  }
  LinkReply reply;
  reply.decode_incarnation = Incarnation(proto.decode_incarnation());
  reply.transport_descriptor = proto.transport_descriptor();
  reply.slab_blocks = proto.slab_blocks();
  reply.numerics_id = proto.numerics_id();
  reply.lease = DurationFrom(proto.lease_us());
  reply.wants_digests = proto.wants_digests();
  reply.writer = WriterId(proto.writer());
  return reply;
}

kv::v1::ReserveRequest ToProto(const ReserveRequest& request) {
  kv::v1::ReserveRequest proto;
  proto.set_request_id(request.request_id);
  proto.set_writer(request.writer.value());
  std::string& keys = *proto.mutable_keys();
  keys.reserve(request.keys.size() * sizeof(BlockKey));
  for (const BlockKey& key : request.keys) keys.append(key.bytes.begin(), key.bytes.end());
  proto.set_kv_tokens(request.kv_tokens);
  proto.set_expected_new_tokens(request.expected_new_tokens);
  proto.set_cache_only(request.cache_only);
  proto.set_ends_with_process(request.ends_with_process);
  return proto;
}

absl::StatusOr<ReserveRequest> FromProto(const kv::v1::ReserveRequest& proto) {
  constexpr size_t kKeyBytes = sizeof(BlockKey::bytes);
  RETURN_IF_ERROR(CheckMultiple("keys", proto.keys(), kKeyBytes));
  ReserveRequest request;
  request.request_id = proto.request_id();
  request.writer = WriterId(proto.writer());
  request.keys.resize(proto.keys().size() / kKeyBytes);
  for (size_t i = 0; i < request.keys.size(); ++i) {
    std::memcpy(request.keys[i].bytes.data(), proto.keys().data() + i * kKeyBytes, kKeyBytes);
  }
  request.kv_tokens = proto.kv_tokens();
  request.expected_new_tokens = proto.expected_new_tokens();
  request.cache_only = proto.cache_only();
  request.ends_with_process = proto.ends_with_process();
  return request;
}

kv::v1::ReserveReply ToProto(const ReserveReply& reply) {
  kv::v1::ReserveReply proto;
  if (const auto* reserved = std::get_if<Reserved>(&reply)) {
    auto& out = *proto.mutable_reserved();
    *out.mutable_reservation() = ToProto(reserved->reservation);
    for (const MissingBlock& block : reserved->missing) {
      out.add_missing_index(block.index);
      out.add_missing_target(block.target.value());
    }
    if (reserved->write_key.has_value()) *out.mutable_right() = ToProto(*reserved->write_key);
  } else if (std::holds_alternative<Wait>(reply)) {
    proto.mutable_wait();
  } else {
    proto.mutable_never_fits()->set_reason(std::get<NeverFits>(reply).reason);
  }
  return proto;
}

absl::StatusOr<ReserveReply> FromProto(const kv::v1::ReserveReply& proto) {
  switch (proto.answer_case()) {
    case kv::v1::ReserveReply::kReserved: {
      const auto& in = proto.reserved();
      if (in.missing_index_size() != in.missing_target_size()) {
        return absl::InvalidArgumentError(absl::StrCat("reserve reply: ", in.missing_index_size(), " indices but ",
                                                       in.missing_target_size(), " targets"));
      }
      Reserved reserved{.reservation = FromProto(in.reservation()), .missing = {}};
      for (int i = 0; i < in.missing_index_size(); ++i) {
        reserved.missing.push_back({in.missing_index(i), BlockId(in.missing_target(i))});
      }
      if (in.has_right()) {
        ASSIGN_OR_RETURN(reserved.write_key, FromProto(in.right()));
      }
      return reserved;
    }
    case kv::v1::ReserveReply::kWait:
      return Wait{};
    case kv::v1::ReserveReply::kNeverFits:
      return NeverFits{proto.never_fits().reason()};
    case kv::v1::ReserveReply::ANSWER_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("reserve reply: has no answer");
}

kv::v1::WriteRight ToProto(const WriteKey& write_key) {
  kv::v1::WriteRight proto;
  proto.set_id(write_key.id);
  proto.set_key(write_key.bits.data(), write_key.bits.size());
  return proto;
}

absl::StatusOr<WriteKey> FromProto(const kv::v1::WriteRight& proto) {
  WriteKey write_key{.id = proto.id()};
  if (proto.key().size() != write_key.bits.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("write key: expected ", write_key.bits.size(), " bytes, got ", proto.key().size()));
  }
  std::memcpy(write_key.bits.data(), proto.key().data(), write_key.bits.size());
  return write_key;
}

absl::StatusOr<std::vector<BlockCopy>> CopiesOf(const kv::v1::WriteRequest& proto) {
  if (proto.target_size() != proto.bytes_size() || proto.target_size() > kMostWriteTargets) {
    return absl::InvalidArgumentError(absl::StrCat("write: ", proto.target_size(), " targets and ", proto.bytes_size(),
                                                   " lengths: expected equal numbers of both, at most ",
                                                   kMostWriteTargets));
  }
  const auto all = static_cast<int64_t>(proto.data().size());
  std::vector<BlockCopy> copies;
  int64_t at = 0;
  for (int i = 0; i < proto.bytes_size(); ++i) {
    const int64_t bytes = proto.bytes(i);
    if (bytes < 1 || bytes > all - at) break;
    copies.push_back({.source_offset = at, .target_offset = proto.target(i), .bytes = bytes});
    at += bytes;
  }
  if (std::ssize(copies) == proto.bytes_size() && at == all && all > 0) return copies;
  return absl::InvalidArgumentError(
      absl::StrCat("write: expected positive lengths with the sum ", all, ", the size of the data"));
}

kv::v1::CommitRequest ToProto(const Commit& commit) {
  kv::v1::CommitRequest proto;
  *proto.mutable_reservation() = ToProto(commit.reservation);
  proto.set_blocks_written(commit.blocks_written);
  std::string& digests = *proto.mutable_digests();
  digests.reserve(commit.digests.size() * sizeof(BlockDigest));
  for (const BlockDigest& digest : commit.digests) digests.append(digest.begin(), digest.end());
  if (commit.write_key.has_value()) *proto.mutable_right() = ToProto(*commit.write_key);
  return proto;
}

absl::StatusOr<Commit> FromProto(const kv::v1::CommitRequest& proto) {
  RETURN_IF_ERROR(CheckMultiple("digests", proto.digests(), sizeof(BlockDigest)));
  Commit commit{.reservation = FromProto(proto.reservation()), .blocks_written = proto.blocks_written()};
  commit.digests.resize(proto.digests().size() / sizeof(BlockDigest));
  if (!commit.digests.empty()) std::memcpy(commit.digests.data(), proto.digests().data(), proto.digests().size());
  if (proto.has_right()) {
    ASSIGN_OR_RETURN(commit.write_key, FromProto(proto.right()));
  }
  return commit;
}

kv::v1::ReleaseRequest ToProto(const Release& release) {
  kv::v1::ReleaseRequest proto;
  *proto.mutable_reservation() = ToProto(release.reservation);
  return proto;
}

Release FromProto(const kv::v1::ReleaseRequest& proto) { return {.reservation = FromProto(proto.reservation())}; }

kv::v1::HeartbeatRequest ToProto(const Heartbeat& heartbeat) {
  kv::v1::HeartbeatRequest proto;
  proto.set_writer(heartbeat.writer.value());
  for (const ReservationRef& ref : heartbeat.active) *proto.add_active() = ToProto(ref);
  return proto;
}

Heartbeat FromProto(const kv::v1::HeartbeatRequest& proto) {
  Heartbeat heartbeat{.writer = WriterId(proto.writer()), .active = {}};
  for (const auto& ref : proto.active()) heartbeat.active.push_back(FromProto(ref));
  return heartbeat;
}

kv::v1::HeartbeatReply ToProto(const HeartbeatReply& reply) {
  kv::v1::HeartbeatReply proto;
  for (const ReservationRef& ref : reply.revoked) *proto.add_revoked() = ToProto(ref);
  return proto;
}

HeartbeatReply FromProto(const kv::v1::HeartbeatReply& proto) {
  HeartbeatReply reply;
  for (const auto& ref : proto.revoked()) reply.revoked.push_back(FromProto(ref));
  return reply;
}

}  // namespace baton
