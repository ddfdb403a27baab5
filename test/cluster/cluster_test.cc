// Tests with real processes, real sockets and real shared memory: the effects for a client when a
// process dies.
#include <signal.h>

#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <regex>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "await.h"
#include "base/strings.h"
#include "catch.h"
#include "inference.grpc.pb.h"
#include "nlohmann/json.hpp"
#include "process.h"
#include "programs.h"
#include "rpc/grpc_server.h"
#include "rpc/grpc_status.h"
#include "scrape.h"

namespace baton {
namespace {

struct Cluster {
  std::optional<Worker> prefill{std::in_place, "prefill"};
  std::optional<Worker> decode_a{std::in_place, "decode"};
  std::optional<Worker> decode_b{std::in_place, "decode"};
  std::optional<Process> router;
  std::unique_ptr<v1::Inference::Stub> stub;

  Cluster() {
    router.emplace("baton-router", std::vector<std::string>{"--listen", "127.0.0.1:0", "--http", "127.0.0.1:0",
                                                            "--model", kModel, "--worker-wait", "2",
                                                            "--prefill-workers", prefill->address, "--decode-workers",
                                                            absl::StrCat(decode_a->address, ",", decode_b->address)});
    stub = v1::Inference::NewStub(DialTcp(router->Await("listening on ")));
    for (const auto* worker : {&*prefill, &*decode_a, &*decode_b}) {
      router->Await(absl::StrCat("worker ", worker->address, ": attached"));
    }
  }
  // Returns the decode worker that has served a request, and the other one.
  std::pair<std::optional<Worker>*, std::optional<Worker>*> UsedAndUnused() {
    std::pair<std::optional<Worker>*, std::optional<Worker>*> found;
    Await("a decode worker to have served something", [&] {
      const v1::GetServerInfoResponse info = ServerInfoOf(*stub);
      for (const v1::Worker& worker : info.workers()) {
        if (worker.role() != v1::Worker::ROLE_DECODE || worker.blocks_cached() == 0) continue;
        found =
            worker.address() == decode_a->address ? std::pair(&decode_a, &decode_b) : std::pair(&decode_b, &decode_a);
        return true;
      }
      return false;
    });
    return found;
  }
};

TEST_CASE("A cluster answers like one process and finds its prefix again") {
  Cluster cluster;
  Call first(*cluster.stub, MakeRequest(20));
  const absl::Status status = first.Finish();
  INFO(Message(status));
  REQUIRE(status.ok());
  CHECK(first.ids.size() == 20);
  CHECK(first.final.usage().cached_tokens() == 0);
  Call again(*cluster.stub, MakeRequest(20));
  REQUIRE(again.Finish().ok());
  CHECK(again.ids == first.ids);
  CHECK(again.final.usage().cached_tokens() >= 32);

  Process serve("baton", {"serve", kModel, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--threads", "1",
                          "--kv-memory-mb", "8"});
  const auto stub = v1::Inference::NewStub(DialTcp(serve.Await("listening on ")));
  Call alone(*stub, MakeRequest(20));
  REQUIRE(alone.Finish().ok());
  CHECK(alone.ids == first.ids);

  for (std::optional<Worker>* worker : {&cluster.prefill, &cluster.decode_a, &cluster.decode_b}) {
    (*worker)->AwaitBlocksFree();
  }
}

TEST_CASE("Metrics show a cluster's hand-offs and the time of each stage") {
  Cluster cluster;
  const std::string router_metrics = MetricsOf(*cluster.router);
  // A worker's load report updates the counts.
  const auto becomes = [](const std::string& metrics, const std::string& series, double expected) {
    double value = -1;
    Await(absl::StrCat(series, " to be ", expected), [&] {
      value = Scrape(metrics, series).value_or(-1);
      return value >= expected;
    });
    return value;
  };
  CHECK(becomes(cluster.prefill->metrics, "baton_expired_leases_total{role=\"prefill\"}", 0) == 0);
  for (int turn = 0; turn < 2; ++turn) {
    v1::GenerateRequest request = MakeRequest(3, 81);  // 5 blocks of KV
    request.set_session_id("one");                     // goes to the same workers again
    Call call(*cluster.stub, request);
    REQUIRE(call.Finish().ok());
  }
  const std::string& prefill = cluster.prefill->metrics;
  CHECK(becomes(prefill, "baton_handoffs_total{code=\"OK\"}", 2) == 2);
  CHECK(becomes(prefill, "baton_handoff_blocks_total{source=\"pushed\"}", 5) == 5);
  // The second turn holds all of its blocks.
  CHECK(becomes(prefill, "baton_handoff_blocks_total{source=\"held\"}", 5) == 5);
  const double pushes = becomes(prefill, "baton_transfer_seconds_count", 1);
  CHECK(pushes >= 1);
  CHECK(becomes(prefill, "baton_transfer_descriptors_total", pushes) >= pushes);
  CHECK(Scrape(prefill, "baton_transfer_failures_total") == 0.0);
  CHECK(becomes(prefill, "baton_stage_queue_seconds_count{stage=\"prefill\"}", 2) == 2);
  CHECK(becomes(router_metrics, "baton_stage_queue_seconds_count{stage=\"router\"}", 2) == 2);
  CHECK(Scrape(router_metrics, "baton_stage_queue_seconds_bucket{stage=\"router\",le=\"+Inf\"}") == 2.0);
  const auto waited = [](const Worker& worker) {
    return Scrape(worker.metrics, "baton_stage_queue_seconds_count{stage=\"decode\"}").value_or(0);
  };
  const auto all_waited = [&] { return waited(*cluster.decode_a) + waited(*cluster.decode_b); };
  Await("the decode workers to count their requests", [&] { return all_waited() >= 2; });
  CHECK(all_waited() == 2);
  const auto steps = [](const Worker& worker, const std::string& begun) {
    return Scrape(worker.metrics, "baton_decode_steps_total{begun=\"" + begun + "\"}").value_or(0);
  };
  const auto all_steps = [&] { return steps(*cluster.decode_a, "after") + steps(*cluster.decode_b, "after"); };
  Await("the decode workers to count their steps", [&] { return all_steps() >= 2; });
  // Without a GPU, no step is enqueued ahead.
  CHECK(steps(*cluster.decode_a, "ahead") + steps(*cluster.decode_b, "ahead") == 0);
}

TEST_CASE("Option --vllm-metrics adds vLLM's metrics of requests and engines") {
  Process serve("baton", {"serve", kModel, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--threads", "1",
                          "--kv-memory-mb", "8", "--vllm-metrics"});
  const std::string metrics = MetricsOf(serve);
  const auto stub = v1::Inference::NewStub(DialTcp(serve.Await("listening on ")));
  Call call(*stub, MakeRequest(7));
  REQUIRE(call.Finish().ok());
  const std::string model = "model_name=\"tiny_llama3_bf16\"}";
  // Waits until a series is at least `least`, and returns its value.
  const auto value_of = [&](const std::string& series, double least = 0) {
    std::optional<double> value;
    Await(series, [&] {
      value = Scrape(metrics, series);
      return value.has_value() && *value >= least;
    });
    return *value;
  };
  CHECK(value_of("vllm:generation_tokens_total{" + model, 7) == 7);
  CHECK(value_of("vllm:e2e_request_latency_seconds_count{" + model, 1) == 1);
  for (const std::string engine : {"{engine=\"prefill\",", "{engine=\"decode\","}) {
    value_of("vllm:num_requests_running" + engine + model);
    value_of("vllm:num_requests_waiting" + engine + model);
    CHECK(value_of("vllm:kv_cache_usage_perc" + engine + model) <= 1);
    CHECK(value_of("vllm:num_preemptions_total" + engine + model) == 0);
  }
}

// Returns a part of the prompt of MakeRequest(n), for a context.
v1::GenerateRequest Part(int max_tokens, int begin, int end) {
  v1::GenerateRequest request = MakeRequest(max_tokens, end);
  auto& ids = *request.mutable_segments()->mutable_segments(0)->mutable_token_ids()->mutable_ids();
  ids.erase(ids.begin(), ids.begin() + begin);
  request.set_context_id("c");
  request.set_context_length(begin);
  return request;
}

TEST_CASE("A context gives its whole prompt's bits, and its lease ends with the router") {
  Cluster cluster;
  const auto with_logprobs = [](v1::GenerateRequest request) {
    request.mutable_sampling()->set_logprobs(0);
    return request;
  };
  v1::GenerateRequest whole = with_logprobs(MakeRequest(20, 100));
  whole.set_cache_salt("another");  // shares no KV
  Call plain(*cluster.stub, whole);
  REQUIRE(plain.Finish().ok());
  REQUIRE(plain.logprobs.size() == 20);

  const auto prepare = [&](int begin, int end) {
    Call call(*cluster.stub, Part(0, begin, end));
    const absl::Status status = call.Finish();
    INFO(Message(status));
    REQUIRE(status.ok());
    CHECK(call.ids.empty());
    CHECK(call.final.context_length() == end);
  };
  prepare(0, 35);
  prepare(35, 90);
  prepare(35, 90);
  Call continued(*cluster.stub, with_logprobs(Part(20, 90, 100)));
  REQUIRE(continued.Finish().ok());
  CHECK(continued.ids == plain.ids);
  CHECK(continued.logprobs == plain.logprobs);
  CHECK(continued.final.usage().cached_tokens() >= 80);

  // A new worker at the same address has no KV of the context.
  const std::string address = cluster.prefill->address;
  cluster.prefill.reset();
  cluster.prefill.emplace("prefill", address);
  cluster.router->Await(absl::StrCat("worker ", address, ": lost"));
  std::optional<Call> again;
  absl::Status status;
  do {  // until the new worker is attached
    again.emplace(*cluster.stub, with_logprobs(Part(20, 90, 100)));
    status = again->Finish();
  } while (absl::IsUnavailable(status));
  INFO(Message(status));
  REQUIRE(status.ok());
  CHECK(again->ids == plain.ids);
  CHECK(again->logprobs == plain.logprobs);

  cluster.prefill->AwaitBlocksUsed();
  cluster.router->Signal(SIGKILL);
  cluster.prefill->AwaitBlocksFree();
}

TEST_CASE("A prompt of one token passes both workers") {
  Cluster cluster;
  Call call(*cluster.stub, MakeRequest(5, 1));
  REQUIRE(call.Finish().ok());
  CHECK(call.ids.size() == 5);
}

TEST_CASE("A request fails and blocks are freed when its prefill worker dies") {
  Cluster cluster;
  // The worker is stopped, so it still has the request when it is killed.
  cluster.prefill->process.Signal(SIGSTOP);
  Call call(*cluster.stub, MakeRequest(5));
  const std::string address = cluster.prefill->address;
  Await("the router to take the request", [&] { return ServerInfoOf(*cluster.stub).live_requests() == 1; });
  cluster.prefill->process.Signal(SIGKILL);
  const absl::Status status = call.Finish();
  INFO(Message(status));
  CHECK(absl::IsUnavailable(status));
  CHECK(RetryAfterOf(call.context) > absl::ZeroDuration());
  cluster.decode_a->AwaitBlocksFree();
  cluster.decode_b->AwaitBlocksFree();

  // The router links a new process at the same address, and that process serves.
  cluster.prefill.reset();
  cluster.prefill.emplace("prefill", address);
  absl::Status retried;
  do {
    retried = Call(*cluster.stub, MakeRequest(5)).Finish();
  } while (absl::IsUnavailable(retried));
  INFO(Message(retried));
  CHECK(retried.ok());
}

TEST_CASE("Every request ends and blocks are freed when a prefill worker dies under load", "[waits]") {
  Cluster cluster;
  // These requests make the links to both decode workers. A prefill worker that dies during the
  // making of a link may abort the decode worker (openucx/ucx#8175).
  for (int i = 0; i < 20; ++i) REQUIRE(Call(*cluster.stub, MakeRequest(1)).Finish().ok());
  std::vector<std::unique_ptr<Call>> calls;
  for (int i = 0; i < 24; ++i) {
    v1::GenerateRequest request = MakeRequest(30, 300);
    // All prompts differ.
    request.mutable_segments()->mutable_segments(0)->mutable_token_ids()->set_ids(0, 2 + i);
    calls.push_back(std::make_unique<Call>(*cluster.stub, request));
  }
  // Some requests decode now, some are in a hand-off, and some prefill.
  REQUIRE(calls.front()->Read());
  cluster.prefill->process.Signal(SIGKILL);
  int ok = 0, unavailable = 0;
  for (const auto& call : calls) {
    const absl::Status status = call->Finish();
    INFO(Message(status));
    CHECK((status.ok() || absl::IsUnavailable(status)));
    (status.ok() ? ok : unavailable) += 1;
  }
  INFO(ok << " finished, " << unavailable << " failed");
  CHECK(ok >= 1);
  cluster.decode_a->AwaitBlocksFree();
  cluster.decode_b->AwaitBlocksFree();
}

TEST_CASE("Requests go on, or fail without any worker, when a decode worker dies") {
  Cluster cluster;
  SECTION("the decode worker dies while it decodes") {
    v1::GenerateRequest request = MakeRequest(1);
    request.set_session_id("s");
    REQUIRE(Call(*cluster.stub, request).Finish().ok());
    // The session's next request goes to `used`.
    const auto [used, unused] = cluster.UsedAndUnused();
    v1::GenerateRequest undisturbed = MakeRequest(1);
    undisturbed.mutable_sampling()->set_max_tokens(450);
    undisturbed.set_cache_salt("undisturbed");
    Call expected(*cluster.stub, undisturbed);
    REQUIRE(expected.Finish().ok());
    request.mutable_sampling()->set_max_tokens(450);
    const std::unique_ptr<Call> call = StopWhileItDecodes(**used, *cluster.stub, request);
    (*used)->process.Signal(SIGKILL);
    const absl::Status status = call->Finish();
    INFO(Message(status));
    REQUIRE(status.ok());
    CHECK(call->ids == expected.ids);
    CHECK(call->logprobs == expected.logprobs);
    CHECK(call->final.usage().prompt_tokens() == expected.final.usage().prompt_tokens());
    CHECK(call->final.usage().completion_tokens() == 450);
    const std::string metrics = MetricsOf(*cluster.router);
    Await("the router to count it",
          [&] { return Scrape(metrics, R"(baton_resumed_requests_total{result="resumed"})") == 1; });
    (*unused)->AwaitBlocksFree();
    CHECK(Call(*cluster.stub, MakeRequest(3)).Finish().ok());
  }
  SECTION("both decode workers die while the prompts prefill") {
    cluster.prefill->process.Signal(SIGSTOP);
    Call a(*cluster.stub, MakeRequest(5)), b(*cluster.stub, MakeRequest(5));
    cluster.decode_a->process.Signal(SIGKILL);
    cluster.decode_b->process.Signal(SIGKILL);
    CHECK(absl::IsUnavailable(a.Finish()));
    CHECK(absl::IsUnavailable(b.Finish()));
    cluster.prefill->process.Signal(SIGCONT);
  }
  cluster.prefill->AwaitBlocksFree();
}

TEST_CASE("No block stays in use when a client or a router disappears") {
  Cluster cluster;
  v1::GenerateRequest request = MakeRequest(1);
  request.set_session_id("s");
  REQUIRE(Call(*cluster.stub, request).Finish().ok());
  // The session's next request goes to the same worker.
  Worker& used = **cluster.UsedAndUnused().first;
  request.mutable_sampling()->set_max_tokens(450);
  const std::unique_ptr<Call> call = StopWhileItDecodes(used, *cluster.stub, request);
  SECTION("when the client cancels") {
    call->context.TryCancel();
    CHECK(absl::IsCancelled(call->Finish()));
  }
  SECTION("when the router dies") {
    cluster.router->Signal(SIGKILL);
    CHECK(absl::IsUnavailable(call->Finish()));
  }
  used.process.Signal(SIGCONT);
  cluster.prefill->AwaitBlocksFree();
  cluster.decode_a->AwaitBlocksFree();
  cluster.decode_b->AwaitBlocksFree();
}

TEST_CASE("Every program exits with 0 on SIGTERM or SIGINT") {
  Cluster cluster;
  Call call(*cluster.stub, MakeRequest(5));
  REQUIRE(call.Finish().ok());
  for (Process* process : {&*cluster.router, &cluster.prefill->process, &cluster.decode_a->process}) {
    process->Signal(SIGTERM);
    const int code = process->Wait();
    INFO(process->Output());
    CHECK(code == 0);
  }
  cluster.decode_b->process.Signal(SIGINT);
  CHECK(cluster.decode_b->process.Wait() == 0);
}

TEST_CASE("A stopping prefill worker exits early, and its waiting prompt restarts") {
  Cluster cluster;
  const std::string address = cluster.prefill->address;
  cluster.prefill.reset();
  cluster.prefill.emplace("prefill", std::vector<std::string>{"--listen", address, "--model", kModel, "--threads", "1",
                                                              "--kv-memory-mb", "8", "--grace", "600"});
  v1::GenerateRequest request = MakeRequest(5);
  auto& output_of = *request.mutable_segments()->add_segments()->mutable_output_of();
  output_of.set_request_id("late");
  output_of.set_announced(true);
  Call call(*cluster.stub, request);
  cluster.prefill->AwaitBlocksUsed();
  cluster.prefill->process.Signal(SIGTERM);
  CHECK(cluster.prefill->process.Wait() == 0);  // long before its grace ends
  cluster.prefill.reset();
  cluster.prefill.emplace("prefill", address);
  v1::GenerateRequest upstream = MakeRequest(5);
  upstream.set_request_id("late");
  CHECK(Call(*cluster.stub, upstream).Finish().ok());
  CHECK(call.Finish().ok());
}

// Returns the output of a client program. Fails the test unless the program ends with `code`.
std::string Run(const std::string& program, const std::vector<std::string>& arguments, int code,
                const std::string& input = "") {
  Process process(program, arguments, input);
  const int got = process.Wait();
  INFO(program << ": " << process.Output());
  CHECK(got == code);
  return process.Output();
}

TEST_CASE("baton chat continues a conversation and baton status shows its workers") {
  const TempDir models;
  const std::string model = models / "tiny";
  std::filesystem::copy(kModel, model);
  models.Write("tiny/chat_template.jinja",
               "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>");
  Process serve("baton", {"serve", model, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--threads", "1",
                          "--kv-memory-mb", "8"});
  const std::string server = serve.Await("listening on ");
  serve.Await(" serving");

  const std::string talk = Run("baton", {"chat", "--server", server, "--max-tokens", "7", "--temperature", "0"}, 0,
                               "The first question, long enough for a block or two.\n\nAnd the second.\n");
  std::vector<int> prompt, cached;  // tokens, by turn
  for (size_t at = 0; (at = talk.find(" prompt tokens", at)) != std::string::npos; ++at) {
    REQUIRE(std::sscanf(talk.c_str() + talk.rfind('[', at), "[%d prompt tokens, %d cached", &prompt.emplace_back(),
                        &cached.emplace_back()) == 2);
  }
  INFO(talk);
  REQUIRE(prompt.size() == 2);
  CHECK(cached[0] == 0);
  // The prompt has the first turn, its answer and the second question. Most of its KV is cached.
  CHECK(prompt[1] >= prompt[0] + static_cast<int>(std::string("<user>And the second.<assistant>").size()));
  CHECK(cached[1] >= (prompt[0] - 1) / 16 * 16);  // the last token of a prompt has no KV yet

  const std::pair<std::vector<std::string>, const char*> refused[] = {
      {{"--chat", "a", "--stop-ids", "1", "--stop-ids", "99999"}, "--stop-ids[1]: "},
      {{"--chat", "a", "--max-tokens", "-1"}, "--max-tokens: "},
      {{"--ids", "1,99999"}, "--ids[1]: "},
      {{"--prompt", ""}, "--prompt: is empty"},
  };
  for (const auto& [flags, error] : refused) {
    std::vector<std::string> arguments = {"generate", "--server", server};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    const std::string refusal = Run("baton", arguments, 1);
    INFO(refusal);
    CHECK(refusal.find(StrCat("baton: INVALID_ARGUMENT: ", error)) != std::string::npos);
  }

  const std::string status = Run("baton", {"status", "--server", server}, 0);
  CHECK(status.find(" at " + server + ": 0 live requests") != std::string::npos);
  for (const char* role : {"\nprefill  ", "\ndecode   "}) {
    const size_t row = status.find(role);
    REQUIRE(row != std::string::npos);
    CHECK(status.find("ready     tiny ", row) < status.find('\n', row + 1));
  }
}

TEST_CASE("baton generate fits the default of max_tokens and sends floats as given") {
  Process serve("baton", {"serve", kModel, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--threads", "1",
                          "--kv-memory-mb", "8"});
  const std::string server = serve.Await("listening on ");
  serve.Await(" serving");
  const auto generate = [&](const std::string& ids, const std::vector<std::string>& flags) {
    std::vector<std::string> arguments = {"generate", "--server", server, "--json", "--ignore-eos", "--ids", ids};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    return nlohmann::json::parse(Run("baton", arguments, 0));
  };
  constexpr int kContext = 512;
  const std::string long_prompt = absl::StrJoin(std::vector<int>(kContext - 2, 100), ",");
  CHECK(generate(long_prompt, {})["usage"]["completion_tokens"] == 2);

  const nlohmann::json greedy = generate("100,101", {"--max-tokens", "8", "--temperature", "0"})["token_ids"];
  const std::pair<const char*, const char*> likeliest[] = {
      {"--top-p", "0"}, {"--top-p", "1e-50"}, {"--min-p", "0.99999999999"}};
  for (const auto& [flag, value] : likeliest) {
    INFO(flag << " " << value);
    CHECK(generate("100,101", {"--max-tokens", "8", "--temperature", "3", flag, value})["token_ids"] == greedy);
  }
  CHECK(Run("baton", {"generate", "--server", server, "--ids", "1", "--top-p", "1.0000001"}, 1)
            .find("--top-p: expected a number in [0, 1], got 1.0000001") != std::string::npos);
}

TEST_CASE("baton names the flag, address or command at fault in its errors") {
  const auto has = [](const std::string& text, const std::string& part) {
    INFO(text);
    CHECK(text.find(part) != std::string::npos);
  };
  has(Run("baton", {"status", "--server", "127.0.0.1:1"}, 1), "baton: UNAVAILABLE: no router at 127.0.0.1:1: ");
  has(Run("baton", {"generate", "--ids", "1", "--server", "127.0.0.1:1", "--json"}, 1), "no router at 127.0.0.1:1: ");
  has(Run("baton", {"status", "--server", "nowhere"}, 1),
      "--server: expected HOST:PORT with a port from 0 to 65535, got 'nowhere'");
  has(Run("baton", {"chat", "--seed", "-1"}, 1), "--seed: expected an integer from 0 to 2^64 - 1, got '-1'");
  has(Run("baton", {"generat"}, 1), "baton: unknown command 'generat': expected serve, generate, chat, status");
  has(Run("baton", {}, 1), "baton: no command: expected serve");
  has(Run("baton", {"generate", "--ids", "1,,2"}, 1), "--ids: expected comma-separated integers");
}

TEST_CASE("A router does not log clients' mistakes") {
  Process serve("baton", {"serve", kModel, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--threads", "1",
                          "--kv-memory-mb", "8"});
  const auto stub = v1::Inference::NewStub(DialTcp(serve.Await("listening on ")));
  v1::GenerateRequest request;
  request.mutable_segments()->add_segments()->set_text("\xff");
  CHECK(absl::IsInvalidArgument(Call(*stub, request).Finish()));
  Call compressed(*stub, MakeRequest(1), GRPC_COMPRESS_GZIP);
  CHECK(absl::IsUnimplemented(compressed.Finish()));
  INFO(serve.Output());
  CHECK(serve.Output().find("UTF-8") == std::string::npos);
  CHECK(serve.Output().find("gzip") == std::string::npos);
}

TEST_CASE("baton-decode --check names UCX, its transports and GPU memory's path") {
  const std::string said = Run("baton-decode", Small({"--check"}), 0);
  INFO(said);
  const auto says = [&](const std::string& expression) { return std::regex_search(said, std::regex(expression)); };
  // The check must hold for any UCX, because the path of GPU memory depends on the machine.
  CHECK(says(R"(KV blocks move by UCX 1\.\d+\.\d+: shared memory \(\w.*\); tcp on lo[.;])"));
  CHECK(says(R"(\. GPU memory that no peer maps is (copied|moved) )"));
  CHECK(Run("baton-decode", Small({"--check", "--guard-kv"}), 0).find("UCX") == std::string::npos);
}

TEST_CASE("A program serves metrics only when it listens") {
  // A free port for metrics must not be the one that --listen names.
  Worker decode("decode");
  const auto check = [&](const std::string& program, std::vector<std::string> arguments) {
    for (const std::string& word :
         {std::string("--listen"), decode.address, std::string("--metrics"), std::string("127.0.0.1:0")}) {
      arguments.push_back(word);
    }
    const std::string output = Run(program, arguments, 1);
    CAPTURE(program, output);
    CHECK(output.find(decode.address) != std::string::npos);  // which is taken
    CHECK(output.find("metrics on") == std::string::npos);
  };
  check("baton-prefill", Small({}));
  check("baton-decode", Small({}));
  check("baton-router",
        {"--model", kModel, "--http", "off", "--prefill-workers", "a:1", "--decode-workers", decode.address});
  check("baton", {"serve", kModel, "--http", "off", "--threads", "1", "--kv-memory-mb", "8"});
}

TEST_CASE("Option --check of each program reports whether its options work") {
  Run("baton-prefill", Small({"--check"}), 0);
  Run("baton-decode", Small({"--check"}), 0);
  Run("baton", {"serve", kModel, "--check"}, 0);
  Run("baton-router", {"--check", "--model", kModel, "--prefill-workers", "a:1", "--decode-workers", "b:2"}, 0);
  CHECK(Run("baton-decode", {"--check"}, 1).find("model: a directory is required") != std::string::npos);
  CHECK(Run("baton-prefill", {"--check", "--model", "/nonexistent"}, 1).find("/nonexistent") != std::string::npos);
  CHECK(Run("baton-decode", {"--check", "--model", kModel, "--kv-blocks", "2000000000"}, 1).find("do not fit") !=
        std::string::npos);
  CHECK(Run("baton-decode", {"--check", "--model", kModel, "--listen", "0.0.0.0:7102"}, 1).find("advertise: ") !=
        std::string::npos);
  CHECK(Run("baton-decode", {"--no-such-flag"}, 1).find("--no-such-flag") != std::string::npos);
  CHECK(Run("baton-router", {"--config", "/tmp"}, 1).find("/tmp: is a directory") != std::string::npos);
}

}  // namespace
}  // namespace baton
