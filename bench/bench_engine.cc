// What a decode worker's host does between two steps, for which a device waits: from the tokens of one step to the
// batch of the next. The backend of this program chooses tokens by itself and computes nothing.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/report.h"
#include "engine/decode/fixture.h"
#include "engine/decode/worker.h"

namespace baton {
namespace {

using SteadyTime = std::chrono::steady_clock::time_point;

SteadyTime Now() { return std::chrono::steady_clock::now(); }
double MicrosecondsSince(SteadyTime begin) { return std::chrono::duration<double, std::micro>(Now() - begin).count(); }

struct Options {
  std::vector<int> streams = {1, 16, 64, 256};
  int steps = 1000;
  int device_us = 500;  // that a step takes of the device
  std::string model;
  std::string json;
};

// Chooses a letter for each row, and takes as long as a device would.
class IdleBackend final : public Backend {
 public:
  IdleBackend(int64_t blocks, std::chrono::microseconds takes) : memory_(blocks), takes_(takes) {}
  const KvLayout& kv_layout() const override { return memory_.kv_layout(); }
  Slab kv_slab() override { return memory_.kv_slab(); }
  std::string numerics_id() const override { return memory_.numerics_id(); }

  using Backend::Forward;
  absl::StatusOr<LogitsView> Forward(const Batch& batch, absl::FunctionRef<bool(int64_t layer)>,
                                     const Meanwhile& meanwhile) override {
    const SteadyTime begin = Now();
    const auto rows = std::ssize(batch.slices);
    // The first steps, and those in which requests begin or end, are others.
    if (rows == last_rows_) gaps_us_.push_back(std::chrono::duration<double, std::micro>(begin - ended_).count());
    last_rows_ = rows;
    tokens_.assign(static_cast<size_t>(rows), {.id = 'n' - 'a', .logprob = 0});
    meanwhile.work();
    while (Now() < begin + takes_) {  // as a host waits for a GPU
    }
    ended_ = Now();
    return LogitsView{.rows = rows, .vocab = FakeBackend::kVocab, .sampled = tokens_};
  }
  // From the end of a step to the beginning of the next. REQUIRES: no step runs.
  const std::vector<double>& gaps_us() const { return gaps_us_; }

 private:
  FakeBackend memory_;
  const std::chrono::microseconds takes_;
  std::vector<SampledToken> tokens_;
  int64_t last_rows_ = 0;
  SteadyTime ended_;
  std::vector<double> gaps_us_;
};

class NoListener final : public DecodeListener {
 public:
  void OnUpdates(std::span<TokenUpdate>) override {}
  void OnFailed(const RequestFailed&) override {}
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

// A prompt of its own for each stream.
DecodeJob JobOf(int stream, const Setting& setting) {
  std::vector<TokenId> tokens(kPromptTokens, stream % 26);
  tokens[0] = stream / 26 % 26;
  return TestJob(absl::StrCat("0123456789abcdef#1.", stream), std::move(tokens), setting.options.steps);
}

// The engine alone: what is behind the gap, or `ahead` of the end of the step before.
nlohmann::json Phases(const Setting& setting, bool ahead) {
  IdleBackend backend(BlocksOf(setting), std::chrono::microseconds(0));
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
  DecodeEvents told;  // the last step's live until the next one's are there, as in a worker
  while (true) {
    SteadyTime begin = Now();
    DecodeStep* step = engine.BeginStep(now);
    if (step == nullptr) break;
    begin_us.push_back(MicrosecondsSince(begin));
    const absl::StatusOr<LogitsView> chosen = backend.Forward(step->batch, [](int64_t) { return true; });
    begin = Now();
    const bool next_begun = ahead && engine.BeginNext() != nullptr;
    next_us.push_back(MicrosecondsSince(begin));
    begin = Now();
    for (int64_t row = 0; row < chosen->rows; ++row) step->Sample(row, *chosen, scratch);
    take_us.push_back(MicrosecondsSince(begin));
    begin = Now();
    engine.FinishStep(absl::OkStatus(), next_begun);
    finish_us.push_back(MicrosecondsSince(begin));
    begin = Now();
    DecodeEvents events = engine.TakeEvents();
    tell_us.push_back(MicrosecondsSince(begin));
    told = std::move(events);
  }
  if (ahead) return {{"next_us", Median(next_us)}};
  return {{"begin_us", Median(begin_us)},
          {"take_us", Median(take_us)},
          {"finish_us", Median(finish_us)},
          {"tell_us", Median(tell_us)}};
}

// A worker and all of its threads.
nlohmann::json Gap(const Setting& setting) {
  const SteadyClock clock;
  NoListener listener;
  IdleBackend backend(BlocksOf(setting), std::chrono::microseconds(setting.options.device_us));
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

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("Measures what a decode worker's host does between two steps, while a device waits.");
  app.add_option("--streams", options.streams, "requests of one batch, for each case")->check(CLI::Range(1, 1024));
  app.add_option("--steps", options.steps, "of each measurement")->check(CLI::Range(10, 100000));
  app.add_option("--device-us", options.device_us, "what a step takes of the device")->check(CLI::Range(0, 1000000));
  app.add_option("--model", options.model, "directory whose tokenizer makes the text; default: one of the tests");
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
    const auto us = [&](const char* key) { return result[key].get<double>(); };
    std::printf(
        "%4d streams: %.1f us from step to step (tokens taken %.1f, step ended %.1f, next one begun %.1f); while a "
        "device computes, updates made %.1f, the next step begun %.1f\n",
        streams, us("gap_us"), us("take_us"), us("finish_us"), us("begin_us"), us("tell_us"), us("next_us"));
    report["cases"].push_back(std::move(result));
  }
  return WriteReport(report, options.json);
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) { return baton::Main(argc, argv); }
