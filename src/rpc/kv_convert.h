// Converters between the protobuf messages of the KV hand-off and the structs of
// engine/handoff/messages.h. FromProto and CopiesOf treat the peer as hostile: they return
// INVALID_ARGUMENT with the name of the field.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "engine/handoff/messages.h"
#include "kv/slab.h"
#include "kv_transfer.pb.h"

namespace baton {

kv::v1::LinkRequest ToProto(const LinkRequest& request);
absl::StatusOr<LinkRequest> FromProto(const kv::v1::LinkRequest& proto);
kv::v1::LinkReply ToProto(const LinkReply& reply);
absl::StatusOr<LinkReply> FromProto(const kv::v1::LinkReply& proto);

kv::v1::ReserveRequest ToProto(const ReserveRequest& request);
absl::StatusOr<ReserveRequest> FromProto(const kv::v1::ReserveRequest& proto);
kv::v1::ReserveReply ToProto(const ReserveReply& reply);
absl::StatusOr<ReserveReply> FromProto(const kv::v1::ReserveReply& proto);

kv::v1::WriteRight ToProto(const WriteKey& write_key);
absl::StatusOr<WriteKey> FromProto(const kv::v1::WriteRight& proto);
// Upper bound on the number of targets of one WriteRequest.
inline constexpr int kMostWriteTargets = 4096;
// Returns the targets of a WriteRequest's data.
absl::StatusOr<std::vector<BlockCopy>> CopiesOf(const kv::v1::WriteRequest& proto);

kv::v1::CommitRequest ToProto(const Commit& commit);
absl::StatusOr<Commit> FromProto(const kv::v1::CommitRequest& proto);
kv::v1::ReleaseRequest ToProto(const Release& release);
Release FromProto(const kv::v1::ReleaseRequest& proto);
kv::v1::HeartbeatRequest ToProto(const Heartbeat& heartbeat);
Heartbeat FromProto(const kv::v1::HeartbeatRequest& proto);
kv::v1::HeartbeatReply ToProto(const HeartbeatReply& reply);
HeartbeatReply FromProto(const kv::v1::HeartbeatReply& proto);

}  // namespace baton
