// baton: all roles in one process (`serve`), and the client's side of the command line.
#include "base/clock.h"
#include "base/status.h"
#include "cpu_parts.h"
#include "server/cli.h"
#include "server/decode_node.h"
#include "server/flags.h"
#include "server/prefill_node.h"
#include "server/program.h"
#include "server/router_node.h"
#include "transport/in_process_transport.h"

namespace baton {
namespace {

constexpr char kPrefillName[] = "in-process:prefill";
constexpr char kDecodeName[] = "in-process:decode";

absl::Status Serve(RouterOptions router_options, const WorkerOptions& options, ShutdownSignal& signal) {
  ASSIGN_OR_RETURN(LoadedModel model, LoadModel(options));
  std::vector<ServedModel> served(1);
  ASSIGN_OR_RETURN(served[0], LoadServedModel(options.model));
  ASSIGN_OR_RETURN(const auto tokenizer, Tokenizer::Load(options.model));  // the decode worker's own
  if (router_options.common.check) return absl::OkStatus();

  const SteadyClock clock;
  Metrics metrics;
  const auto network = std::make_shared<InProcessNetwork>();
  InProcessTransport prefill_transport(network), decode_transport(network);
  ASSIGN_OR_RETURN(const auto prefill, MakeBackend(model, options, /*lm_head=*/false, prefill_transport));
  ASSIGN_OR_RETURN(const auto decode, MakeBackend(model, options, /*lm_head=*/true, decode_transport));
  const std::string name = served[0].name;
  const ModelConfig config = model.weights->config;
  const Digest digest = model.weights->digest;
  model.weights.reset();  // both backends have packed them

  ThreadPool sampling(Threads(options));
  const NodeParts decode_parts{options, name, config, digest, *decode, decode_transport, clock, metrics};
  ASSIGN_OR_RETURN(const auto decode_node,
                   DecodeNode::Start(decode_parts, *tokenizer, SampleOn(sampling), "", kDecodeName));
  const NodeParts prefill_parts{options, name, config, digest, *prefill, prefill_transport, clock, metrics};
  const auto reach_decode = [&](const WorkerAddress&) { return decode_node->server().InProcessChannel(); };
  ASSIGN_OR_RETURN(const auto prefill_node, PrefillNode::Start(prefill_parts, "", kPrefillName, reach_decode));

  router_options.prefill_workers = {kPrefillName};
  router_options.decode_workers = {kDecodeName};
  const auto reach = [&](const WorkerAddress& address) {
    return (address == kDecodeName ? decode_node->server() : prefill_node->server()).InProcessChannel();
  };
  RETURN_IF_ERROR(ServeMetrics(metrics, router_options.common));
  ASSIGN_OR_RETURN(const auto node, RouterNode::Start(router_options, std::move(served), reach, clock, metrics));
  RunUntilSignal(signal, node->server().address());
  node->Shutdown(absl::Seconds(router_options.common.grace_seconds));
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  ShutdownSignal signal;  // before any thread
  CLI::App app("Baton: LLM inference with prefill and decode apart, for many agents.", "baton");
  app.require_subcommand(1);
  RouterOptions router;
  WorkerOptions worker;
  GenerateOptions generate;
  ClientOptions chat, status;
  TraceOptions trace;
  CLI::App* serve_command = app.add_subcommand("serve", "router, prefill and decode in this process");
  AddServeFlags(*serve_command, router, worker);
  CLI::App* generate_command = app.add_subcommand("generate", "one answer from a running server");
  AddGenerateFlags(*generate_command, generate);
  CLI::App* chat_command = app.add_subcommand("chat", "a conversation with a running server");
  AddChatFlags(*chat_command, chat);
  AddStatusFlags(*app.add_subcommand("status", "the workers of a running router"), status);
  CLI::App* trace_command = app.add_subcommand("trace", "when the agents of a workflow waited, computed and decoded");
  AddTraceFlags(*trace_command, trace);
  if (const auto code = ParseFlags(app, argc, argv)) return *code;

  if (serve_command->parsed()) {
    return RunProgram("baton serve", router.common, [&] { return Serve(router, worker, signal); });
  }
  signal.Release();  // a client ends at once
  if (generate_command->parsed()) return RunGenerate(generate);
  if (trace_command->parsed()) return RunTrace(trace);
  return chat_command->parsed() ? RunChat(chat) : RunStatus(status);
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) { return baton::Main(argc, argv); }
