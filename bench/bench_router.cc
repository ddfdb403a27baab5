// Measures the cost of the router: CPU time and allocations for each streamed token, and the
// latency that it adds to a token.
//
// - The router runs in its own process, with real sockets on both sides. Workers and clients are in
//   this process.
// - Workers make one token for each of their requests in every step, and do nothing else. For
//   comparison, they also serve the same messages directly to clients.
// - The id and the text of a token are the number of its step. The receiver uses the number to find
//   the time at which the token was sent.
// - The program measures the router's gRPC front and its HTTP front.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/check.h"
#include "bench/http_front.h"
#include "bench/http_streams.h"
#include "bench/instant_workers.h"
#include "bench/report.h"
#include "bench/router_process.h"
#include "inference.grpc.pb.h"
#include "nlohmann/json.hpp"

namespace baton {
namespace {

struct Options {
  int streams = 64;
  int step_ms = 20;
  int rounds = 5;
  // Duration of each measurement of a round.
  int seconds = 3;
  std::string commit;
  std::string json;
  // Addresses of a prefill and a decode worker. If set, this process is the router.
  std::vector<std::string> router_of;
  // Upper bound on the live requests of that router.
  int64_t max_requests = 0;
};

// A client with its own connection.
class Client final : public grpc::ClientReadReactor<v1::GenerateResponse> {
 public:
  Client(const std::string& address, const SendTimes& times) : times_(times) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    stub_ = v1::Inference::NewStub(grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
    request_.set_model("bytes");
    request_.mutable_segments()->add_segments()->set_text("hello");
    request_.mutable_sampling()->set_max_tokens(kContext / 2);
    stub_->async()->Generate(&context_, &request_, this);
    StartRead(&response_);
    StartCall();
  }
  ~Client() override {
    context_.TryCancel();
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return done_; });
  }
  void AwaitFirst() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return started_ || done_; });
    BATON_CHECK(started_, status_.error_message());
  }
  void Measure(bool measuring) {
    const std::lock_guard lock(mutex_);
    measuring_ = measuring;
  }
  std::vector<double> TakeLatencies() {
    const std::lock_guard lock(mutex_);
    return std::exchange(latencies_us_, {});
  }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    {
      const std::lock_guard lock(mutex_);
      if (measuring_) {
        for (const int32_t step : response_.token_ids()) latencies_us_.push_back(times_.MicrosecondsSince(step));
      }
      if (!started_ && response_.token_ids_size() > 0) {
        started_ = true;
        changed_.notify_all();
      }
    }
    StartRead(&response_);
  }
  void OnDone(const grpc::Status& status) override {
    const std::lock_guard lock(mutex_);
    status_ = status;
    done_ = true;
    changed_.notify_all();
  }

 private:
  const SendTimes& times_;
  std::unique_ptr<v1::Inference::Stub> stub_;
  grpc::ClientContext context_;
  v1::GenerateRequest request_;
  v1::GenerateResponse response_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<double> latencies_us_;
  bool measuring_ = false, started_ = false, done_ = false;
  grpc::Status status_;
};

double Quantile(std::vector<double> values, double q) {
  BATON_CHECK(!values.empty(), "no token came");
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(q * static_cast<double>(values.size() - 1))];
}

class Bench {
 public:
  explicit Bench(const Options& options) : options_(options), workers_(options.step_ms, times_), router_(workers_) {}

  nlohmann::json Run(int streams) {
    std::vector<double> direct_p50, routed_p50, http_p50, direct_p99, routed_p99, added, http_added, cpu, http_cpu;
    std::vector<double> allocations, http_allocations;
    for (int round = 0; round < options_.rounds; ++round) {
      Costs costs;
      const std::vector<double> direct = Window(workers_.direct(), streams, costs);
      const std::vector<double> routed = Window(router_.address(), streams, costs);
      direct_p50.push_back(Quantile(direct, 0.5));
      routed_p50.push_back(Quantile(routed, 0.5));
      direct_p99.push_back(Quantile(direct, 0.99));
      routed_p99.push_back(Quantile(routed, 0.99));
      added.push_back(routed_p50.back() - direct_p50.back());
      cpu.push_back(costs.cpu_us / static_cast<double>(routed.size()));
      allocations.push_back(costs.allocations / static_cast<double>(routed.size()));
      const std::vector<double> http = HttpWindow(streams, costs);
      http_p50.push_back(Quantile(http, 0.5));
      http_added.push_back(http_p50.back() - routed_p50.back());
      http_cpu.push_back(costs.cpu_us / static_cast<double>(http.size()) - cpu.back());
      http_allocations.push_back(costs.allocations / static_cast<double>(http.size()));
    }
    const auto median = [](const std::vector<double>& values) { return Quantile(values, 0.5); };
    std::printf(
        "%3d streams: router %.1f us CPU and %.1f allocations per token; p50 direct %.0f us, routed %.0f us, added "
        "%.0f us\n",
        streams, median(cpu), median(allocations), median(direct_p50), median(routed_p50), median(added));
    std::printf("             HTTP over gRPC: %+.1f us CPU per token; %.1f allocations; p50 %.0f us, added %+.0f us\n",
                median(http_cpu), median(http_allocations), median(http_p50), median(http_added));
    std::fflush(stdout);
    return {{"streams", streams},
            {"tokens_per_s", streams * 1000 / options_.step_ms},
            {"router_cpu_us_per_token", median(cpu)},
            {"router_cpu_us_per_token_best", *std::min_element(cpu.begin(), cpu.end())},
            {"router_allocations_per_token", median(allocations)},
            {"http_allocations_per_token", median(http_allocations)},
            {"direct_us", {{"p50", median(direct_p50)}, {"p99", median(direct_p99)}}},
            {"routed_us", {{"p50", median(routed_p50)}, {"p99", median(routed_p99)}}},
            {"http_cpu_us_per_token_over_grpc", median(http_cpu)},
            {"http_p50_us", median(http_p50)},
            {"http_p50_us_over_grpc", median(http_added)},
            {"added_p50_us", median(added)},
            {"added_p50_us_best", *std::min_element(added.begin(), added.end())}};
  }

 private:
  // Costs of the router's process during a measurement.
  struct Costs {
    double cpu_us = 0, allocations = 0;
  };
  Costs Measure() {
    Costs costs{-router_.CpuMicroseconds(), -router_.AllocationCount()};
    std::this_thread::sleep_for(std::chrono::seconds(options_.seconds));
    costs.cpu_us += router_.CpuMicroseconds();
    costs.allocations += router_.AllocationCount();
    return costs;
  }

  // Connects clients and measures for a while. Returns all latencies, and the router's costs in
  // `costs`.
  std::vector<double> Window(const std::string& address, int streams, Costs& costs) {
    std::vector<std::unique_ptr<Client>> clients;
    for (int i = 0; i < streams; ++i) clients.push_back(std::make_unique<Client>(address, times_));
    for (const auto& client : clients) client->AwaitFirst();
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    for (const auto& client : clients) client->Measure(true);
    costs = Measure();
    for (const auto& client : clients) client->Measure(false);
    std::vector<double> latencies;
    for (const auto& client : clients) {
      const std::vector<double> of_client = client->TakeLatencies();
      latencies.insert(latencies.end(), of_client.begin(), of_client.end());
    }
    return latencies;
  }

  // Window() for HTTP.
  std::vector<double> HttpWindow(int streams, Costs& costs) {
    HttpStreams clients(router_.http(), streams, [this](int step) { return times_.MicrosecondsSince(step); });
    clients.AwaitFirst();
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    clients.Measure(true);
    costs = Measure();
    clients.Measure(false);
    return clients.TakeLatencies();
  }

  const Options options_;
  SendTimes times_;
  Workers workers_;
  RouterProcess router_;
};

// Measures further costs of the HTTP front: the first token compared with gRPC, the memory of an
// idle stream, and the time of /metrics.
nlohmann::json MeasureFront(const Options& options) {
  constexpr int kIdle = 1000, kCalls = 200;
  SendTimes times;
  Workers workers(options.step_ms, times);
  const RouterProcess router(workers);
  HttpCaller caller(router.http());
  std::vector<double> grpc, http, added, metrics;
  for (int round = 0; round < options.rounds; ++round) {
    std::vector<double> of_http;
    for (int i = 0; i < kCalls; ++i) of_http.push_back(caller.FirstToken().first_token_us);
    grpc.push_back(Quantile(GrpcFirstTokens(router.address(), kCalls), 0.5));
    http.push_back(Quantile(of_http, 0.5));
    added.push_back(http.back() - grpc.back());
  }
  const double before = router.ResidentBytes();
  HttpStreams streams(router.http(), kIdle, [](int) { return 0.0; });
  streams.AwaitFirst();
  workers.Pause(true);
  const double idle_bytes = (router.ResidentBytes() - before) / kIdle;
  for (int i = 0; i < kCalls; ++i) metrics.push_back(caller.Metrics().end_us);
  std::printf(
      "first token: gRPC %.0f us, HTTP %.0f us, added %+.0f us; %d idle streams: %.1f kB each, /metrics %.2f ms\n",
      Median(grpc), Median(http), Median(added), kIdle, idle_bytes / 1e3, Median(metrics) / 1e3);
  return {{"first_token_us",
           {{"grpc", Median(grpc)}, {"http", Median(http)}, {"added", Median(added)}, {"added_by_round", added}}},
          {"idle_streams", kIdle},
          {"idle_stream_bytes", idle_bytes},
          {"metrics_us", Median(metrics)}};
}

// Measures a full router: the time until it refuses a client that repeats its request without a
// pause, and the effect of these requests on running streams.
nlohmann::json MeasureOverload(const Options& options) {
  SendTimes times;
  Workers workers(options.step_ms, times);
  const RouterProcess router(workers, options.streams);
  HttpStreams streams(router.http(), options.streams, [&](int step) { return times.MicrosecondsSince(step); });
  streams.AwaitFirst();
  const auto while_measuring = [&](auto&& work) {
    streams.Measure(true);
    work();
    streams.Measure(false);
    return Quantile(streams.TakeLatencies(), 0.5);
  };
  const double quiet = while_measuring([&] { std::this_thread::sleep_for(std::chrono::seconds(options.seconds)); });
  std::vector<double> refusals;
  HttpCaller caller(router.http());
  const double busy = while_measuring([&] {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(options.seconds);
    while (std::chrono::steady_clock::now() < end) {
      const HttpCaller::Answer answer = caller.FirstToken();
      BATON_CHECK(answer.status == 429 && answer.retry_after, "expected 429 with Retry-After");
      refusals.push_back(answer.end_us);
    }
  });
  std::printf("overload: refused in %.2f ms, p99 %.2f ms; tokens of %d streams: p50 %.0f us, %.0f us meanwhile\n",
              Quantile(refusals, 0.5) / 1e3, Quantile(refusals, 0.99) / 1e3, options.streams, quiet, busy);
  return {{"streams", options.streams},
          {"refusals", refusals.size()},
          {"refusal_us", {{"p50", Quantile(refusals, 0.5)}, {"p99", Quantile(refusals, 0.99)}}},
          {"token_p50_us", {{"before", quiet}, {"meanwhile", busy}}}};
}

std::string CpuName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app(
      "Measures the router: CPU per streamed token and added latency, against its targets 15 us and 0.3 ms; the cost "
      "that HTTP adds to gRPC, against 10 us and, for the first token, 0.3 ms; memory of idle streams (50 kB), the "
      "time of /metrics (5 ms), and the time to a refusal when the router is full (50 ms).");
  app.add_option("--streams", options.streams, "requests that stream at a time")->check(CLI::Range(1, 1024));
  app.add_option("--step-ms", options.step_ms, "time between a request's tokens")->check(CLI::Range(1, 1000));
  app.add_option("--rounds", options.rounds, "measurements of each case")->check(CLI::Range(1, 1000));
  app.add_option("--seconds", options.seconds, "seconds of each measurement")->check(CLI::Range(1, 1000));
  app.add_option("--commit", options.commit, "commit to record in the results");
  app.add_option("--json", options.json, "write the results to this file");
  app.add_option("--router-of", options.router_of, "for the program itself")->expected(2)->group("");
  app.add_option("--max-requests", options.max_requests, "for the program itself")->group("");
  CLI11_PARSE(app, argc, argv);
  if (!options.router_of.empty()) return BeRouter(options.router_of, options.max_requests);

  nlohmann::json report = {{"machine", CpuName()},
                           {"threads", std::thread::hardware_concurrency()},
                           {"date", absl::FormatTime("%Y-%m-%d", absl::Now(), absl::UTCTimeZone())},
                           {"commit", options.commit},
                           {"step_ms", options.step_ms},
                           {"rounds", options.rounds},
                           {"seconds", options.seconds},
                           {"targets",
                            {{"router_cpu_us_per_token", 15},
                             {"added_p50_us", 300},
                             {"http_cpu_us_per_token_over_grpc", 10},
                             {"first_token_added_us", 300},
                             {"idle_stream_bytes", 50000},
                             {"metrics_us", 5000},
                             {"refusal_us", 50000}}}};
  {
    Bench bench(options);
    for (const int streams : {1, options.streams}) report["cases"].push_back(bench.Run(streams));
  }
  report["http"] = MeasureFront(options);
  report["overload"] = MeasureOverload(options);
  return WriteReport(report, options.json);
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) { return baton::Main(argc, argv); }
