// A decode worker that serves: the worker, its services and its server, put together from concrete parts.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "engine/decode/worker.h"
#include "node/worker_parts.h"
#include "rpc/grpc_server.h"
#include "shell/decode_service.h"
#include "shell/kv_transfer_service.h"
#include "text/tokenizer.h"

namespace baton {

struct DecoderParts {
  const Tokenizer& tokenizer;  // must outlive it
  const Digest& digest;        // of its own weights
  ParallelFor parallel_for;    // samples on up to `threads` threads; may be empty
};

class DecodeNode {
 public:
  // As for PrefillNode; the digest is that of the prefill module whose KV it takes.
  static absl::StatusOr<std::unique_ptr<DecodeNode>> Start(const NodeParts& parts, DecoderParts decoder,
                                                           const std::string& listen,
                                                           const std::string& in_process_name);
  ~DecodeNode() { Shutdown(absl::ZeroDuration()); }

  GrpcServer& server() { return *server_; }
  // Returns unless the worker hangs. Thread-safe.
  void CheckAlive() const { static_cast<void>(worker_->Load()); }
  void Shutdown(absl::Duration grace);

 private:
  explicit DecodeNode(const NodeParts& parts)
      : service_(parts.metrics, parts.model_name, parts.options.common.vllm_metrics) {}

  std::optional<WriteGuard> guard_;  // what follows writes through it
  DecodeService service_;
  KvTransferService kv_service_;
  std::unique_ptr<DecodeWorker> worker_;
  std::unique_ptr<GrpcServer> server_;
};

}  // namespace baton
