// The decode workers of `baton serve`.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/status.h"
#include "base/strings.h"
#include "model/served_model.h"
#include "server/decode_node.h"
#include "worker_parts.h"

namespace baton {

// One decode worker of this process. The node comes last: it ends before what it is made from.
struct Decoder {
  std::string name;
  ModelConfig config;
  Digest digest{};  // of its weights
  std::unique_ptr<Tokenizer> tokenizer;
  Transports transports;
  WorkerBackend made;
  std::unique_ptr<DecodeNode> node;

  WorkerAddress address() const { return "in-process:decode:" + name; }
};

// `first`: the model's own, whose KV this one is to share; null: it is that.
inline absl::StatusOr<Decoder> LoadDecoder(const WorkerOptions& options,
                                           const std::shared_ptr<InProcessNetwork>& network, const LoadedModel& model,
                                           const Decoder* first) {
  Decoder decoder;
  decoder.name = ModelName(options.model);
  decoder.config = model.weights->config;
  decoder.digest = model.weights->digest;
  ASSIGN_OR_RETURN(decoder.tokenizer, Tokenizer::Load(options.model));
  if (first != nullptr) {
    const absl::Status status = CheckSharesKv({first->config, *first->tokenizer}, {decoder.config, *decoder.tokenizer});
    if (!status.ok()) return absl::InvalidArgumentError(StrCat("decoder ", options.model, ": ", Message(status)));
  }
  decoder.transports = MakeInProcessTransports(options, network);
  if (!options.common.check) {
    ASSIGN_OR_RETURN(decoder.made, MakeBackend(model, options, /*lm_head=*/true, decoder.transports));
  }
  return decoder;
}

// The model's own decoder and those that share its KV.
inline absl::StatusOr<std::vector<Decoder>> LoadDecoders(const ServeOptions& options, const LoadedModel& model,
                                                         const std::shared_ptr<InProcessNetwork>& network) {
  std::vector<Decoder> decoders(1);
  ASSIGN_OR_RETURN(decoders[0], LoadDecoder(options.worker, network, model, nullptr));
  for (const std::string& directory : options.decoders) {
    WorkerOptions worker = options.worker;
    worker.model = directory;
    RETURN_IF_ERROR(Validate(worker));
    LoadedModel tuned = model.Places();
    ASSIGN_OR_RETURN(tuned.weights, LoadWeights(directory));
    ASSIGN_OR_RETURN(Decoder decoder, LoadDecoder(worker, network, tuned, &decoders[0]));
    decoders.push_back(std::move(decoder));
  }
  return decoders;
}

}  // namespace baton
