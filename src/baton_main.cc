// baton: the server with all roles in one process (`serve`), and the client's commands. Under the
// names baton-prefill and baton-decode it is one worker. The router is a program of its own, which
// links without UCX.
#include "cli/cli.h"
#include "cli/drain_command.h"
#include "node/flags.h"
#include "node/named_worker.h"
#include "node/program.h"
#include "node/programs.h"

namespace baton {
namespace {

int Main(int argc, char** argv) {
  ShutdownSignal signal;  // must precede all threads
  CLI::App app("Baton: LLM inference with separate prefill and decode workers, for multi-agent work.", "baton");
  app.require_subcommand(1);
  ServeOptions serve;
  GenerateOptions generate;
  ClientOptions chat;
  StatusOptions status;
  TraceOptions trace;
  DrainOptions drain;
  CLI::App* serve_command = app.add_subcommand("serve", "router, prefill and decode in this process");
  AddServeFlags(*serve_command, serve);
  CLI::App* generate_command = app.add_subcommand("generate", "one answer from a running server");
  AddGenerateFlags(*generate_command, generate);
  CLI::App* chat_command = app.add_subcommand("chat", "a conversation with a running server");
  AddChatFlags(*chat_command, chat);
  AddStatusFlags(*app.add_subcommand("status", "the workers of a running router"), status);
  CLI::App* trace_command =
      app.add_subcommand("trace", "timeline of a workflow: when its agents waited, computed and decoded");
  AddTraceFlags(*trace_command, trace);
  CLI::App* drain_command =
      app.add_subcommand("drain", "moves the work of a worker to others, so that it can be stopped");
  AddDrainFlags(*drain_command, drain);
  const CLI::App* key_command =
      app.add_subcommand("key", "generates an API key and prints its line for the router's file of keys");
  if (const auto code = ParseFlags(app, argc, argv)) return *code;

  if (serve_command->parsed()) {
    return RunProgram("baton serve", serve.router.common, kCheckedByWorkers, [&] { return RunServe(serve, signal); });
  }
  // A client ends at once.
  signal.Release();
  if (generate_command->parsed()) return RunGenerate(generate);
  if (trace_command->parsed()) return RunTrace(trace);
  if (drain_command->parsed()) return RunDrain(drain);
  if (key_command->parsed()) return RunKey();
  return chat_command->parsed() ? RunChat(chat) : RunStatus(status);
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  if (const auto code = baton::RunNamedWorker(argc, argv)) return *code;
  return baton::Main(argc, argv);
}
