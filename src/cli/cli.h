// The client side of the `baton` command line: generate, chat, status, trace, key.
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
  std::string model;  // empty: the only one that is served
  SamplingParams sampling;
  // What is sent of it: a parameter without its flag has the server's default.
  std::vector<std::pair<const CLI::Option*, const SamplingField*>> sampling_flags;
  std::string session;
};

struct GenerateOptions {
  ClientOptions client;
  std::string context;                // empty: none
  std::optional<std::string> prompt;  // one of these three at most, and exactly one without a context
  std::optional<std::string> chat;
  std::string ids;  // "1,2,3"
  std::string workflow, agent;
  bool json = false;
};

struct TraceOptions {
  ServerOptions server;
  std::string workflow;
  std::string cache_salt;
  std::string json, html;  // files to write; both empty: text to the terminal
};

struct StatusOptions {
  ServerOptions server;
  std::string watch;  // seconds between two answers; empty: one answer. CLI11 would count a flag that is a number
};

void AddGenerateFlags(CLI::App& app, GenerateOptions& options);
void AddChatFlags(CLI::App& app, ClientOptions& options);
void AddTraceFlags(CLI::App& app, TraceOptions& options);
void AddStatusFlags(CLI::App& app, StatusOptions& options);

// The sampling parameters that were given by flags. REQUIRES: the app of the flags lives.
v1::Sampling SamplingFrom(const ClientOptions& options);

// Each returns the exit code: 0, or 1 after an error that was printed.
int RunGenerate(const GenerateOptions& options);
int RunChat(ClientOptions options);
int RunTrace(const TraceOptions& options);
int RunStatus(const StatusOptions& options);
int RunKey();  // draws an API key

}  // namespace baton
