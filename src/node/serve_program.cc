// The program `baton serve`: all roles in one process.
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/status.h"
#include "base/strings.h"
#include "frontend/tools/tool_format.h"
#include "model/prefill_module.h"
#include "model/served_model.h"
#include "node/decode_node.h"
#include "node/prefill_node.h"
#include "node/program.h"
#include "node/programs.h"
#include "node/router_node.h"
#include "node/transports.h"
#include "node/worker_backend.h"

namespace baton {
namespace {

constexpr char kPrefillName[] = "in-process:prefill";

// A decode worker of this process. The node is declared last, so that it is destroyed before its
// parts.
struct Decoder {
  std::string name;
  ModelConfig config;
  Digest digest{};  // of the decoder's weights
  std::unique_ptr<Tokenizer> tokenizer;
  Transports transports;
  WorkerBackend made;
  std::unique_ptr<DecodeNode> node;

  WorkerAddress address() const { return "in-process:decode:" + name; }
};

// Loads one decoder, whose weights are those of `model`. `first` is the decoder of the model
// itself, with which the new one must share KV. It is null when loading that first decoder.
absl::StatusOr<Decoder> LoadDecoder(const WorkerOptions& options, const std::shared_ptr<InProcessNetwork>& network,
                                    LoadedModel& model, const Decoder* first) {
  Decoder decoder;
  decoder.name = ModelName(options.model);
  decoder.config = model.weights->config;
  decoder.digest = model.weights->digest;
  ASSIGN_OR_RETURN(decoder.tokenizer, LoadTokenizer(options.model, model));
  if (first != nullptr) {
    const absl::Status status = CheckSharesKv({first->config, *first->tokenizer}, {decoder.config, *decoder.tokenizer});
    if (!status.ok()) return absl::InvalidArgumentError(StrCat("decoder ", options.model, ": ", Message(status)));
  }
  decoder.transports = MakeInProcessTransports(options, network);
  if (!options.common.check) {
    // The argument `true` requests the LM head.
    ASSIGN_OR_RETURN(decoder.made, MakeBackend(model, options, true, decoder.transports));
  }
  return decoder;
}

// Loads the decoder of the model itself and all decoders that share its KV.
absl::StatusOr<std::vector<Decoder>> LoadDecoders(const ServeOptions& options, LoadedModel& model,
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

}  // namespace

absl::Status RunServe(ServeOptions options, ShutdownSignal& signal) {
  RETURN_IF_ERROR(ValidateAccess(options.router));
  WarnIfKeysUnencrypted(options.router);
  options.worker.common.check = options.router.common.check;
  options.worker.common.vllm_metrics = options.router.common.vllm_metrics;
  options.router.models = options.decoders;
  options.router.models.insert(options.router.models.begin(), options.worker.model);
  RETURN_IF_ERROR(ReadModelNames(options.router).status());
  const Workers workers{.prefill = 1, .decode = 1 + static_cast<int>(options.decoders.size())};
  ASSIGN_OR_RETURN(LoadedModel model, LoadModel(options.worker, workers));
  for (const std::string& directory : options.decoders) RETURN_IF_ERROR(CheckModelDirectory("decoder", directory));
  ASSIGN_OR_RETURN(std::vector<ServedModel> served, LoadServedModels(options.router.models));
  for (ServedModel& each : served) DropUnknownToolTemplate(each);
  const auto network = std::make_shared<InProcessNetwork>();
  const SteadyClock clock;
  Metrics metrics;
  ThreadPool sampling(Threads(options.worker));
  // Declared after the objects that the nodes use, because the nodes' threads run until `decoders`
  // is destroyed.
  ASSIGN_OR_RETURN(std::vector<Decoder> decoders, LoadDecoders(options, model, network));
  if (options.router.common.check) return KeyRing::Load(options.router.keys).status();

  const Transports transports = MakeInProcessTransports(options.worker, network);
  // The argument `false` omits the LM head, because a prefill worker never samples.
  ASSIGN_OR_RETURN(const WorkerBackend prefill, MakeBackend(model, options.worker, false, transports));
  const Digest digest = model.weights->digest;
  model.weights.reset();  // the backends have packed copies
  std::map<WorkerAddress, DecodeNode*> nodes;
  for (Decoder& decoder : decoders) {
    const NodeParts parts{options.worker,          decoder.name, decoder.config, digest, *decoder.made.backend,
                          *decoder.made.connector, clock,        metrics};
    ASSIGN_OR_RETURN(
        decoder.node,
        DecodeNode::Start(parts, {*decoder.tokenizer, decoder.digest, ParallelForOn(sampling)}, "", decoder.address()));
    nodes[decoder.address()] = decoder.node.get();
    options.router.decode_workers.push_back(decoder.address());
  }
  const NodeParts prefill_parts{options.worker, decoders[0].name, decoders[0].config,
                                digest,         *prefill.backend, *prefill.connector,
                                clock,          metrics};
  const auto reach_decode = [&](const WorkerAddress& address) {
    return nodes.at(address)->server().InProcessChannel();
  };
  ASSIGN_OR_RETURN(const auto prefill_node, PrefillNode::Start(prefill_parts, "", kPrefillName, reach_decode));

  options.router.prefill_workers = {kPrefillName};
  const auto reach = [&](const WorkerAddress& address) {
    return address == kPrefillName ? prefill_node->server().InProcessChannel() : reach_decode(address);
  };
  ASSIGN_OR_RETURN(const auto node, RouterNode::Start(options.router, std::move(served), reach, clock, metrics));
  // Start the metrics server last. A free port for metrics must not be the port that --listen
  // names.
  RETURN_IF_ERROR(ServeMetrics(metrics, options.router.common));
  const auto check_alive = [&] {
    for (const Decoder& decoder : decoders) decoder.node->CheckAlive();
    prefill_node->CheckAlive();
    node->CheckAlive();
  };
  const auto shutdown = [&] { node->Shutdown(absl::Seconds(options.router.common.grace_seconds)); };
  RunUntilSignal(signal, {node->server().address(), check_alive, shutdown, ReloadOf(options.router, *node)});
  return absl::OkStatus();
}

}  // namespace baton
