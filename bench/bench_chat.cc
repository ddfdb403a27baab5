// Measures the CPU time to read a chat with tools, from the body of an HTTP call to the prompt's
// tokens.
//
// --template FILE is a model's own template. The tokenizer makes a token of each byte. A real
// tokenizer would take so long that it hides the cost of the template's values.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/time/clock.h"
#include "base/check.h"
#include "base/json/json_body.h"
#include "base/strings.h"
#include "bench/report.h"
#include "frontend/openai/chat_reader.h"
#include "frontend/request_reader.h"
#include "model/byte_model.h"

namespace baton {
namespace {

struct Options {
  int tools = 50;
  int rounds = 300;
  std::string chat_template;
  std::string json;
};

Json Tool(int i) {
  Json properties;
  for (const char* name : {"path", "query", "limit", "recursive", "encoding"}) {
    properties[name] = {{"type", "string"}, {"description", StrCat("the ", name, " that function ", i, " works on")}};
  }
  return {{"type", "function"},
          {"function",
           {{"name", StrCat("tool_", i)},
            {"description", "Looks something up in the workspace and returns what it found as text."},
            {"parameters", {{"type", "object"}, {"properties", properties}, {"required", {"path", "query"}}}}}}};
}

std::string Body(int tools) {
  Json body = {{"model", "bytes"}};
  body["messages"] = {{{"role", "system"}, {"content", "You are an agent with tools."}},
                      {{"role", "user"}, {"content", "Find the file that holds the routes."}}};
  for (int i = 0; i < tools; ++i) body["tools"].push_back(Tool(i));
  return body.dump();
}

ServedModels Models(const Options& options) {
  ServedModel model = ByteModel("bytes");
  model.context = 1 << 20;
  std::ifstream file(options.chat_template);
  const std::string source{std::istreambuf_iterator<char>(file), {}};
  BATON_CHECK(!source.empty(), "--template: expected a file");
  model.chat_template = ChatTemplate::Parse(source, "<s>", "</s>").value();
  std::vector<ServedModel> list;
  list.push_back(std::move(model));
  return ServedModels(std::move(list));
}

// Microseconds of the parts of one call.
struct Cost {
  double parse = 0, fields = 0, prompt = 0;
};

Cost ReadOnce(const std::string& text, const ServedModels& models) {
  const absl::Time start = absl::Now();
  const absl::StatusOr<Json> body = ParseJsonBody(text);
  BATON_CHECK(body.ok(), "the body is JSON");
  const absl::Time parsed = absl::Now();
  const absl::StatusOr<CompletionCall> call = ReadChat(*body, models);
  BATON_CHECK(call.ok(), "the body is a chat");
  const absl::Time read = absl::Now();
  const absl::StatusOr<ClientRequest> request =
      ReadRequest(call->requests[0], models, absl::UnixEpoch(), {}, &call->values);
  BATON_CHECK(request.ok() && !request->spec.tokens.empty(), "the chat has a prompt");
  const absl::Time end = absl::Now();
  return {absl::ToDoubleMicroseconds(parsed - start), absl::ToDoubleMicroseconds(read - parsed),
          absl::ToDoubleMicroseconds(end - read)};
}

int Run(const Options& options) {
  const ServedModels models = Models(options);
  const std::string body = Body(options.tools);
  std::vector<double> parse, fields, prompt, all;
  for (int round = 0; round < options.rounds; ++round) {
    const Cost cost = ReadOnce(body, models);
    parse.push_back(cost.parse);
    fields.push_back(cost.fields);
    prompt.push_back(cost.prompt);
    all.push_back(cost.parse + cost.fields + cost.prompt);
  }
  const nlohmann::ordered_json report = {{"tools", options.tools},
                                         {"body_bytes", body.size()},
                                         {"parse_us", Median(parse)},
                                         {"fields_us", Median(fields)},
                                         {"prompt_us", Median(prompt)},
                                         {"all_us", Median(all)},
                                         {"least_us", *std::ranges::min_element(all)}};
  std::printf("%s\n", report.dump().c_str());
  return WriteReport(report, options.json);
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  baton::Options options;
  CLI::App app("Measures the CPU time of reading a chat with tools.");
  app.add_option("--tools", options.tools, "number of tools in the chat")->capture_default_str();
  app.add_option("--rounds", options.rounds, "measurements; figures are their medians")->capture_default_str();
  app.add_option("--template", options.chat_template, "file with the chat template")->required();
  app.add_option("--json", options.json, "write the report to this file");
  CLI11_PARSE(app, argc, argv);
  return baton::Run(options);
}
