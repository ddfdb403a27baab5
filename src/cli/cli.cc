#include "cli/cli.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <functional>
#include <iomanip>
#include <iostream>
#include <optional>
#include <sstream>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "base/strings.h"
#include "cli/flag_names.h"
#include "cli/router_call.h"
#include "cli/trace_layout.h"
#include "cli/trace_render.h"
#include "frontend/api_keys.h"
#include "grpcpp/grpcpp.h"
#include "inference.grpc.pb.h"
#include "nlohmann/json.hpp"
#include "node/flags.h"
#include "rpc/grpc_status.h"
#include "rpc/sampling_convert.h"

namespace baton {
namespace {

struct CliAnswer {
  std::string request_id;
  std::string text;
  std::vector<TokenId> token_ids;
  v1::Final final;
  absl::Status status;
  absl::Duration retry_after;
};

v1::GenerateRequest RequestFrom(const ClientOptions& options) {
  v1::GenerateRequest request;
  request.set_model(options.model);
  request.set_session_id(options.session);
  *request.mutable_sampling() = SamplingFrom(options);
  return request;
}

// Sends a request and reads the whole answer. Passes each piece of text to `on_text` as it arrives.
// Errors name the flags.
CliAnswer Generate(v1::Inference::Stub& stub, const v1::GenerateRequest& request, const ServerOptions& server,
                   const FlagNames& flags, const std::function<void(const std::string&)>& on_text) {
  CliAnswer answer;
  grpc::ClientContext context;
  Authorize(context, server);
  const auto reader = stub.Generate(&context, request);
  v1::GenerateResponse response;
  while (reader->Read(&response)) {
    if (!response.request_id().empty()) answer.request_id = response.request_id();
    answer.text += response.text();
    answer.token_ids.insert(answer.token_ids.end(), response.token_ids().begin(), response.token_ids().end());
    if (response.has_final()) answer.final = response.final();
    if (!response.text().empty()) on_text(response.text());
  }
  answer.status = NameFlag(Explain(FromGrpc(reader->Finish()), server), flags);
  answer.retry_after = RetryAfterOf(context);
  return answer;
}

const char* ReasonName(v1::FinishReason reason) {
  switch (reason) {
    case v1::FINISH_REASON_STOP:
      return "stop";
    case v1::FINISH_REASON_LENGTH:
      return "length";
    case v1::FINISH_REASON_CANCELLED:
      return "cancelled";
    default:
      return "unknown";
  }
}

nlohmann::ordered_json ToJson(const CliAnswer& answer) {
  nlohmann::ordered_json json;
  json["request_id"] = answer.request_id;
  json["text"] = answer.text;
  json["token_ids"] = answer.token_ids;
  if (!answer.status.ok()) {
    json["error"] = {{"code", absl::StatusCodeToString(answer.status.code())},
                     {"message", std::string(Message(answer.status))},
                     {"retry_after_ms", absl::ToInt64Milliseconds(answer.retry_after)}};
    return json;
  }
  const v1::Usage& usage = answer.final.usage();
  const v1::Timings& timings = answer.final.timings();
  json["finish_reason"] = ReasonName(answer.final.finish_reason());
  json["usage"] = {{"prompt_tokens", usage.prompt_tokens()},
                   {"cached_tokens", usage.cached_tokens()},
                   {"completion_tokens", usage.completion_tokens()}};
  if (answer.final.context_length() > 0) {
    json["context"] = {{"length", answer.final.context_length()}, {"lease_ms", answer.final.lease_ms()}};
  }
  for (int i = 0; i < v1::Timings::descriptor()->field_count(); ++i) {
    const google::protobuf::FieldDescriptor& field = *v1::Timings::descriptor()->field(i);
    json["timings"][std::string(field.name())] = v1::Timings::GetReflection()->GetDouble(timings, &field);
  }
  return json;
}

void PrintSummary(const v1::Final& final) {
  std::cerr << std::fixed << std::setprecision(0) << "[" << final.usage().prompt_tokens() << " prompt tokens, "
            << final.usage().cached_tokens() << " cached; " << final.usage().completion_tokens() << " generated; first "
            << final.timings().first_token_ms() << " ms, total " << final.timings().total_ms() << " ms; "
            << ReasonName(final.finish_reason());
  if (final.context_length() > 0) {
    std::cerr << "; the context has " << final.context_length() << " tokens, kept for " << final.lease_ms() / 1000
              << " s";
  }
  std::cerr << "]\n";
}

void PrintNow(const std::string& text) { std::cout << text << std::flush; }

v1::ChatMessage MessageOf(const std::string& role, const std::string& content) {
  v1::ChatMessage message;
  message.set_role(role);
  message.set_content(content);
  return message;
}

// Parses "1,2,3". Prints an error and returns nullopt for any other text.
std::optional<std::vector<int32_t>> ParseIds(const std::string& text) {
  std::vector<int32_t> ids;
  for (const absl::string_view word : absl::StrSplit(text, ',')) {
    if (!absl::SimpleAtoi(word, &ids.emplace_back())) {
      std::cerr << "baton: --ids: expected comma-separated integers, got '" << word << "' as number " << ids.size()
                << "\n";
      return std::nullopt;
    }
  }
  return ids;
}

absl::Status WriteFile(const std::string& file, const std::string& text) {
  std::ofstream out(file, std::ios::binary);
  out << text << std::flush;
  if (out) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("cannot write '", file, "': ", std::strerror(errno)));
}

const CLI::Validator kSeed(
    [](std::string& text) -> std::string {
      uint64_t seed = 0;
      return absl::SimpleAtoi(text, &seed) ? "" : "expected an integer from 0 to 2^64 - 1, got '" + text + "'";
    },
    "SEED");

TokenBias ReadBias(const std::string& text) {
  const size_t colon = text.find(':');
  TokenBias bias;
  const bool reads = colon != text.npos && absl::SimpleAtoi(text.substr(0, colon), &bias.id) &&
                     absl::SimpleAtof(text.substr(colon + 1), &bias.bias);
  if (!reads) throw CLI::ValidationError("expected ID:BIAS, such as 42:-5, got '" + text + "'");
  return bias;
}

// Adds the flag of one sampling parameter. The type of its value selects the kind of flag.
struct SamplingFlag {
  CLI::App& app;
  const SamplingField& field;
  const std::string flag;
  const std::string help;

  // The range applies to the number as given, which may have more digits than a float.
  CLI::Option* operator()(float& value) const {
    const auto set = [&value, &field = field, flag = flag](double number) {
      const absl::StatusOr<float> nearest = ToFloat(field, flag, number);
      if (!nearest.ok()) throw CLI::ValidationError(std::string(Message(nearest.status())));
      value = *nearest;
    };
    return app.add_option_function<double>(flag, set, help);
  }
  CLI::Option* operator()(bool& value) const { return app.add_flag(flag, value, help); }
  CLI::Option* operator()(std::optional<uint64_t>& value) const {
    return app.add_option(flag, value, help)->check(kSeed);
  }
  CLI::Option* operator()(std::vector<TokenBias>& values) const {
    const auto add = [&values](const std::vector<std::string>& texts) {
      for (const std::string& text : texts) values.push_back(ReadBias(text));
    };
    return app.add_option_function<std::vector<std::string>>(flag, add, help)
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  }
  template <typename T>
  CLI::Option* operator()(std::vector<T>& values) const {
    return app.add_option(flag, values, help)->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  }
  template <typename T>
  CLI::Option* operator()(T& value) const {
    return app.add_option(flag, value, help);
  }
};

void AddClientFlags(CLI::App& app, ClientOptions& o) {
  for (const SamplingField& field : SamplingFields()) {
    if (field.help.empty()) continue;
    const std::string flag = FlagOf(field);
    CLI::Option* option = nullptr;
    VisitValue(o.sampling, field, [&](auto& value) {
      option = SamplingFlag{app, field, flag, std::string(field.help)}(value);
    });
    o.sampling_flags.emplace_back(option, &field);
  }
  app.add_option("--session", o.session,
                 "requests with the same session normally run on the same workers and reuse each other's KV");
  app.add_option("--model", o.model, "name of the model; required if the router serves several");
}

}  // namespace

void AddChatFlags(CLI::App& app, ClientOptions& o) {
  AddServerFlags(app, o.server);
  AddClientFlags(app, o);
}

v1::Sampling SamplingFrom(const ClientOptions& options) {
  v1::Sampling sampling;
  for (const auto& [flag, field] : options.sampling_flags) {
    if (flag->count() > 0) SetField(options.sampling, *field, sampling);
  }
  return sampling;
}

void AddGenerateFlags(CLI::App& app, GenerateOptions& o) {
  AddChatFlags(app, o.client);
  CLI::Option_group* prompt = app.add_option_group("prompt", "text, message or token ids to continue");
  prompt->add_option("--prompt", o.prompt, "text to continue");
  prompt->add_option("--chat", o.chat, "a user's message, rendered with the model's chat template");
  prompt->add_option("--ids", o.ids, "token ids: 1,2,3");
  prompt->require_option(0, 1);
  app.add_option("--context", o.context,
                 "continue a prompt that the server keeps for 60 s after its last use; --max-tokens 0 adds to it");
  app.add_option("--workflow", o.workflow, "any name; `baton trace` shows the requests that share it");
  app.add_option("--agent", o.agent, "name of this request's agent in the workflow");
  app.add_flag("--json", o.json, "one JSON object instead of text");
}

void AddTraceFlags(CLI::App& app, TraceOptions& o) {
  app.add_option("workflow", o.workflow, "name of the workflow, as in its requests")->required();
  AddServerFlags(app, o.server);
  app.add_option("--cache-salt", o.cache_salt, "cache salt of the workflow's requests, if they have one");
  app.add_option("--json", o.json, "write trace events to this file, for ui.perfetto.dev");
  app.add_option("--html", o.html, "write the page of /ui, with this workflow in it, to this file");
  AddRetired(app, "--svg", "--html writes a page that draws the workflow");
}

int RunGenerate(const GenerateOptions& options) {
  if (!options.chat && !options.prompt && options.ids.empty() && options.context.empty()) {
    std::cerr << "baton generate: expected one of --prompt, --chat, --ids and --context\nTry: baton generate --help\n";
    return 1;
  }
  v1::GenerateRequest request = RequestFrom(options.client);
  request.set_workflow(options.workflow);
  request.set_agent(options.agent);
  request.set_context_id(options.context);
  if (options.chat) {
    *request.mutable_chat()->add_messages() = MessageOf("user", *options.chat);
  } else if (options.prompt) {
    request.mutable_segments()->add_segments()->set_text(*options.prompt);
  } else if (!options.ids.empty()) {
    const auto ids = ParseIds(options.ids);
    if (!ids) return 1;
    request.mutable_segments()->add_segments()->mutable_token_ids()->mutable_ids()->Assign(ids->begin(), ids->end());
  }
  const auto stub = Connect(options.client.server);
  const CliAnswer answer = Generate(*stub, request, options.client.server, GenerateFlagNames(options),
                                    options.json ? [](const std::string&) {} : PrintNow);
  if (options.json) {
    std::cout << ToJson(answer).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
    return answer.status.ok() ? 0 : 1;
  }
  if (!answer.text.empty()) std::cout << "\n";
  if (!answer.status.ok()) return PrintError(answer.status, answer.retry_after);
  PrintSummary(answer.final);
  return 0;
}

int RunChat(ClientOptions options) {
  if (options.session.empty()) options.session = absl::StrCat("chat-", getpid(), "-", absl::ToUnixMicros(absl::Now()));
  const auto stub = Connect(options.server);
  v1::GenerateRequest request = RequestFrom(options);
  const bool interactive = isatty(STDIN_FILENO) != 0;
  std::string line;
  while (true) {
    if (interactive) std::cout << "> " << std::flush;
    if (!std::getline(std::cin, line)) break;
    if (line.empty()) continue;
    *request.mutable_chat()->add_messages() = MessageOf("user", line);
    const CliAnswer answer = Generate(*stub, request, options.server, ChatFlagNames(), PrintNow);
    if (!answer.text.empty()) std::cout << "\n";
    if (!answer.status.ok()) {
      PrintError(answer.status, answer.retry_after);
      // The user can then send the message again.
      request.mutable_chat()->mutable_messages()->RemoveLast();
      if (!interactive) return 1;
      continue;
    }
    PrintSummary(answer.final);
    *request.mutable_chat()->add_messages() = MessageOf("assistant", answer.text);
  }
  return 0;
}

int RunTrace(const TraceOptions& options) {
  const auto stub = Connect(options.server);
  grpc::ClientContext context;
  Authorize(context, options.server);
  v1::TraceRequest request;
  request.set_workflow(options.workflow);
  request.set_cache_salt(options.cache_salt);
  v1::TraceResponse trace;
  absl::Status status = Explain(FromGrpc(stub->Trace(&context, request, &trace)), options.server);
  if (status.ok()) status = CheckTrace(trace);
  using Render = std::string (*)(const std::string&, const v1::TraceResponse&);
  const std::pair<const std::string&, Render> files[] = {{options.json, RenderEvents}, {options.html, RenderHtml}};
  bool written = false;
  for (const auto& [file, render] : files) {
    if (file.empty() || !status.ok()) continue;
    status = WriteFile(file, render(options.workflow, trace));
    written = true;
  }
  if (!status.ok()) return PrintError(status, RetryAfterOf(context));
  if (!written) std::cout << RenderText(options.workflow, trace);
  return 0;
}

int RunKey() {
  const NewKey key = DrawKey();
  std::cout << "key for the client (not stored):    " << key.key << "\n"
            << "line for the router's file of keys: \"" << key.hash << "\"\n";
  return 0;
}

}  // namespace baton
