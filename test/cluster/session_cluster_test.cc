// Tests of sessions over real processes: the work of each turn, its KV and its transfers, and the
// effect of a worker's death.
#include <array>
#include <csignal>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/strings.h"
#include "catch.h"
#include "http_client.h"
#include "model_group.h"
#include "nlohmann/json.hpp"
#include "programs.h"
#include "scrape.h"

namespace baton {
namespace {

constexpr int kBlock = 16;  // tokens

// A turn has one job at its prefill worker, and its shadow prefill has another.
double JobsDone(const std::string& metrics) {
  return Scrape(metrics, "baton_worker_jobs_total{code=\"OK\",role=\"prefill\"}").value_or(0);
}

// The metric increases together with baton_transfer_bytes_total, and after it.
double HandedOff(const std::string& metrics) {
  return Scrape(metrics, "baton_handoffs_total{code=\"OK\"}").value_or(0);
}

// The turns of a session. Each decoder receives all earlier text and 16 tokens of its own. All
// tokens of a prompt except the last fill whole blocks, and so does an output.
class Session {
 public:
  explicit Session(int output) : output_(output) {}
  v1::GenerateRequest Turn(const std::string& model, const std::string& salt = "") const {
    v1::GenerateRequest request = Ask(model, context_, output_);
    request.set_session_id("s");
    request.set_cache_salt(salt);
    return request;
  }
  void Add(const Answer& answer) {
    context_.insert(context_.end(), answer.ids.begin(), answer.ids.end());
    context_.insert(context_.end(), kBlock, static_cast<int32_t>(7 + context_.size() / kBlock));
  }
  // Tokens of the next prompt that have KV.
  int kv_tokens() const { return static_cast<int>(context_.size()) - 1; }
  int kv_blocks() const { return kv_tokens() / kBlock; }

 private:
  int output_;
  std::vector<int32_t> context_ = std::vector<int32_t>(2 * kBlock + 1, 9);
};

TEST_CASE("Eight decoders hold one session once and each receives only what it lacks") {
  constexpr int kOutput = 16, kTurns = 16;
  const Decoders made(/*context=*/1024);
  const std::string module = made.Copy("module");
  EightDecoders group(made, module);
  const std::string& metrics = group.metrics;

  Session session(kOutput);
  std::vector<std::pair<v1::GenerateRequest, Answer>> turns;
  std::array<int, 8> held{};  // by each decode worker, in blocks
  int moved = 0;              // in blocks
  for (int turn = 0; turn < kTurns; ++turn) {
    INFO("turn " << turn);
    const size_t decoder = turn % 8;
    const v1::GenerateRequest request = session.Turn(group.names[decoder]);
    const Answer answer = Get(*group.stub, request);
    turns.emplace_back(request, answer);
    // Shadow prefill of earlier decoders has computed all except the turn's own tokens.
    CHECK(answer.cached == (turn == 0 ? 0 : session.kv_tokens() - kBlock));
    CHECK(Becomes([&] { return JobsDone(metrics); }, 2 * (turn + 1)) == 2 * (turn + 1));
    const int computed = session.kv_tokens() + kOutput;
    CHECK(Becomes([&] { return Computed(metrics); }, computed) == computed);
    moved += session.kv_blocks() - held[decoder];
    CHECK(Becomes([&] { return Moved(metrics); }, moved * kBlockBytes) == moved * kBlockBytes);
    // A decoder with the module's weights generates tokens whose KV is already the module's.
    held[decoder] = session.kv_blocks() + (decoder % 2 == 0 ? kOutput / kBlock : 0);
    CHECK(Becomes([&] { return HeldAtPrefill(metrics); }, computed / kBlock) == computed / kBlock);
    session.Add(answer);
  }
  for (size_t i = 0; i < held.size(); ++i) {
    INFO(group.names[i]);
    CHECK(Becomes([&] { return CachedAtDecode(metrics, group.names[i]); }, held[i]) == held[i]);
  }
  for (auto& [request, answer] : turns) {  // all answers were right
    request.set_session_id("");
    request.set_cache_salt(absl::StrCat("only of this turn: ", request.model(), turns.size(), answer.cached));
    CHECK(Get(*group.stub, request) == answer);
  }
}

// Two prefill workers of one module, and two decoders.
struct TwoHomes {
  const Decoders made;
  std::array<Worker, 2> prefill{Worker("prefill", Small({"--listen", "127.0.0.1:0"}, kModule)),
                                Worker("prefill", Small({"--listen", "127.0.0.1:0"}, kModule))};
  Worker tuned{"decode", DecoderOf(made.Reversed("tuned"))}, copy{"decode", DecoderOf(made.Copy("copy"))};
  Process router{"baton-router",
                 {"--listen", "127.0.0.1:0", "--http", "off", "--model", kModule, "--prefill-workers",
                  absl::StrCat(prefill[0].address, ",", prefill[1].address), "--decode-workers",
                  absl::StrCat(tuned.address, ",", copy.address)}};
  std::unique_ptr<v1::Inference::Stub> stub = v1::Inference::NewStub(DialTcp(router.Await("listening on ")));

  TwoHomes() {
    for (const Worker* worker : {&prefill[0], &prefill[1], &tuned, &copy}) {
      router.Await(absl::StrCat("worker ", worker->address, ": attached"));
    }
  }
  // Returns the sum for both prefill workers after it has reached `expected`. The sum is then
  // final.
  double Sum(double (*count)(const std::string&), double expected) {
    return Becomes([&] { return count(prefill[0].metrics) + count(prefill[1].metrics); }, expected);
  }
  bool Linked(Worker& from) const {
    const std::string log = from.process.Output();
    return log.find("connected to decode worker " + tuned.address) != std::string::npos &&
           log.find("connected to decode worker " + copy.address) != std::string::npos;
  }
};

TEST_CASE("A session is computed again once, with the same tokens, when its worker dies") {
  constexpr int kOutput = 48, kTurns = 5, kKilledIn = 2;
  const auto model = [](int turn) { return turn % 2 == 0 ? "tuned" : "copy"; };
  TwoHomes cluster;
  // A run in which no process dies.
  Session quiet(kOutput);
  std::vector<Answer> expected;
  double jobs = 0, computed = 0, handoffs = kTurns + kKilledIn;
  for (int turn = 0; turn < kTurns; ++turn) {
    expected.push_back(Get(*cluster.stub, quiet.Turn(model(turn), "quiet")));
    jobs += 2;
    CHECK(cluster.Sum(JobsDone, jobs) == jobs);
    computed = quiet.kv_tokens() + kOutput;
    quiet.Add(expected.back());
  }
  // UCX 1.13.1 may abort if a worker dies while a link to it is being made, so the test makes all
  // links first.
  for (int other = 0; !cluster.Linked(cluster.prefill[0]) || !cluster.Linked(cluster.prefill[1]); ++other) {
    REQUIRE(other < 100);
    for (const char* name : {"tuned", "copy"}) {
      v1::GenerateRequest request = Ask(name, std::vector<int32_t>(kBlock + 1, 10 + other), 1);
      request.set_session_id(absl::StrCat("other ", other));
      Get(*cluster.stub, request);
    }
    jobs += 2;
    handoffs += 2;
    computed += kBlock;
  }
  CHECK(cluster.Sum(JobsDone, jobs) == jobs);
  CHECK(cluster.Sum(Computed, computed) == computed);
  const std::array before{Computed(cluster.prefill[0].metrics), Computed(cluster.prefill[1].metrics)};

  Session session(kOutput);
  for (int turn = 0; turn < kKilledIn; ++turn) {
    const Answer answer = Get(*cluster.stub, session.Turn(model(turn)));
    CHECK(answer == expected[turn]);
    jobs += 2;
    CHECK(cluster.Sum(JobsDone, jobs) == jobs);
    computed += turn == 0 ? session.kv_tokens() + kOutput : kBlock + kOutput;
    session.Add(answer);
  }
  CHECK(cluster.Sum(Computed, computed) == computed);
  const size_t at = Computed(cluster.prefill[0].metrics) > before[0] ? 0 : 1;
  Worker &home = cluster.prefill[at], &other = cluster.prefill[1 - at];
  REQUIRE(Computed(other.metrics) == before[1 - at]);
  CHECK(cluster.Sum(HandedOff, handoffs) == handoffs);
  double moved = Moved(other.metrics);

  // The worker dies during an answer. The turn's decoder has all KV that it needs, and no worker
  // prefills its output.
  Call call(*cluster.stub, session.Turn(model(kKilledIn)));
  REQUIRE(call.Read());
  home.process.Signal(SIGKILL);
  const absl::Status status = call.Finish();
  INFO(Message(status));
  REQUIRE(status.ok());
  const Answer through{call.ids, call.logprobs};
  CHECK(through == expected[kKilledIn]);
  cluster.router.Await(absl::StrCat("worker ", home.address, ": lost"));
  // `tuned` holds all blocks. `copy` holds its own output too, but not the 16 tokens behind it.
  std::array held{session.kv_blocks(), session.kv_blocks() - 1};
  session.Add(through);

  computed = before[1 - at];
  jobs = JobsDone(other.metrics);
  for (int turn = kKilledIn + 1; turn < kTurns; ++turn) {
    INFO("turn " << turn);
    const bool first = turn == kKilledIn + 1;
    const Answer answer = Get(*cluster.stub, session.Turn(model(turn)));
    CHECK(answer == expected[turn]);
    CHECK(answer.cached == (first ? 0 : session.kv_tokens() - kBlock));
    jobs += 2;
    CHECK(Becomes([&] { return JobsDone(other.metrics); }, jobs) == jobs);
    computed += first ? session.kv_tokens() + kOutput : kBlock + kOutput;
    CHECK(Becomes([&] { return Computed(other.metrics); }, computed) == computed);
    // Decode workers keep the blocks that the dead worker sent.
    moved += (session.kv_blocks() - held[turn % 2]) * kBlockBytes;
    CHECK(Becomes([&] { return Moved(other.metrics); }, moved) == moved);
    session.Add(answer);
  }
  for (Worker* worker : {&other, &cluster.tuned, &cluster.copy}) worker->AwaitBlocksFree();
}

// A conversation over HTTP, with the usage of each answer.
class Conversation {
 public:
  Conversation(const std::string& address, std::string salt) : http_(address), salt_(std::move(salt)) {}
  struct Reply {
    std::string text, finish_reason;
    int prompt = 0, cached = 0, made = 0;  // tokens
  };
  Reply Ask(const std::string& text, const std::string& model, int tokens) {
    messages_.push_back({{"role", "user"}, {"content", text}});
    const nlohmann::json body = {{"model", model},      {"messages", messages_}, {"session_id", "s"},
                                 {"cache_salt", salt_}, {"temperature", 0},      {"max_tokens", tokens}};
    http_.Post("/v1/chat/completions", body.dump());
    const HttpAnswer answer = http_.Read();
    INFO(answer.body);
    REQUIRE(answer.status == 200);
    const nlohmann::json read = nlohmann::json::parse(answer.body), &usage = read["usage"],
                         &choice = read["choices"][0];
    messages_.push_back(choice["message"]);
    return {choice["message"]["content"], choice["finish_reason"], usage["prompt_tokens"],
            usage["prompt_tokens_details"]["cached_tokens"], usage["completion_tokens"]};
  }

 private:
  HttpClient http_;
  std::string salt_;
  nlohmann::json messages_ = nlohmann::json::array();
};

TEST_CASE("A chat's next HTTP turn finds its answer cached, complete or cut off") {
  const Decoders made;
  // The tokenizer never merges these letters, so a text has the ids that generated it.
  const std::string letters = "bcdfghjklm";
  std::vector<int32_t> ids{1};  // </s>
  for (const char letter : letters) ids.push_back(letter - 31);
  Process serve("baton", {"serve", kModule, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--threads", "1",
                          "--kv-memory-mb", "8", "--decoder", made.Generating("letters", ids), "--decoder",
                          made.Reversed("tuned")});
  const std::string metrics = MetricsOf(serve), http = HttpOf(serve);
  double jobs = 0;
  for (const auto& [tokens, ended] : {std::pair(30, "length"), std::pair(100, "stop")}) {
    INFO(ended);
    Conversation chat(http, ended);
    const Conversation::Reply first = chat.Ask("Spell it.", "letters", tokens);
    INFO(first.text);
    REQUIRE(first.finish_reason == ended);
    REQUIRE(first.made >= 30);
    jobs += 2;
    CHECK(Becomes([&] { return JobsDone(metrics); }, jobs) == jobs);
    // The template continues as the model did: after its end of sequence, or at the length limit.
    const Conversation::Reply next = chat.Ask("Go on.", "tuned", 1);
    CHECK(next.cached == (first.prompt + first.made - 1) / kBlock * kBlock);
    CHECK(next.cached > first.prompt);
    jobs += 1;
  }
}

}  // namespace
}  // namespace baton
