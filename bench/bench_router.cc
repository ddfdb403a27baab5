// What the router costs: CPU of its process for each streamed token, and what it adds to a token's way to the client.
//
// The router runs in a process of its own, with real sockets on both sides. Workers and clients are in this process:
// workers make one token for each of their requests in every step and do nothing else, and the same workers serve the
// same messages to clients directly, for comparison. A token's id and its text are the step that made it, so that its
// receiver knows when it was sent. The router's HTTP front is measured beside its gRPC front.
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/logging.h"
#include "bench/http_streams.h"
#include "bench/report.h"
#include "inference.grpc.pb.h"
#include "model/byte_model.h"
#include "nlohmann/json.hpp"
#include "server/attach_server.h"
#include "server/grpc_server.h"
#include "server/router_node.h"
#include "server/worker_convert.h"
#include "worker.grpc.pb.h"

extern char** environ;

namespace baton {
namespace {

using Steady = std::chrono::steady_clock;

constexpr Incarnation kDecodeIncarnation{22};
constexpr int32_t kContext = 1 << 20;

struct Options {
  int streams = 64;
  int step_ms = 20;
  int rounds = 5;
  int seconds = 3;  // of each round, for each way
  std::string commit;
  std::string json;
  std::vector<std::string> router_of;  // prefill and decode worker: be the router
};

WorkerInfo Info(WorkerRole role, const std::string& address, Incarnation incarnation) {
  WorkerInfo info;
  info.role = role;
  info.address = address;
  info.incarnation = incarnation;
  info.model = "bytes";
  info.layout = {.layers = 1, .kv_heads = 1, .head_dim = 1, .element_bytes = 2};
  info.blocks_total = 1 << 20;
  info.context = kContext;
  info.max_batch = 1024;
  return info;
}

// When each step's tokens were sent. A step's slot is used again long after its tokens have arrived.
class SendTimes {
 public:
  void Set(int32_t step) { times_[Slot(step)] = Steady::now().time_since_epoch().count(); }
  double MicrosecondsSince(int32_t step) const {
    return static_cast<double>(Steady::now().time_since_epoch().count() - times_[Slot(step)]) / 1e3;
  }

 private:
  static size_t Slot(int32_t step) { return static_cast<size_t>(step) % 65536; }
  std::array<std::atomic<int64_t>, 65536> times_{};
};

// Computes nothing: every prompt is done at once.
class PrefillService final
    : public worker::v1::PrefillWorker::WithCallbackMethod_Attach<worker::v1::PrefillWorker::Service> {
 public:
  using Stream = AttachServer<worker::v1::PrefillCommand, worker::v1::PrefillEvent>;
  WorkerInfo info;

  grpc::ServerBidiReactor<worker::v1::PrefillCommand, worker::v1::PrefillEvent>* Attach(
      grpc::CallbackServerContext* context) override {
    auto* stream = new Stream(context, {[](Stream* s, auto& command) { OnCommand(s, command); }, [](Stream*) {}});
    worker::v1::PrefillEvent hello;
    *hello.mutable_info() = ToProto(info);
    stream->Send(std::move(hello));
    stream->Start();
    return stream;
  }

 private:
  static void OnCommand(Stream* stream, const worker::v1::PrefillCommand& command) {
    if (!command.has_prefill()) return;
    PrefillDone done;
    done.request_id = command.prefill().request_id();
    done.decode_incarnation = kDecodeIncarnation;
    worker::v1::PrefillEvent event;
    *event.mutable_done() = ToProto(done);
    stream->Send(std::move(event));
  }
};

class DecodeService final
    : public worker::v1::DecodeWorker::WithCallbackMethod_Attach<worker::v1::DecodeWorker::Service> {
 public:
  using Stream = AttachServer<worker::v1::DecodeCommand, worker::v1::DecodeEvent>;
  WorkerInfo info;

  grpc::ServerBidiReactor<worker::v1::DecodeCommand, worker::v1::DecodeEvent>* Attach(
      grpc::CallbackServerContext* context) override {
    auto* stream = new Stream(context, {[this](Stream*, auto& command) { OnCommand(command); },
                                        [this](Stream*) {
                                          const std::lock_guard lock(mutex_);
                                          stream_ = nullptr;
                                        }});
    const std::lock_guard lock(mutex_);
    stream_ = stream;
    worker::v1::DecodeEvent hello;
    *hello.mutable_info() = ToProto(info);
    stream->Send(std::move(hello));
    stream->Start();
    return stream;
  }
  void Step(int32_t step) {
    const std::lock_guard lock(mutex_);
    if (stream_ == nullptr || active_.empty()) return;
    worker::v1::DecodeEvent event;
    for (const RequestId& id : active_) {
      worker::v1::TokenUpdate& update = *event.mutable_updates()->add_updates();
      update.set_request_id(id);
      update.add_tokens(step);
      update.set_text(absl::StrCat("#", step));
    }
    stream_->Send(std::move(event));
  }

 private:
  void OnCommand(const worker::v1::DecodeCommand& command) {
    const std::lock_guard lock(mutex_);
    if (command.has_decode()) active_.push_back(command.decode().request_id());
    if (command.has_cancel()) std::erase(active_, command.cancel().request_id());
  }
  std::mutex mutex_;
  Stream* stream_ = nullptr;
  std::vector<RequestId> active_;
};

// The same tokens without a router: one stream for each client.
class DirectService final : public v1::Inference::WithCallbackMethod_Generate<v1::Inference::Service> {
 public:
  grpc::ServerWriteReactor<v1::GenerateResponse>* Generate(grpc::CallbackServerContext*,
                                                           const v1::GenerateRequest*) override {
    auto* stream = new Stream(this);
    const std::lock_guard lock(mutex_);
    streams_.push_back(stream);
    return stream;
  }
  void Step(int32_t step) {
    const std::lock_guard lock(mutex_);
    for (Stream* stream : streams_) stream->Send(step);
  }

 private:
  class Stream final : public grpc::ServerWriteReactor<v1::GenerateResponse> {
   public:
    explicit Stream(DirectService* service) : service_(service) {}
    void Send(int32_t step) {
      const std::lock_guard lock(mutex_);
      pending_.add_token_ids(step);
      pending_.mutable_text()->append(absl::StrCat("#", step));
      Continue();
    }
    void OnWriteDone(bool) override {
      const std::lock_guard lock(mutex_);
      writing_ = false;
      Continue();
    }
    void OnCancel() override {
      {
        const std::lock_guard lock(service_->mutex_);
        std::erase(service_->streams_, this);
      }
      Finish(grpc::Status::CANCELLED);
    }
    void OnDone() override { delete this; }

   private:
    void Continue() {
      if (writing_ || pending_.token_ids().empty()) return;
      writing_ = true;
      message_.Clear();
      message_.Swap(&pending_);
      StartWrite(&message_);
    }
    DirectService* service_;
    std::mutex mutex_;
    v1::GenerateResponse pending_, message_;
    bool writing_ = false;
  };
  std::mutex mutex_;
  std::vector<Stream*> streams_;
};

// All that makes tokens.
class Workers {
 public:
  Workers(const Options& options, SendTimes& times) {
    prefill_server_ = Start(prefill_);
    decode_server_ = Start(decode_);
    direct_server_ = Start(direct_);
    prefill_.info = Info(WorkerRole::kPrefill, prefill_server_->address(), Incarnation(11));
    decode_.info = Info(WorkerRole::kDecode, decode_server_->address(), kDecodeIncarnation);
    stepper_ = std::thread([this, &times, period = std::chrono::milliseconds(options.step_ms)] {
      auto next = Steady::now();
      for (int32_t step = 0; !stopping_; ++step) {
        std::this_thread::sleep_until(next += period);
        times.Set(step);
        decode_.Step(step);
        direct_.Step(step);
      }
    });
  }
  ~Workers() {
    stopping_ = true;
    stepper_.join();
  }
  const std::string& prefill() const { return prefill_server_->address(); }
  const std::string& decode() const { return decode_server_->address(); }
  const std::string& direct() const { return direct_server_->address(); }

 private:
  static std::unique_ptr<GrpcServer> Start(grpc::Service& service) {
    auto server = GrpcServer::Start("127.0.0.1:0", GrpcServer::Audience::kWorkers, {&service});
    BATON_CHECK(server.ok(), server.status().ToString());
    return *std::move(server);
  }
  PrefillService prefill_;
  DecodeService decode_;
  DirectService direct_;
  std::unique_ptr<GrpcServer> prefill_server_, decode_server_, direct_server_;
  std::atomic<bool> stopping_ = false;
  std::thread stepper_;
};

// One client with a connection of its own.
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

// The router's process: says where it listens, and ends with its standard input.
int BeRouter(const std::vector<std::string>& workers) {
  spdlog::set_level(spdlog::level::off);  // the address is all that it says
  RouterOptions options;
  options.listen = "127.0.0.1:0";
  options.http = "127.0.0.1:0";
  options.prefill_workers = {workers.at(0)};
  options.decode_workers = {workers.at(1)};
  std::vector<ServedModel> models;
  models.push_back(ByteModel("bytes"));
  models.back().context = kContext;
  SteadyClock clock;
  Metrics metrics;
  auto node = RouterNode::Start(options, std::move(models), DialTcp, clock, metrics);
  BATON_CHECK(node.ok(), node.status().ToString());
  std::printf("%s %s\n", (*node)->server().address().c_str(), (*node)->http()->address().c_str());
  std::fflush(stdout);
  while (std::getchar() != EOF) {
  }
  return 0;
}

class RouterProcess {
 public:
  explicit RouterProcess(const Workers& workers) {
    int in[2], out[2];
    BATON_CHECK(pipe(in) == 0 && pipe(out) == 0, "no pipe");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], 0);
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    posix_spawn_file_actions_addclose(&actions, in[1]);
    std::vector<std::string> words = {"bench_router", "--router-of", workers.prefill(), workers.decode()};
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    BATON_CHECK(posix_spawn(&pid_, "/proc/self/exe", &actions, nullptr, argv.data(), environ) == 0, "no process");
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    stdin_ = in[1];
    FILE* lines = fdopen(out[0], "r");
    char line[256] = {};
    BATON_CHECK(std::fgets(line, sizeof line, lines) != nullptr, "the router did not start");
    std::fclose(lines);
    const std::string said(line, std::strcspn(line, "\n"));
    address_ = said.substr(0, said.find(' '));
    http_ = said.substr(said.find(' ') + 1);
  }
  ~RouterProcess() {
    close(stdin_);
    waitpid(pid_, nullptr, 0);
  }
  const std::string& address() const { return address_; }
  const std::string& http() const { return http_; }
  double CpuMicroseconds() const {
    clockid_t clock;
    timespec time{};
    BATON_CHECK(clock_getcpuclockid(pid_, &clock) == 0 && clock_gettime(clock, &time) == 0, "no clock of the router");
    return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) / 1e3;
  }

 private:
  pid_t pid_ = -1;
  int stdin_ = -1;
  std::string address_, http_;
};

double Quantile(std::vector<double> values, double q) {
  BATON_CHECK(!values.empty(), "no token came");
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(q * static_cast<double>(values.size() - 1))];
}

class Bench {
 public:
  explicit Bench(const Options& options) : options_(options), workers_(options, times_), router_(workers_) {}

  nlohmann::json Run(int streams) {
    std::vector<double> direct_p50, routed_p50, http_p50, direct_p99, routed_p99, added, http_added, cpu, http_cpu;
    for (int round = 0; round < options_.rounds; ++round) {
      double cpu_us = 0;
      const std::vector<double> direct = Window(workers_.direct(), streams, cpu_us);
      const std::vector<double> routed = Window(router_.address(), streams, cpu_us);
      direct_p50.push_back(Quantile(direct, 0.5));
      routed_p50.push_back(Quantile(routed, 0.5));
      direct_p99.push_back(Quantile(direct, 0.99));
      routed_p99.push_back(Quantile(routed, 0.99));
      added.push_back(routed_p50.back() - direct_p50.back());
      cpu.push_back(cpu_us / static_cast<double>(routed.size()));
      const std::vector<double> http = HttpWindow(streams, cpu_us);
      http_p50.push_back(Quantile(http, 0.5));
      http_added.push_back(http_p50.back() - routed_p50.back());
      http_cpu.push_back(cpu_us / static_cast<double>(http.size()) - cpu.back());
    }
    const auto median = [](const std::vector<double>& values) { return Quantile(values, 0.5); };
    std::printf("%3d streams: router %.1f us CPU per token; p50 direct %.0f us, routed %.0f us, added %.0f us\n",
                streams, median(cpu), median(direct_p50), median(routed_p50), median(added));
    std::printf("             HTTP over gRPC: %+.1f us CPU per token; p50 %.0f us, added %+.0f us\n", median(http_cpu),
                median(http_p50), median(http_added));
    std::fflush(stdout);
    return {{"streams", streams},
            {"tokens_per_s", streams * 1000 / options_.step_ms},
            {"router_cpu_us_per_token", median(cpu)},
            {"router_cpu_us_per_token_best", *std::min_element(cpu.begin(), cpu.end())},
            {"direct_us", {{"p50", median(direct_p50)}, {"p99", median(direct_p99)}}},
            {"routed_us", {{"p50", median(routed_p50)}, {"p99", median(routed_p99)}}},
            {"http_cpu_us_per_token_over_grpc", median(http_cpu)},
            {"http_p50_us", median(http_p50)},
            {"http_p50_us_over_grpc", median(http_added)},
            {"added_p50_us", median(added)},
            {"added_p50_us_best", *std::min_element(added.begin(), added.end())}};
  }

 private:
  // All latencies of a while, after everything is connected, and the router's CPU time meanwhile.
  std::vector<double> Window(const std::string& address, int streams, double& cpu_us) {
    std::vector<std::unique_ptr<Client>> clients;
    for (int i = 0; i < streams; ++i) clients.push_back(std::make_unique<Client>(address, times_));
    for (const auto& client : clients) client->AwaitFirst();
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    for (const auto& client : clients) client->Measure(true);
    cpu_us = -router_.CpuMicroseconds();
    std::this_thread::sleep_for(std::chrono::seconds(options_.seconds));
    cpu_us += router_.CpuMicroseconds();
    for (const auto& client : clients) client->Measure(false);
    std::vector<double> latencies;
    for (const auto& client : clients) {
      const std::vector<double> of_client = client->TakeLatencies();
      latencies.insert(latencies.end(), of_client.begin(), of_client.end());
    }
    return latencies;
  }

  // The same over HTTP.
  std::vector<double> HttpWindow(int streams, double& cpu_us) {
    HttpStreams clients(router_.http(), streams, [this](int step) { return times_.MicrosecondsSince(step); });
    clients.AwaitFirst();
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    clients.Measure(true);
    cpu_us = -router_.CpuMicroseconds();
    std::this_thread::sleep_for(std::chrono::seconds(options_.seconds));
    cpu_us += router_.CpuMicroseconds();
    clients.Measure(false);
    return clients.TakeLatencies();
  }

  const Options options_;
  SendTimes times_;
  Workers workers_;
  RouterProcess router_;
};

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
      "Measures the router: CPU per streamed token and added latency, against its targets 15 us and 0.3 ms, "
      "and what HTTP adds to gRPC, against 10 us.");
  app.add_option("--streams", options.streams, "requests that stream at a time")->check(CLI::Range(1, 1024));
  app.add_option("--step-ms", options.step_ms, "time between a request's tokens")->check(CLI::Range(1, 1000));
  app.add_option("--rounds", options.rounds, "measurements of each case")->check(CLI::Range(1, 1000));
  app.add_option("--seconds", options.seconds, "of each measurement")->check(CLI::Range(1, 1000));
  app.add_option("--commit", options.commit, "noted in the results");
  app.add_option("--json", options.json, "write the results to this file");
  app.add_option("--router-of", options.router_of, "for the program itself")->expected(2)->group("");
  CLI11_PARSE(app, argc, argv);
  if (!options.router_of.empty()) return BeRouter(options.router_of);

  nlohmann::json report = {
      {"machine", CpuName()},
      {"threads", std::thread::hardware_concurrency()},
      {"date", absl::FormatTime("%Y-%m-%d", absl::Now(), absl::UTCTimeZone())},
      {"commit", options.commit},
      {"step_ms", options.step_ms},
      {"rounds", options.rounds},
      {"seconds", options.seconds},
      {"targets", {{"router_cpu_us_per_token", 15}, {"added_p50_us", 300}, {"http_cpu_us_per_token_over_grpc", 10}}}};
  {
    Bench bench(options);
    for (const int streams : {1, options.streams}) report["cases"].push_back(bench.Run(streams));
  }
  return WriteReport(report, options.json);
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) { return baton::Main(argc, argv); }
