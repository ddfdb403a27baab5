#include "node/program_flags.h"

#include "node/flags.h"

namespace baton {

std::optional<int> ParsePrefillFlags(int argc, const char* const* argv, WorkerOptions& options) {
  CLI::App app("Turns prompts into KV blocks and pushes them to decode workers.", "baton-prefill");
  AddPrefillFlags(app, options);
  return ParseFlags(app, argc, argv);
}

std::optional<int> ParseDecodeFlags(int argc, const char* const* argv, WorkerOptions& options) {
  CLI::App app("Turns KV blocks into tokens.", "baton-decode");
  AddDecodeFlags(app, options);
  return ParseFlags(app, argc, argv);
}

std::optional<int> ParseRouterFlags(int argc, const char* const* argv, RouterOptions& options,
                                    ReloadOptions& reload_options) {
  CLI::App app("Joins clients, prefill workers and decode workers.", "baton-router");
  AddFlags(app, options);
  if (const auto code = ParseFlags(app, argc, argv)) return code;
  if (app.count("--config") > 0) reload_options = [=] { return ReadRouterOptions(argc, argv); };
  return std::nullopt;
}

}  // namespace baton
