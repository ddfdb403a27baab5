// Tests of the reports of real processes: logs, and metrics that count the tokens of requests.
#include <signal.h>

#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "await.h"
#include "catch.h"
#include "http_client.h"
#include "nlohmann/json.hpp"
#include "programs.h"
#include "scrape.h"

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

struct CountingCluster {
  Worker prefill{"prefill"}, decode{"decode"};
  Process router{"baton-router",
                 {"--log-format", "json", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--model", kModel,
                  "--prefill-workers", prefill.address, "--decode-workers", decode.address}};
  const std::string http = std::string(absl::StripSuffix(HttpOf(router), "\""));
  std::unique_ptr<v1::Inference::Stub> stub = v1::Inference::NewStub(DialTcp(router.Await("listening on ")));

  CountingCluster() {
    for (const Worker* worker : {&prefill, &decode})
      router.Await(absl::StrCat("worker ", worker->address, ": attached"));
  }
  double Metric(const std::string& series) const { return Scrape(prefill.metrics, series).value_or(-1); }
  double Tokens(const std::string& source) const {
    return Metric(absl::StrCat("baton_worker_tokens_total{role=\"prefill\",source=\"", source, "\"}"));
  }
  double Wasted() const { return Metric("baton_wasted_tokens_total"); }
  // Waits until all of the only request's prompt is in a step, or was in one.
  void AwaitPlanned() const {
    Await("a request to run", [&] { return Metric("baton_worker_requests{role=\"prefill\",state=\"running\"}") == 1; });
    Await("its tokens to be planned", [&] { return Metric("baton_worker_queued_tokens{role=\"prefill\"}") == 0; });
  }
  // Waits until the router has the report that a step has the only request of the workflow.
  void AwaitStarted(const std::string& workflow) const {
    v1::TraceRequest wanted;
    wanted.set_workflow(workflow);
    Await("the report of the request's first step", [&] {
      v1::TraceResponse trace;
      grpc::ClientContext context;
      if (!stub->Trace(&context, wanted, &trace).ok() || trace.requests_size() != 1) return false;
      const auto& spans = trace.requests(0).spans();
      return !spans.empty() && spans.rbegin()->phase() == v1::Span::PHASE_PREFILL;
    });
  }
  // Returns the log line of the router's only request, when it has ended.
  json EndLine() {
    router.Await("a request ended");
    return With(LinesOf(router), "a request ended").at(0);
  }
  void AwaitCancelled(int jobs) const {
    Await("the prefill worker to cancel a job",
          [&] { return Metric("baton_worker_jobs_total{code=\"CANCELLED\",role=\"prefill\"}") == jobs; });
  }
};

std::string CompletionOf(int prompt_tokens, int id) {
  std::vector<int> ids(static_cast<size_t>(prompt_tokens), id);
  return nlohmann::json{{"prompt", ids}, {"max_tokens", 1}, {"temperature", 0}, {"workflow", "w"}}.dump();
}

TEST_CASE("Usage and the prefill worker's metrics count the same cached tokens") {
  constexpr int kCalls = 20, kTokensOfPrompt = 33;
  CountingCluster c;
  double cached = 0;
  for (int round = 0; round < 2; ++round) {
    std::vector<std::unique_ptr<HttpClient>> clients;
    for (int call = 0; call < kCalls; ++call) {
      clients.push_back(std::make_unique<HttpClient>(c.http));
      clients.back()->Post("/v1/completions", CompletionOf(kTokensOfPrompt, 5));
    }
    for (const auto& client : clients) {
      const HttpAnswer answer = client->Read();
      INFO(answer.body);
      REQUIRE(answer.status == 200);
      const nlohmann::json usage = nlohmann::json::parse(answer.body)["usage"];
      CHECK(usage["prompt_tokens"] == kTokensOfPrompt);
      cached += usage["prompt_tokens_details"]["cached_tokens"].get<double>();
    }
  }
  CHECK(cached >= kCalls * (kTokensOfPrompt - 1));  // at least those of the second round
  double not_computed = 0;
  for (const char* source : {"cached", "shared", "host", "disk", "held"}) not_computed += c.Tokens(source);
  CHECK(not_computed == cached);
  CHECK(c.Tokens("computed") + not_computed == 2 * kCalls * (kTokensOfPrompt - 1));
  CHECK(c.Wasted() == 0);
}

TEST_CASE("Computed tokens are counted and wasted when the client leaves") {
  CountingCluster c;
  c.decode.process.Signal(SIGSTOP);  // holds up the hand-offs
  HttpClient http(c.http);
  http.Post("/v1/completions", CompletionOf(200, 5));
  c.AwaitPlanned();
  c.AwaitStarted("w");
  CHECK(c.Tokens("computed") == 0);
  http.Close();
  c.AwaitCancelled(1);
  CHECK(c.Tokens("computed") == 199);
  CHECK(c.Wasted() == 199);
  CHECK(c.EndLine().at("prefill_ms") > 0);

  Call call(*c.stub, MakeRequest(/*max_tokens=*/1, /*prompt_tokens=*/100));
  c.AwaitPlanned();
  call.context.TryCancel();
  CHECK_FALSE(call.Finish().ok());
  c.AwaitCancelled(2);
  CHECK(c.Tokens("computed") == 199 + 99);
  CHECK(c.Wasted() == 199 + 99);
  for (const char* source : {"cached", "shared", "host", "disk", "held", "not_reached", "dropped"}) {
    INFO(source);
    CHECK(c.Tokens(source) == 0);
  }
  CHECK(c.Metric("baton_refused_tokens_total") == 0);
  c.decode.process.Signal(SIGCONT);
}

TEST_CASE("The log has no prefill time of a call that left a prefill worker's queue") {
  CountingCluster c;
  c.prefill.process.Signal(SIGSTOP);  // the call stays in the queue
  HttpClient http(c.http);
  http.Post("/v1/completions", CompletionOf(200, 5));
  Await("the call's placement", [&] { return Scrape(c.http, "baton_live_requests") == 1; });
  http.Close();
  const json line = c.EndLine();
  INFO(line.dump());
  CHECK(line.at("code") == "CANCELLED");
  CHECK(line.at("prefill_worker") == c.prefill.address);
  CHECK(line.at("prefill_ms") == 0);
  CHECK(line.at("queue_ms") > 0);
  c.prefill.process.Signal(SIGCONT);
}

}  // namespace
}  // namespace baton
