// Tests with real processes: the wall clock is set while they serve. Debian's libfaketime shows the
// processes a wall clock that the test sets. Their monotonic clock and the test's clocks are real.
#include <glob.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "await.h"
#include "base/clock.h"
#include "base/strings.h"
#include "catch.h"
#include "frontend/api_keys.h"
#include "http_client.h"
#include "nlohmann/json.hpp"
#include "programs.h"
#include "scrape.h"
#include "temp_dir.h"

namespace baton {
namespace {

// libfaketime does not change waits in the kernel. A wait until a time of the processes' wall clock
// would last hours longer while that clock is ahead of the real one. It would end at once while the
// clock is behind.
constexpr absl::Duration kBegin = absl::Hours(2);
// The tests set the clock an hour on, and then back.
constexpr std::array kSteps = {absl::Hours(3), absl::Hours(-1)};
// In seconds.
constexpr int kGrace = 3;

// Returns an empty text if libfaketime is absent.
std::string LibFaketime() {
  glob_t found{};
  const bool any = glob("/usr/lib/*/faketime/libfaketimeMT.so.1", 0, nullptr, &found) == 0;
  const std::string path = any ? found.gl_pathv[0] : "";
  globfree(&found);
  return path;
}

// If libfaketime is absent, the test fails under ctest, and is skipped if the binary runs alone.
bool CanFakeTime() {
  if (!LibFaketime().empty()) return true;
  const std::string reason = "there is no libfaketime: run tools/setup, which installs Debian's package libfaketime";
  if (std::getenv("CLUSTER_LIBFAKETIME") != nullptr) FAIL(reason);
  std::cout << "SKIPPED: the wall clock is set while processes serve: " << reason << "\n";
  return false;
}

// The wall clock of the processes that Faked starts.
class WallClock {
 public:
  WallClock() { Set(kBegin); }
  // Sets the clock to the real time and `ahead`. A process may read the old time for 2 s more,
  // because absl::Now() reads the clock at that period and counts cycles in between.
  void Set(absl::Duration ahead) {
    ahead_ = ahead;
    directory_.Write("new", absl::StrCat(ahead < absl::ZeroDuration() ? "" : "+", absl::ToInt64Seconds(ahead), "s"));
    std::filesystem::rename(directory_ / "new", directory_ / "now");
  }
  // Waits until absl::Now() of the router at this HTTP address has the new time.
  void AwaitSeen(const std::string& http) const {
    Await("the router's new wall clock", [&] {
      HttpClient client(http);
      REQUIRE(client.Get("/health"));
      const std::string date = client.Read().headers["date"];
      INFO(date);
      absl::Time shown;
      REQUIRE(absl::ParseTime("%a, %d %b %Y %H:%M:%S GMT", date, &shown, nullptr));
      return absl::AbsDuration(shown - (absl::Now() + ahead_)) < absl::Minutes(10);
    });
  }
  // The arguments of /usr/bin/env that start a program with this clock.
  std::vector<std::string> Faked(const std::string& program, const std::vector<std::string>& arguments) const {
    std::vector<std::string> words = {absl::StrCat("LD_PRELOAD=", LibFaketime()),
                                      absl::StrCat("FAKETIME_TIMESTAMP_FILE=", directory_ / "now"),
                                      "FAKETIME_NO_CACHE=1",
                                      "FAKETIME_DONT_FAKE_MONOTONIC=1",
                                      "NO_FAKE_STAT=1",
                                      absl::StrCat(BATON_BIN_DIR, "/", program)};
    words.insert(words.end(), arguments.begin(), arguments.end());
    return words;
  }

 private:
  TempDir directory_;
  absl::Duration ahead_;
};

class FakedProcess : public Process {
 public:
  FakedProcess(const WallClock& clock, const std::string& program, const std::vector<std::string>& arguments)
      : Process("/usr/bin/env", clock.Faked(program, arguments)) {}
  // Ends the process in order, because one that is killed leaves shared memory of libfaketime.
  ~FakedProcess() {
    Signal(SIGTERM);
    Signal(SIGCONT);
    Wait();
  }
};

// A prefill worker, a decode worker and a router.
struct FakedCluster {
  WallClock clock;
  FakedProcess prefill{clock, "baton-prefill", Small({"--listen", "127.0.0.1:0", "--guard-kv"})};
  FakedProcess decode{clock, "baton-decode", Small({"--listen", "127.0.0.1:0", "--guard-kv"})};
  FakedProcess router{clock,
                      "baton-router",
                      {"--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--model", kModel, "--prefill-workers",
                       prefill.Await("listening on "), "--decode-workers", decode.Await("listening on "), "--grace",
                       absl::StrCat(kGrace)}};
  const std::string prefill_metrics = MetricsOf(prefill), http = HttpOf(router);
  const std::unique_ptr<v1::Inference::Stub> stub = v1::Inference::NewStub(
      grpc::CreateCustomChannel(router.Await("listening on "), grpc::InsecureChannelCredentials(), SmallWindow()));

  // With these arguments, a client that does not read soon makes the server wait.
  static grpc::ChannelArguments SmallWindow() {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 4 << 10);
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    return arguments;
  }

  std::vector<int32_t> ids;  // of each answer of Answer
  int answers = 0;

  // Number of hand-offs that failed. The router repeats them after 2 s.
  double FailedHandoffs() const {
    const auto count = [&](const std::string& labels) {
      return Scrape(prefill_metrics, absl::StrCat("baton_handoffs_total{", labels, "}")).value();
    };
    return count("") - count("code=\"OK\"");
  }

  // Generates answers for more than a second. absl::Now() of the processes then counts cycles,
  // because it was called twice with 0.5 s or more in between.
  void Serve() {
    const SteadyClock steady;
    const absl::Time until = steady.Now() + absl::Seconds(1);
    do {
      Answer();
    } while (steady.Now() < until);
  }
  // Generates an answer to a prompt that was not cached, by a call with a deadline.
  void Answer() {
    v1::GenerateRequest request = MakeRequest(/*max_tokens=*/8);
    request.set_cache_salt(absl::StrCat(++answers));
    Call call(*stub, request, GRPC_COMPRESS_NONE, absl::Minutes(30));
    const absl::Status status = call.Finish();
    INFO(Message(status));
    CHECK(status.ok());
    if (ids.empty()) ids = call.ids;
    CHECK(call.ids == ids);
  }

  // Starts a stream over gRPC and one over HTTP, which both generate the answer to `request`. Stops
  // the decode worker before either ends. The gRPC client reads only the first message, so that the
  // router waits for it to read.
  std::unique_ptr<Call> StopWhileItStreams(const v1::GenerateRequest& request, HttpClient& client) {
    while (true) {
      const int64_t before = ServerInfoOf(*stub).completion_tokens();
      PostCompletion(client, request);
      auto call = std::make_unique<Call>(*stub, request);
      REQUIRE(call->Read());
      Await("half of two answers",
            [&] { return ServerInfoOf(*stub).completion_tokens() - before >= request.sampling().max_tokens(); });
      decode.Signal(SIGSTOP);
      if (ServerInfoOf(*stub).live_requests() == 2) return call;
      decode.Signal(SIGCONT);
      REQUIRE(call->Finish().ok());
      ReadCompletion(client);
    }
  }

  static void PostCompletion(HttpClient& client, const v1::GenerateRequest& request) {
    const std::string prompt = absl::StrJoin(request.segments().segments(0).token_ids().ids(), ",");
    REQUIRE(client.Post("/v1/completions",
                        absl::StrCat("{\"prompt\":[", prompt, "],\"max_tokens\":", request.sampling().max_tokens(),
                                     ",\"temperature\":0,\"ignore_eos\":true,\"stream\":true}")));
  }
  // Returns the text of a streamed answer.
  static std::string ReadCompletion(HttpClient& client) {
    const HttpAnswer answer = client.Read();
    INFO(answer.body);
    REQUIRE(answer.status == 200);
    REQUIRE(answer.body.ends_with("data: [DONE]\n\n"));
    std::string text;
    for (const auto event : absl::StrSplit(answer.body, "data: {", absl::SkipEmpty())) {
      const std::string json = absl::StrCat("{", *absl::StrSplit(event, '\n').begin());
      text += nlohmann::json::parse(json)["choices"][0]["text"].get<std::string>();
    }
    return text;
  }
};

TEST_CASE("Streams go on when the wall clock is set") {
  if (!CanFakeTime()) return;
  FakedCluster cluster;
  v1::GenerateRequest request = MakeRequest(/*max_tokens=*/460);  // the model's sequences have 512
  request.mutable_sampling()->set_logprobs(20);
  Call whole(*cluster.stub, request);
  REQUIRE(whole.Finish().ok());
  HttpClient client(cluster.http);
  FakedCluster::PostCompletion(client, request);
  const std::string text = FakedCluster::ReadCompletion(client);
  for (const absl::Duration ahead : kSteps) {
    const auto call = cluster.StopWhileItStreams(request, client);
    cluster.clock.Set(ahead);
    cluster.clock.AwaitSeen(cluster.http);
    cluster.decode.Signal(SIGCONT);
    CHECK(FakedCluster::ReadCompletion(client) == text);
    const absl::Status status = call->Finish();
    INFO(Message(status));
    CHECK(status.ok());
    CHECK(call->ids == whole.ids);
  }
}

TEST_CASE("Calls with a deadline succeed when the wall clock is set") {
  if (!CanFakeTime()) return;
  FakedCluster cluster;
  cluster.Serve();
  const double failed_before = cluster.FailedHandoffs();
  for (const absl::Duration ahead : kSteps) {
    cluster.clock.Set(ahead);
    cluster.Answer();  // absl::Now() still returns the old time
    cluster.clock.AwaitSeen(cluster.http);
    cluster.Serve();
  }
  CHECK(cluster.FailedHandoffs() == failed_before);
}

TEST_CASE("--grace lasts as long as it is when the wall clock is set", "[waits]") {
  if (!CanFakeTime()) return;
  for (const absl::Duration ahead : kSteps) {
    FakedCluster cluster;
    HttpClient client(cluster.http);
    const auto call = cluster.StopWhileItStreams(MakeRequest(/*max_tokens=*/460), client);
    const SteadyClock steady;
    const absl::Time begin = steady.Now();
    cluster.router.Signal(SIGTERM);
    cluster.clock.Set(ahead);
    CHECK_FALSE(call->Finish().ok());
    CHECK(steady.Now() - begin >= absl::Seconds(kGrace));
    CHECK(cluster.router.Wait() == 0);
  }
}

// `baton serve` with a key, and calls to it.
struct FakedServe {
  WallClock clock;
  const NewKey key = DrawKey();
  TempDir directory;
  const std::string keys = WriteKeys();
  FakedProcess serve{clock,
                     "baton",
                     {"serve", kModel, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--threads", "1",
                      "--kv-memory-mb", "8", "--keys", keys}};
  const std::string http = HttpOf(serve);
  const std::unique_ptr<v1::Inference::Stub> stub = v1::Inference::NewStub(DialTcp(serve.Await("listening on ")));

  std::string WriteKeys() const {
    directory.Write("keys.toml", absl::StrCat("[alpha]\nkeys = [\"", key.hash, "\"]\ntokens_per_minute = 4\n"));
    return directory / "keys.toml";
  }
  grpc::StatusCode Generate(const std::string& authorization) {
    grpc::ClientContext context;
    context.AddMetadata("authorization", authorization);
    const auto reader = stub->Generate(&context, MakeRequest(/*max_tokens=*/100));
    v1::GenerateResponse response;
    while (reader->Read(&response)) continue;
    return reader->Finish().error_code();
  }
};

TEST_CASE("A quota of tokens holds when the wall clock is set") {
  if (!CanFakeTime()) return;
  FakedServe server;
  const auto generate = [&] { return server.Generate("Bearer " + server.key.key); };
  REQUIRE(generate() == grpc::StatusCode::OK);  // exceeds the quota by half an hour
  CHECK(generate() == grpc::StatusCode::RESOURCE_EXHAUSTED);
  for (const absl::Duration ahead : kSteps) {
    server.clock.Set(ahead);
    CHECK(generate() == grpc::StatusCode::RESOURCE_EXHAUSTED);
    server.clock.AwaitSeen(server.http);
    CHECK(generate() == grpc::StatusCode::RESOURCE_EXHAUSTED);
  }
}

TEST_CASE("A log line appears once in 10 s when the wall clock is set", "[waits]") {
  if (!CanFakeTime()) return;
  FakedServe server;
  const auto lines = [&] {
    CHECK(server.Generate("Bearer wrong") == grpc::StatusCode::UNAUTHENTICATED);
    const std::vector<std::string> parts = absl::StrSplit(server.serve.Output(), "with an unknown key");
    return std::ssize(parts) - 1;
  };
  const SteadyClock steady;
  const absl::Time begin = steady.Now();
  REQUIRE(lines() == 1);
  for (const absl::Duration ahead : kSteps) {
    server.clock.Set(ahead);
    server.clock.AwaitSeen(server.http);
    lines();
  }
  Await("a second line about an unknown key", [&] { return lines() > 1; });
  CHECK(steady.Now() - begin >= absl::Seconds(10));
}

}  // namespace
}  // namespace baton
