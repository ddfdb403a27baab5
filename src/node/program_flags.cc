#include "node/program_flags.h"

#include "node/flags.h"

namespace baton {

std::optional<int> ParsePrefillFlags(int argc, const char* const* argv, WorkerOptions& options) {
  CLI::App app("Computes the KV blocks of prompts and pushes them to decode workers.", "baton-prefill");
  AddPrefillFlags(app, options);
  return ParseFlags(app, argc, argv);
}

std::optional<int> ParseDecodeFlags(int argc, const char* const* argv, WorkerOptions& options) {
  CLI::App app("Generates tokens from the KV blocks that prefill workers push.", "baton-decode");
  AddDecodeFlags(app, options);
  return ParseFlags(app, argc, argv);
}

std::optional<int> ParseRouterFlags(int argc, const char* const* argv, RouterOptions& options,
                                    ReloadOptions& reload_options) {
  CLI::App app("Connects clients to prefill workers and decode workers.", "baton-router");
  AddFlags(app, options);
  if (const auto code = ParseFlags(app, argc, argv)) return code;
  if (app.count("--config") > 0) reload_options = [=] { return ReadRouterOptions(argc, argv); };
  return std::nullopt;
}

}  // namespace baton
