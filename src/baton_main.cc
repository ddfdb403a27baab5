// baton: all roles in one process (`serve`), and the client's side of the command line.
#include <map>

#include "base/clock.h"
#include "base/status.h"
#include "base/strings.h"
#include "serve_parts.h"
#include "server/cli.h"
#include "server/flags.h"
#include "server/prefill_node.h"
#include "server/program.h"
#include "server/router_node.h"
#include "server/status_command.h"

namespace baton {
namespace {

constexpr char kPrefillName[] = "in-process:prefill";

absl::Status Serve(ServeOptions options, ShutdownSignal& signal) {
  RETURN_IF_ERROR(ValidateAccess(options.router));
  WarnOfKeys(options.router);
  options.worker.common.check = options.router.common.check;
  options.worker.common.vllm_metrics = options.router.common.vllm_metrics;
  const Workers workers{.prefill = 1, .decode = 1 + static_cast<int>(options.decoders.size())};
  ASSIGN_OR_RETURN(LoadedModel model, LoadModel(options.worker, workers));
  options.router.models = options.decoders;
  options.router.models.insert(options.router.models.begin(), options.worker.model);
  ASSIGN_OR_RETURN(std::vector<ServedModel> served, LoadServedModels(options.router.models));
  const auto network = std::make_shared<InProcessNetwork>();
  const SteadyClock clock;
  Metrics metrics;
  ThreadPool sampling(Threads(options.worker));
  // After what its nodes use: their threads run until it is gone.
  ASSIGN_OR_RETURN(std::vector<Decoder> decoders, LoadDecoders(options, model, network));
  if (options.router.common.check) return KeyRing::Load(options.router.keys).status();

  const Transports transports = MakeInProcessTransports(options.worker, network);
  ASSIGN_OR_RETURN(const WorkerBackend prefill, MakeBackend(model, options.worker, /*lm_head=*/false, transports));
  const Digest digest = model.weights->digest;
  model.weights.reset();  // the backends have packed them
  std::map<WorkerAddress, DecodeNode*> nodes;
  for (Decoder& decoder : decoders) {
    const NodeParts parts{options.worker,          decoder.name, decoder.config, digest, *decoder.made.backend,
                          *decoder.made.connector, clock,        metrics};
    ASSIGN_OR_RETURN(decoder.node, DecodeNode::Start(parts, {*decoder.tokenizer, decoder.digest, SampleOn(sampling)},
                                                     "", decoder.address()));
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
  RETURN_IF_ERROR(ServeMetrics(metrics, options.router.common));
  ASSIGN_OR_RETURN(const auto node, RouterNode::Start(options.router, std::move(served), reach, clock, metrics));
  const auto check_alive = [&] {
    for (const Decoder& decoder : decoders) decoder.node->CheckAlive();
    prefill_node->CheckAlive();
    node->CheckAlive();
  };
  const auto shutdown = [&] { node->Shutdown(absl::Seconds(options.router.common.grace_seconds)); };
  RunUntilSignal(signal, {node->server().address(), check_alive, shutdown, ReloadOf(options.router, *node)});
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  ShutdownSignal signal;  // before any thread
  CLI::App app("Baton: LLM inference with prefill and decode apart, for many agents.", "baton");
  app.require_subcommand(1);
  ServeOptions serve;
  GenerateOptions generate;
  ClientOptions chat;
  StatusOptions status;
  TraceOptions trace;
  CLI::App* serve_command = app.add_subcommand("serve", "router, prefill and decode in this process");
  AddServeFlags(*serve_command, serve);
  CLI::App* generate_command = app.add_subcommand("generate", "one answer from a running server");
  AddGenerateFlags(*generate_command, generate);
  CLI::App* chat_command = app.add_subcommand("chat", "a conversation with a running server");
  AddChatFlags(*chat_command, chat);
  AddStatusFlags(*app.add_subcommand("status", "the workers of a running router"), status);
  CLI::App* trace_command = app.add_subcommand("trace", "when the agents of a workflow waited, computed and decoded");
  AddTraceFlags(*trace_command, trace);
  const CLI::App* key_command =
      app.add_subcommand("key", "draws an API key, and its line for the router's file of keys");
  if (const auto code = ParseFlags(app, argc, argv)) return *code;

  if (serve_command->parsed()) {
    return RunProgram("baton serve", serve.router.common, [&] { return Serve(serve, signal); });
  }
  signal.Release();  // a client ends at once
  if (generate_command->parsed()) return RunGenerate(generate);
  if (trace_command->parsed()) return RunTrace(trace);
  if (key_command->parsed()) return RunKey();
  return chat_command->parsed() ? RunChat(chat) : RunStatus(status);
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) { return baton::Main(argc, argv); }
