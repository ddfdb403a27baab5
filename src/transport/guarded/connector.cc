#include "transport/guarded/connector.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "rpc/grpc_deadline.h"
#include "transport/descriptor_fields.h"
#include "transport/guarded/write_link.h"

namespace baton {
namespace {

constexpr uint64_t kMagic = 0x0001'4755'4e54'4142;            // "BATNUG" and the format's version
constexpr absl::Duration kConnectWithin = absl::Seconds(10);  // a loaded machine is slow to connect

struct GuardedPeer {
  WorkerAddress address;
  uint64_t slab_bytes = 0;
};

// Returns nullopt for a descriptor of another kind.
absl::StatusOr<std::optional<GuardedPeer>> Decode(std::string_view bytes) {
  ASSIGN_OR_RETURN(DescriptorReader reader, DescriptorReader::Open("KV", bytes));
  uint64_t magic = 0;
  RETURN_IF_ERROR(reader.Get(magic));
  if (magic != kMagic) return std::nullopt;
  GuardedPeer peer;
  RETURN_IF_ERROR(reader.Get(peer.slab_bytes));
  RETURN_IF_ERROR(reader.Get(peer.address, 1));
  RETURN_IF_ERROR(reader.End());
  if (peer.slab_bytes == 0 || peer.slab_bytes > uint64_t{1} << 46) {
    return reader.Malformed(absl::StrCat("a slab of ", peer.slab_bytes, " bytes"));
  }
  return peer;
}

// Returns true if the channel connects at the first attempt. One attempt is enough, because the
// peer has just answered a call.
bool Reached(grpc::Channel& channel) {
  const gpr_timespec deadline = DeadlineAfter(kConnectWithin);
  for (auto state = channel.GetState(true); state != GRPC_CHANNEL_READY; state = channel.GetState(true)) {
    if (state == GRPC_CHANNEL_TRANSIENT_FAILURE || !channel.WaitForStateChange(state, deadline)) return false;
  }
  return true;
}

}  // namespace

std::string GuardedDescriptor(const WorkerAddress& address, int64_t slab_bytes) {
  std::string out;
  PutField(out, kMagic);
  PutField(out, static_cast<uint64_t>(slab_bytes));
  PutField(out, address);
  return Sealed(std::move(out));
}

absl::StatusOr<std::unique_ptr<Link>> GuardedConnector::Connect(std::string_view peer_descriptor) {
  const absl::StatusOr<std::optional<GuardedPeer>> peer = Decode(peer_descriptor);
  const bool guarded = peer.ok() && peer->has_value();
  if (!guarded && options_.guarded_only) {
    return absl::FailedPreconditionError(
        "this prefill worker pushes KV only with write keys (--guard-kv), and the decode worker grants none: start the "
        "decode worker with --guard-kv as well");
  }
  if (!guarded) return unguarded_.Connect(peer_descriptor);
  const std::shared_ptr<grpc::Channel> channel = options_.reach((*peer)->address);
  if (!Reached(*channel)) {
    return absl::UnavailableError(absl::StrCat("cannot reach decode worker ", (*peer)->address, " by gRPC"));
  }
  return std::make_unique<KvWriteLink>(channel, KvWritePeer{.source = options_.source,
                                                            .plane_bytes = options_.layout.PlaneBytes(),
                                                            .target_bytes = static_cast<int64_t>((*peer)->slab_bytes),
                                                            .address = (*peer)->address});
}

}  // namespace baton
