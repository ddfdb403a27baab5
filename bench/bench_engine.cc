// Measures the work of a decode worker's host between two steps, while a device waits. That work
// begins with the tokens of one step and ends with the batch of the next step. The program also
// measures the cost of each token until it is sent. Its backend returns fixed tokens and computes
// nothing.
#include <CLI/CLI.hpp>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <ctime>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/allocations.h"
#include "bench/instant_workers.h"
#include "bench/report.h"
#include "engine/decode/worker.h"
#include "rpc/attach_client.h"
#include "shell/decode_service.h"
#include "world/decode_world.h"

namespace baton {
namespace {

using SteadyTime = std::chrono::steady_clock::time_point;

SteadyTime Now() { return std::chrono::steady_clock::now(); }
double MicrosecondsSince(SteadyTime begin) { return std::chrono::duration<double, std::micro>(Now() - begin).count(); }

struct Options {
  std::vector<int> streams = {1, 16, 64, 256};
  int steps = 1000;
  // Simulated duration of a step on the device.
  int device_us = 500;
  std::string model;
  std::string json;
};

// A backend that returns the same letter for each row, after the simulated duration of a step.
class IdleBackend final : public Backend {
 public:
  // Counts the allocations between steps of `rows_counted` rows.
  IdleBackend(int64_t blocks, std::chrono::microseconds takes, int64_t rows_counted)
      : memory_(blocks), takes_(takes), rows_counted_(rows_counted) {}
  const KvLayout& kv_layout() const override { return memory_.kv_layout(); }
  Slab kv_slab() override { return memory_.kv_slab(); }
  std::string numerics_id() const override { return memory_.numerics_id(); }

  using Backend::Forward;
  absl::StatusOr<LogitsView> Forward(const Batch& batch, absl::FunctionRef<bool(int64_t layer)>,
                                     const Meanwhile& meanwhile) override {
    const SteadyTime begin = Now();
    const auto rows = std::ssize(batch.slices);
    // Leaves out the first step, and steps in which requests begin or end.
    if (rows == last_rows_) gaps_us_.push_back(std::chrono::duration<double, std::micro>(begin - ended_).count());
    last_rows_ = rows;
    if (rows == rows_counted_) {
      if (steps_++ == 0) allocations_ = -ThreadAllocations();
      total_ = ThreadAllocations();
    }
    tokens_.assign(static_cast<size_t>(rows), {.id = 'n' - 'a', .logprob = 0});
    meanwhile.work();
    // Spins, as a host that waits for a GPU.
    while (Now() < begin + takes_) {
    }
    ended_ = Now();
    return LogitsView{.rows = rows, .vocab = FakeBackend::kVocab, .sampled = tokens_};
  }
  // Times from the end of a step to the beginning of the next. REQUIRES: no step runs.
  const std::vector<double>& gaps_us() const { return gaps_us_; }
  // Allocations of the thread that calls Forward. REQUIRES: no step runs.
  double allocations_per_token() const {
    return static_cast<double>(allocations_ + total_) / static_cast<double>((steps_ - 1) * rows_counted_);
  }

 private:
  FakeBackend memory_;
  const std::chrono::microseconds takes_;
  std::vector<SampledToken> tokens_;
  const int64_t rows_counted_;
  int64_t last_rows_ = 0, steps_ = 0, allocations_ = 0, total_ = 0;
  SteadyTime ended_;
  std::vector<double> gaps_us_;
};

class NoListener final : public DecodeListener {
 public:
  void OnUpdates(std::span<TokenUpdate>) override {}
  void OnFailed(const RequestFailed&) override {}
  void OnRoom(const RoomReport&) override {}
};

struct Setting {
  int streams = 0;
  const Options& options;
  const Tokenizer& tokenizer;
};

constexpr int64_t kPromptTokens = 20;

int64_t BlocksOf(const Setting& setting) {
  return setting.streams * BlocksFor(kPromptTokens + setting.options.steps + 1);
}

DecodeEngineOptions EngineOptions(const Setting& setting) {
  DecodeEngineOptions options = TestOptions(BlocksOf(setting));
  options.max_batch = setting.streams;
  options.model.tokenizer = &setting.tokenizer;
  options.model.positions = kPromptTokens + setting.options.steps + 1;
  return options;
}

// Makes a job. Each stream has a different prompt.
DecodeJob JobOf(int stream, const Setting& setting) {
  std::vector<TokenId> tokens(kPromptTokens, stream % 26);
  tokens[0] = stream / 26 % 26;
  return TestJob(absl::StrCat("0123456789abcdef#1.", stream), std::move(tokens), setting.options.steps);
}

// Measures the parts of the gap between two steps, with the engine alone. With `ahead`, measures
// the part that runs before the end of the step.
nlohmann::json Phases(const Setting& setting, bool ahead) {
  IdleBackend backend(BlocksOf(setting), std::chrono::microseconds(0), setting.streams);
  DecodeEngine engine(EngineOptions(setting));
  const absl::Time now = absl::UnixEpoch();
  BATON_CHECK(engine.handoff().OnLink(TestLink(), now).ok(), "the link was refused");
  for (int i = 0; i < setting.streams; ++i) {
    DecodeJob job = JobOf(i, setting);
    HandOff(
        job, backend.kv_slab().host(), [&](const ReserveRequest& r) { return engine.handoff().OnReserve(r, now); },
        [&](const Commit& c) { return engine.handoff().OnCommit(c, now); });
    BATON_CHECK(engine.Start(std::move(job), now).ok(), "a job was refused");
  }
  std::vector<double> begin_us, next_us, take_us, finish_us, tell_us;
  SamplerScratch scratch;
  // As in a worker, the events of a step live until those of the next step exist.
  DecodeEvents reported;
  while (true) {
    SteadyTime begin = Now();
    DecodeStep* step = engine.BeginStep(now);
    if (step == nullptr) break;
    begin_us.push_back(MicrosecondsSince(begin));
    const absl::StatusOr<LogitsView> chosen = backend.Forward(step->batch, [](int64_t) { return true; });
    begin = Now();
    const bool next_started = ahead && engine.BeginNext() != nullptr;
    next_us.push_back(MicrosecondsSince(begin));
    begin = Now();
    for (int64_t row = 0; row < chosen->rows; ++row) step->Sample(row, *chosen, scratch);
    take_us.push_back(MicrosecondsSince(begin));
    begin = Now();
    engine.FinishStep({.next_started = next_started});
    finish_us.push_back(MicrosecondsSince(begin));
    begin = Now();
    DecodeEvents events = engine.TakeEvents();
    tell_us.push_back(MicrosecondsSince(begin));
    reported = std::move(events);
  }
  if (ahead) return {{"next_us", Median(next_us)}};
  return {{"begin_us", Median(begin_us)},
          {"take_us", Median(take_us)},
          {"finish_us", Median(finish_us)},
          {"tell_us", Median(tell_us)}};
}

// Measures the gap between two steps in a worker with all its threads.
nlohmann::json Gap(const Setting& setting) {
  const SteadyClock clock;
  NoListener listener;
  IdleBackend backend(BlocksOf(setting), std::chrono::microseconds(setting.options.device_us), setting.streams);
  DecodeWorkerOptions options;
  options.engine = EngineOptions(setting);
  DecodeWorker worker(std::move(options), backend, listener, clock);
  BATON_CHECK(worker.OnLink(TestLink()).ok(), "the link was refused");
  for (int i = 0; i < setting.streams; ++i) {
    DecodeJob job = JobOf(i, setting);
    HandOff(
        job, backend.kv_slab().host(), [&](const ReserveRequest& r) { return worker.OnReserve(r); },
        [&](const Commit& c) { return worker.OnCommit(c); });
    BATON_CHECK(worker.Start(std::move(job)).ok(), "a job was refused");
  }
  worker.Shutdown(absl::InfiniteDuration());
  return {{"gap_us", Median(backend.gaps_us())}};
}

double ThreadCpuMicroseconds() {
  timespec time{};
  BATON_CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time) == 0, "no clock of the thread");
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) / 1e3;
}

// Measures the thread that delivers a worker's tokens to its service. The measurement begins with
// the second step.
class MeasuredListener final : public DecodeListener {
 public:
  explicit MeasuredListener(DecodeService& service) : service_(service) {}
  void OnUpdates(std::span<TokenUpdate> updates) override {
    if (steps_++ == 1) {
      cpu_us_ = -ThreadCpuMicroseconds();
      allocations_ = -ThreadAllocations();
    }
    if (steps_ > 1) tokens_ += std::ssize(updates);
    service_.OnUpdates(updates);
    total_us_ = ThreadCpuMicroseconds();
    total_ = ThreadAllocations();
  }
  void OnFailed(const RequestFailed& failed) override { service_.OnFailed(failed); }
  void OnRoom(const RoomReport& room) override { service_.OnRoom(room); }
  // REQUIRES: the worker has shut down.
  double cpu_us_per_token() const { return (cpu_us_ + total_us_) / static_cast<double>(tokens_); }
  double allocations_per_token() const {
    return static_cast<double>(allocations_ + total_) / static_cast<double>(tokens_);
  }

 private:
  DecodeService& service_;
  int64_t steps_ = 0, tokens_ = 0, allocations_ = 0, total_ = 0;
  double cpu_us_ = 0, total_us_ = 0;
};

// A router that starts jobs and drops their tokens.
class BenchRouter {
 public:
  explicit BenchRouter(const std::string& address)
      : stub_(worker::v1::DecodeWorker::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()))),
        stream_([](worker::v1::DecodeEvent&) {}, [this](const grpc::Status&) { OnDone(); }) {
    stream_.Start([this](grpc::ClientContext* context, Stream* stream) { stub_->async()->Attach(context, stream); });
  }
  ~BenchRouter() {
    stream_.Cancel();
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return done_; });
  }
  void Start(const DecodeJob& job) {
    worker::v1::DecodeCommand command;
    *command.mutable_decode() = ToProto(job);
    stream_.Send(std::move(command));
  }

 private:
  using Stream = AttachClient<worker::v1::DecodeCommand, worker::v1::DecodeEvent>;
  void OnDone() {
    const std::lock_guard lock(mutex_);
    done_ = true;
    changed_.notify_all();
  }

  std::unique_ptr<worker::v1::DecodeWorker::Stub> stub_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  Stream stream_;
};

// Measures a worker that sends its tokens to a router. The figures are allocations of the thread of
// the steps, and allocations and CPU time of the thread that delivers tokens. The router also uses
// gRPC's threads, so they are not counted.
nlohmann::json Tokens(const Setting& setting) {
  const SteadyClock clock;
  Metrics metrics;
  DecodeService service(metrics, "bench", /*vllm=*/false);
  MeasuredListener listener(service);
  IdleBackend backend(BlocksOf(setting), std::chrono::microseconds(setting.options.device_us), setting.streams);
  DecodeWorkerOptions options;
  options.engine = EngineOptions(setting);
  DecodeWorker worker(std::move(options), backend, listener, clock);
  service.Open(worker, Info(WorkerRole::kDecode, "", kDecodeIncarnation));
  auto server = GrpcServer::Start("127.0.0.1:0", GrpcServer::Audience::kWorkers, {&service});
  BATON_CHECK(server.ok(), server.status().ToString());
  BATON_CHECK(worker.OnLink(TestLink()).ok(), "the link was refused");
  {
    BenchRouter router((*server)->address());
    for (int i = 0; i < setting.streams; ++i) {
      DecodeJob job = JobOf(i, setting);
      HandOff(
          job, backend.kv_slab().host(), [&](const ReserveRequest& r) { return worker.OnReserve(r); },
          [&](const Commit& c) { return worker.OnCommit(c); });
      router.Start(job);
    }
    worker.Shutdown(absl::InfiniteDuration());
    service.Close();
  }
  return {{"deliver_cpu_us_per_token", listener.cpu_us_per_token()},
          {"deliver_allocations_per_token", listener.allocations_per_token()},
          {"step_allocations_per_token", backend.allocations_per_token()}};
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("Measures what a decode worker's host does between two steps, while a device waits.");
  app.add_option("--streams", options.streams, "requests of one batch, for each case")->check(CLI::Range(1, 1024));
  app.add_option("--steps", options.steps, "steps of each measurement")->check(CLI::Range(10, 100000));
  app.add_option("--device-us", options.device_us, "duration of a step on the device")->check(CLI::Range(0, 1000000));
  app.add_option("--model", options.model,
                 "model directory whose tokenizer makes the text; default: a tokenizer of the tests");
  app.add_option("--json", options.json, "write the results to this file");
  CLI11_PARSE(app, argc, argv);

  const Tokenizer* tokenizer = &TestTokenizer();
  std::unique_ptr<Tokenizer> loaded;
  if (!options.model.empty()) {
    absl::StatusOr<std::unique_ptr<Tokenizer>> model = Tokenizer::Load(options.model);
    if (!model.ok()) {
      std::fprintf(stderr, "%s\n", std::string(model.status().message()).c_str());
      return 1;
    }
    loaded = *std::move(model);
    tokenizer = loaded.get();
  }
  nlohmann::json report = {{"steps", options.steps}, {"device_us", options.device_us}};
  for (const int streams : options.streams) {
    const Setting setting{streams, options, *tokenizer};
    nlohmann::json result = {{"streams", streams}};
    result.update(Phases(setting, /*ahead=*/false));
    result.update(Phases(setting, /*ahead=*/true));
    result.update(Gap(setting));
    result.update(Tokens(setting));
    const auto us = [&](const char* key) { return result[key].get<double>(); };
    std::printf(
        "%4d streams: %.1f us from step to step (tokens taken %.1f, step ended %.1f, next one begun %.1f); while a "
        "device computes, updates made %.1f, the next step begun %.1f\n",
        streams, us("gap_us"), us("take_us"), us("finish_us"), us("begin_us"), us("tell_us"), us("next_us"));
    std::printf("              delivered: %.2f us CPU and %.2f allocations per token, in steps %.2f allocations\n",
                us("deliver_cpu_us_per_token"), us("deliver_allocations_per_token"), us("step_allocations_per_token"));
    report["cases"].push_back(std::move(result));
  }
  return WriteReport(report, options.json);
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) { return baton::Main(argc, argv); }
