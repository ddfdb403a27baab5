// Tests of the logs of real processes.
#include <signal.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "catch.h"
#include "http_client.h"
#include "nlohmann/json.hpp"
#include "programs.h"

namespace baton {
namespace {

using nlohmann::json;

const std::string kTrace = "4bf92f3577b34da6a3ce929d0e0e4736";

// Returns all lines of a process that logs JSON, without the line for scripts.
std::vector<json> LinesOf(const Process& process) {
  std::vector<json> lines;
  const std::vector<std::string> output = absl::StrSplit(process.Output(), '\n', absl::SkipEmpty());
  for (const std::string& line : output) {
    if (line.starts_with("listening on ")) continue;
    INFO(line);
    lines.push_back(json::parse(line, nullptr, /*allow_exceptions=*/false));
    REQUIRE(lines.back().is_object());
    for (const char* field : {"time", "level", "where", "message"}) CHECK(lines.back().contains(field));
  }
  return lines;
}

// Returns the lines with this message.
std::vector<json> With(const std::vector<json>& lines, const std::string& message) {
  std::vector<json> found;
  for (const json& line : lines) {
    if (line.at("message") == message) found.push_back(line);
  }
  return found;
}

TEST_CASE("Each JSON log line is an object that names requests without their texts") {
  const std::vector<std::string> log = {"--log-format", "json", "--log-level", "debug", "--listen", "127.0.0.1:0"};
  Worker prefill("prefill", Small(log));
  Worker decode("decode", Small(log));
  std::vector<std::string> arguments = {"--http",        "127.0.0.1:0",      "--model",     kModel, "--prefill-workers",
                                        prefill.address, "--decode-workers", decode.address};
  arguments.insert(arguments.end(), log.begin(), log.end());
  Process router("baton-router", arguments);
  for (const Worker* worker : {&prefill, &decode}) router.Await(absl::StrCat("worker ", worker->address, ": attached"));
  std::string http = HttpOf(router);
  http.resize(http.find('"'));

  HttpClient client(http);
  client.Post("/v1/completions",
              R"({"prompt": "zanzibar \"zanzibar\"", "max_tokens": 5, "ignore_eos": true, "request_id": "r-1"})",
              absl::StrCat("traceparent: 00-", kTrace, "-00f067aa0ba902b7-01\r\n"));
  const HttpAnswer answer = client.Read();
  INFO(answer.body);
  REQUIRE(answer.status == 200);
  const std::string text = json::parse(answer.body)["choices"][0]["text"];
  REQUIRE(text.size() > 3);
  for (Process* process : {&router, &prefill.process, &decode.process}) {
    process->Signal(SIGTERM);
    CHECK(process->Wait() == 0);
    CHECK(process->Output().find("zanzibar") == std::string::npos);
    CHECK(process->Output().find(text) == std::string::npos);
  }

  const std::vector<json> ended = With(LinesOf(router), "a request ended");
  REQUIRE(ended.size() == 1);
  CHECK(ended[0].at("where") == "baton-router");
  CHECK(ended[0].at("level") == "info");
  CHECK(ended[0].at("request") == "r-1");
  CHECK(ended[0].at("trace_id") == kTrace);
  CHECK(ended[0].at("model") == "tiny_llama3_bf16");
  CHECK(ended[0].at("code") == "OK");
  CHECK(ended[0].at("finish") == "length");
  CHECK(ended[0].at("prompt_tokens") >= 2);
  CHECK(ended[0].at("completion_tokens") == 5);
  CHECK(ended[0].at("first_token_ms") > 0);
  CHECK(ended[0].at("total_ms") >= ended[0].at("first_token_ms"));
  CHECK(ended[0].at("prefill_worker") == prefill.address);
  CHECK(ended[0].at("decode_worker") == decode.address);
  CHECK_FALSE(ended[0].contains("tenant"));

  for (const auto& [worker, message] :
       {std::pair(&prefill, "a prompt is prefilled"), std::pair(&decode, "a job ended")}) {
    const std::vector<json> jobs = With(LinesOf(worker->process), message);
    REQUIRE(jobs.size() == 1);
    CHECK(jobs[0].at("trace_id") == kTrace);
    CHECK(jobs[0].at("request").get<std::string>().starts_with("r-1#"));
  }
}

TEST_CASE("A program that cannot start logs the reason in its log's form") {
  Process router("baton-router", {"--log-format", "json", "--log-level", "off", "--listen", "127.0.0.1:0"});
  CHECK(router.Wait() == 1);
  const std::vector<json> lines = LinesOf(router);
  REQUIRE(lines.size() == 1);
  CHECK(lines[0].at("level") == "critical");
  CHECK(lines[0].at("message").get<std::string>().starts_with("INVALID_ARGUMENT: model"));
}

}  // namespace
}  // namespace baton
