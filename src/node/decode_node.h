// A decode worker with its services and its gRPC server, assembled from concrete parts.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "engine/decode/worker.h"
#include "node/worker_parts.h"
#include "rpc/grpc_server.h"
#include "shell/decode_service.h"
#include "shell/kv_transfer_service.h"
#include "shell/process_watch.h"
#include "text/tokenizer.h"

namespace baton {

struct DecoderParts {
  // Must outlive the DecodeNode.
  const Tokenizer& tokenizer;
  const Digest& digest;  // of the decoder's own weights
  // Samples on up to `threads` threads. May be empty.
  ParallelFor parallel_for;
};

class DecodeNode {
 public:
  // Like PrefillNode::Start. `parts.digest` names the prefill module whose KV the worker accepts.
  static absl::StatusOr<std::unique_ptr<DecodeNode>> Start(const NodeParts& parts, DecoderParts decoder,
                                                           const std::string& listen,
                                                           const std::string& in_process_name);
  ~DecodeNode() { Shutdown(absl::ZeroDuration()); }

  GrpcServer& server() { return *server_; }
  // Blocks if the worker hangs. Thread-safe.
  void CheckAlive() const { static_cast<void>(worker_->Load()); }
  // Refuses new requests, lets running ones finish within `grace`, fails the rest. Idempotent.
  void Shutdown(absl::Duration grace);

 private:
  explicit DecodeNode(const NodeParts& parts)
      : service_(parts.metrics, parts.model_name, parts.options.common.vllm_metrics) {}

  // Declared first, because the members below write through it.
  std::optional<WriteGuard> guard_;
  DecodeService service_;
  KvTransferService kv_service_;
  std::unique_ptr<DecodeWorker> worker_;
  std::optional<ProcessWatch> watch_;  // calls worker_
  std::unique_ptr<GrpcServer> server_;
};

}  // namespace baton
