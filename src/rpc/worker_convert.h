// Converters between the protobuf messages of the worker protocol and Baton's structs. FromProto
// treats the peer as hostile: it returns INVALID_ARGUMENT with the name of the field, or clamps the
// value.
#pragma once

#include "absl/status/statusor.h"
#include "model/weights.h"
#include "request/answers.h"
#include "request/jobs.h"
#include "router/worker_state.h"
#include "worker.pb.h"

namespace baton {

// The version of proto/worker.proto. Every change of that file raises the version, and tools/tidy
// checks this by the digest below. A router refuses workers of another version, because all
// processes of a cluster run one version.
// proto/worker.proto: cfadfde6de9a8e8e
inline constexpr uint32_t kWorkerProtocolVersion = 12;

worker::v1::KvLayout ToProto(const KvLayout& layout);
absl::StatusOr<KvLayout> FromProto(const worker::v1::KvLayout& proto);
absl::StatusOr<Digest> DigestFrom(const std::string& bytes, std::string_view field);
std::string ToBytes(const Digest& digest);

worker::v1::WorkerInfo ToProto(const WorkerInfo& info);
// Returns FAILED_PRECONDITION if the worker has another protocol version. The message names both
// versions.
absl::StatusOr<WorkerInfo> FromProto(const worker::v1::WorkerInfo& proto, WorkerRole role);
worker::v1::Load ToProto(const WorkerLoad& load);
// Clamps negative counts to 0.
WorkerLoad FromProto(const worker::v1::Load& proto);

worker::v1::PrefillJob ToProto(const PrefillJob& job);
PrefillJob FromProto(const worker::v1::PrefillJob& proto);
worker::v1::PrefillAppend ToProto(const PrefillAppend& append);
PrefillAppend FromProto(const worker::v1::PrefillAppend& proto);
worker::v1::PrefillDone ToProto(const PrefillDone& done);
PrefillDone FromProto(const worker::v1::PrefillDone& proto);
worker::v1::DecodeJob ToProto(const DecodeJob& job);
DecodeJob FromProto(const worker::v1::DecodeJob& proto);
worker::v1::KeepRoom ToProto(const KeepRoom& request);
// Clamps negative numbers to 0.
KeepRoom FromProto(const worker::v1::KeepRoom& proto);
worker::v1::Room ToProto(const RoomReport& report);
// Clamps a negative number to 0.
RoomReport FromProto(const worker::v1::Room& proto);
worker::v1::TokenUpdate ToProto(const TokenUpdate& update);
// Converts into an empty message. Reuses the memory of that message, so that a recycled message
// allocates nothing.
void ToProto(const TokenUpdate& update, worker::v1::TokenUpdate& proto);
TokenUpdate FromProto(worker::v1::TokenUpdate&& proto);
worker::v1::RequestFailed ToProto(const RequestFailed& failed);
RequestFailed FromProto(const worker::v1::RequestFailed& proto);

v1::TokenLogprobs ToProto(const TokenLogprobs& logprobs);
v1::PromptLogprobs ToProto(const PromptLogprobs& prompt);
v1::FinishReason ToProto(FinishReason reason);

}  // namespace baton
