#include "node/decode_node.h"

#include <utility>

#include "base/status.h"
#include "rpc/tls.h"
#include "transport/guarded/connector.h"

namespace baton {
namespace {

constexpr absl::Duration kCloseDecodeStreams = absl::Seconds(1);

DecodeEngineOptions EngineOptions(const NodeParts& parts, const DecoderParts& decoder, const WorkerInfo& info) {
  DecodeEngineOptions options;
  options.handoff.module_digest = info.module_digest;
  options.handoff.layout = info.layout;
  options.handoff.numerics_id = info.numerics_id;
  options.handoff.incarnation = info.incarnation;
  options.handoff.transport_descriptor = parts.connector.Descriptor();
  options.handoff.verify = parts.options.verify_kv;
  options.model.tokenizer = &decoder.tokenizer;
  options.model.vocab = parts.config.vocab;
  options.model.eos_ids = parts.config.eos_ids;
  options.model.positions = parts.config.context;
  options.blocks = info.blocks_total;
  options.max_batch = info.max_batch;
  options.scoring = {.step_tokens = parts.options.score_tokens,
                     .step_time = absl::Milliseconds(parts.options.score_step_ms)};
  // A decoder with the prefill module's weights makes the same KV as a prefill worker.
  options.shares_output = decoder.digest == parts.digest;
  return options;
}

}  // namespace

absl::StatusOr<std::unique_ptr<DecodeNode>> DecodeNode::Start(const NodeParts& parts, DecoderParts decoder,
                                                              const std::string& listen,
                                                              const std::string& in_process_name) {
  std::unique_ptr<DecodeNode> node(new DecodeNode(parts));
  if (parts.options.guard_kv) {
    node->guard_.emplace(parts.backend.kv_slab(), parts.backend.kv_layout());
    node->kv_service_.Guard(*node->guard_);
  }
  ASSIGN_OR_RETURN(node->server_,
                   GrpcServer::Start(listen, GrpcServer::Audience::kWorkers, {&node->service_, &node->kv_service_},
                                     ServerCredentials(parts.options.common.peer)));
  WorkerAddress address = in_process_name;
  if (!listen.empty()) {
    ASSIGN_OR_RETURN(address, AdvertisedAddress(parts.options, node->server_->address()));
  }
  WorkerInfo info = Describe(parts, WorkerRole::kDecode, address, DrawIncarnation());
  info.weights_digest = decoder.digest;
  DecodeWorkerOptions options;
  options.engine = EngineOptions(parts, decoder, info);
  HandoffReceiverOptions& handoff = options.engine.handoff;
  if (parts.options.guard_kv) {
    handoff.guard = &*node->guard_;
    handoff.transport_descriptor = GuardedDescriptor(address, static_cast<int64_t>(parts.backend.kv_slab().size()));
  }
  options.parallel_for = std::move(decoder.parallel_for);
  options.sampling_threads = Threads(parts.options);
  node->worker_ = std::make_unique<DecodeWorker>(std::move(options), parts.backend, node->service_, parts.clock);
  node->watch_.emplace([worker = node->worker_.get()](const std::string& process) { worker->OnProcessEnd(process); });
  node->kv_service_.Watch(*node->watch_);
  node->kv_service_.Open(*node->worker_);
  node->service_.Open(*node->worker_, info);
  node->server_->SetServing(true);
  return node;
}

void DecodeNode::Shutdown(absl::Duration grace) {
  if (server_ != nullptr) server_->SetServing(false);
  service_.Drain();
  if (worker_ != nullptr) worker_->Shutdown(grace);
  service_.Close();
  if (server_ != nullptr) server_->Stop(kCloseDecodeStreams);
}

}  // namespace baton
