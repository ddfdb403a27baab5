#include "node/prefill_node.h"

#include <utility>

#include "backend/fixed_cost.h"
#include "base/process_name.h"
#include "base/status.h"
#include "rpc/tls.h"
#include "shell/grpc_decode_peer.h"

namespace baton {
namespace {

constexpr absl::Duration kPeerTimeout = absl::Seconds(5);
constexpr absl::Duration kCloseStreams = absl::Seconds(1);

PrefillEngineOptions EngineOptions(const NodeParts& parts, const WorkerInfo& info) {
  PrefillEngineOptions options;
  options.blocks = info.blocks_total;
  options.vocab = parts.config.vocab;
  options.context = parts.config.context;
  options.step_tokens = parts.options.step_tokens;
  options.increment = parts.options.increment;
  options.fixed_tokens = FixedTokens(parts.config, parts.backend.kv_slab().on_host() ? kCpuRates : kGpuRates);
  options.streaming_step = absl::Milliseconds(parts.options.streaming_step_ms);
  options.max_requests = parts.options.max_requests;
  options.sender.self = {.version = kHandoffVersion,
                         .prefill_address = info.address,
                         .prefill_incarnation = info.incarnation,
                         .module_digest = info.module_digest,
                         .layout = info.layout,
                         .numerics_id = info.numerics_id,
                         .can_digest = true,
                         .supports_write_keys = true,
                         .process = OwnProcessName()};
  const absl::Duration silence = parts.options.peer_silence;
  options.sender.answer_within = silence > absl::ZeroDuration() ? silence : absl::InfiniteDuration();
  return options;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PrefillNode>> PrefillNode::Start(const NodeParts& parts, const std::string& listen,
                                                                const std::string& in_process_name,
                                                                ChannelFactory reach_decode) {
  std::unique_ptr<PrefillNode> node(new PrefillNode(parts));
  ASSIGN_OR_RETURN(node->server_, GrpcServer::Start(listen, GrpcServer::Audience::kWorkers, {&node->service_},
                                                    ServerCredentials(parts.options.common.peer)));
  WorkerAddress address = in_process_name;
  if (!listen.empty()) {
    ASSIGN_OR_RETURN(address, AdvertisedAddress(parts.options, node->server_->address()));
  }
  WorkerInfo info = Describe(parts, WorkerRole::kPrefill, address, DrawIncarnation());
  PrefillEngineOptions options = EngineOptions(parts, info);
  const int64_t block_bytes = info.layout.BlockBytes();
  ASSIGN_OR_RETURN(options.staging, Staging(parts.options, block_bytes));
  info.staging_blocks = options.staging.host + options.staging.disk;
  info.host_blocks = options.staging.host;
  if (options.staging.host > 0) {
    ASSIGN_OR_RETURN(node->staging_, StagingStore::Create(options.staging, block_bytes, parts.backend.kv_slab(),
                                                          parts.options.kv_disk_dir));
  }
  node->guarded_connector_ = std::make_unique<GuardedConnector>(
      parts.connector, GuardedConnectorOptions{parts.backend.kv_slab(), parts.backend.kv_layout(), reach_decode,
                                               parts.options.guard_kv});
  node->connector_ = std::make_unique<MeasuredConnector>(*node->guarded_connector_, parts.clock, parts.metrics);
  node->worker_ = std::make_unique<PrefillWorker>(
      std::move(options),
      PrefillWorkerParts{parts.backend, *node->connector_, parts.clock, node->service_,
                         [reach = std::move(reach_decode)](const WorkerAddress& decode) -> std::unique_ptr<DecodePeer> {
                           return std::make_unique<GrpcDecodePeer>(reach(decode), kPeerTimeout);
                         },
                         node->staging_.get()});
  node->service_.Open(*node->worker_, info);
  node->server_->SetServing(true);
  return node;
}

void PrefillNode::Shutdown(absl::Duration grace) {
  if (server_ != nullptr) server_->SetServing(false);
  service_.Drain();
  if (worker_ != nullptr) worker_->Shutdown(grace);
  service_.Close();
  if (server_ != nullptr) server_->Stop(kCloseStreams);
}

}  // namespace baton
