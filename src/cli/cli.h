// The client commands of `baton`: generate, chat, status, trace and key.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "base/ids.h"
#include "cli/server_options.h"
#include "inference.pb.h"
#include "model/sampling_params.h"

namespace baton {

struct ClientOptions {
  ServerOptions server;
  // Empty if the router serves only one model.
  std::string model;
  SamplingParams sampling;
  // The flags of sampling parameters. A parameter is sent only if its flag was given. Otherwise the
  // server's default applies.
  std::vector<std::pair<const CLI::Option*, const SamplingField*>> sampling_flags;
  std::string session;
};

struct GenerateOptions {
  ClientOptions client;
  std::string context;  // empty for none
  // At most one of `prompt`, `chat` and `ids` is given. Exactly one is given without a context.
  std::optional<std::string> prompt;
  std::optional<std::string> chat;
  std::string ids;  // "1,2,3"
  std::string workflow, agent;
  bool json = false;
};

struct TraceOptions {
  ServerOptions server;
  std::string workflow;
  std::string cache_salt;
  // Files to write. If both are empty, the trace is printed as text.
  std::string json, html;
};

struct StatusOptions {
  ServerOptions server;
  // Seconds between two answers. Empty for a single answer. A string, because CLI11 would count the
  // occurrences of a numeric flag.
  std::string watch;
};

void AddGenerateFlags(CLI::App& app, GenerateOptions& options);
void AddChatFlags(CLI::App& app, ClientOptions& options);
void AddTraceFlags(CLI::App& app, TraceOptions& options);
void AddStatusFlags(CLI::App& app, StatusOptions& options);

// Returns the sampling parameters that flags have set. REQUIRES: the CLI::App of the flags is
// alive.
v1::Sampling SamplingFrom(const ClientOptions& options);

// Each function returns the exit code: 0, or 1 after printing an error.
int RunGenerate(const GenerateOptions& options);
int RunChat(ClientOptions options);
int RunTrace(const TraceOptions& options);
int RunStatus(const StatusOptions& options);
int RunKey();  // generates an API key

}  // namespace baton
