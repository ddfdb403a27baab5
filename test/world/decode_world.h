// The surroundings of a decode worker for tests: a tokenizer, a prefill worker that hands prompts
// off at once, and a driver of steps without threads.
#pragma once

#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/check.h"
#include "engine/decode/engine.h"
#include "engine/decode/swap.h"
#include "kv/prefix_key.h"
#include "text/tokenizer.h"
#include "world/accounts.h"
#include "world/fake_backend.h"

namespace baton {

// Token i < 26 is the letter 'a' + i. Tokens 26 to 30 are the five bytes of the characters "é" and
// "€". Other tokens up to 48 are capitals. Token 49 is special.
class FakeTokenizer final : public Tokenizer {
 public:
  static constexpr TokenId kSpecial = 49;
  // The tokens of "<think>" and "</think>". Their bytes are single letters, as those of all others.
  static constexpr TokenId kThink = 47, kThinkEnd = 48;
  FakeTokenizer() {
    for (int i = 0; i < 26; ++i) bytes_.push_back(std::string(1, static_cast<char>('a' + i)));
    for (const char c : std::string("\xc3\xa9\xe2\x82\xac")) bytes_.push_back(std::string(1, c));
    for (int i = 31; i < FakeBackend::kVocab; ++i) bytes_.push_back(std::string(1, static_cast<char>('A' + i - 31)));
  }
  // One token for each byte. Drops bytes without a token.
  std::vector<TokenId> Encode(std::string_view text, SpecialTokens) const override {
    if (text == "<think>") return {kThink};
    if (text == "</think>") return {kThinkEnd};
    std::vector<TokenId> ids;
    for (const char byte : text) {
      const auto found = std::ranges::find(bytes_, std::string(1, byte));
      if (found != bytes_.end()) ids.push_back(static_cast<TokenId>(found - bytes_.begin()));
    }
    return ids;
  }
  size_t EncodeSealed(std::string_view, std::vector<TokenId>&) const override { return 0; }
  std::span<const TokenId> prompt_prefix() const override { return {}; }
  std::string_view TokenBytes(TokenId id) const override {
    return id >= 0 && id < FakeBackend::kVocab ? std::string_view(bytes_[static_cast<size_t>(id)]) : std::string_view();
  }
  bool IsSpecial(TokenId id) const override { return id == kSpecial; }
  int64_t vocab_size() const override { return FakeBackend::kVocab; }
  int64_t max_bytes_per_token() const override { return 1; }
  const Digest& digest() const override { return digest_; }

 private:
  std::vector<std::string> bytes_;
  Digest digest_{};
};

inline const FakeTokenizer& TestTokenizer() {
  static const FakeTokenizer tokenizer;
  return tokenizer;
}

inline const WriterId kWriter = NthWriter(Incarnation(5), 1);  // of the first link of TestOptions

inline DecodeEngineOptions TestOptions(int64_t blocks) {
  DecodeEngineOptions options;
  options.handoff.layout = FakeBackend::Layout();
  options.handoff.numerics_id = "fake-1";
  options.handoff.incarnation = Incarnation(5);
  options.handoff.lease = absl::Seconds(10);
  options.model = {.tokenizer = &TestTokenizer(), .vocab = FakeBackend::kVocab, .eos_ids = {}, .positions = 1000};
  options.blocks = blocks;
  return options;
}

inline LinkRequest TestLink() {
  LinkRequest link;
  link.prefill_address = "prefill:1";
  link.prefill_incarnation = Incarnation(71);
  link.layout = FakeBackend::Layout();
  link.numerics_id = "fake-1";
  link.can_digest = true;
  return link;
}

inline DecodeJob TestJob(RequestId id, std::vector<TokenId> tokens, int32_t max_tokens) {
  DecodeJob job;
  job.request_id = std::move(id);
  job.spec.tokens = std::move(tokens);
  job.decode_incarnation = Incarnation(5);
  job.spec.sampling.draw.temperature = 0;
  job.spec.sampling.max_tokens = max_tokens;
  job.spec.expected_tokens = max_tokens / 2;
  return job;
}

inline ReserveRequest ReserveFor(const DecodeJob& job) {
  const std::span kv = std::span(job.spec.tokens).first(job.spec.tokens.size() - 1);
  return {.request_id = job.request_id,
          .writer = kWriter,
          .keys = BlockKeys(RootKey(Digest{}, job.spec.cache_domain), kv),
          .kv_tokens = static_cast<int32_t>(kv.size()),
          .expected_new_tokens = job.spec.expected_tokens};
}

// Computes the prompt's KV in a slab of its own and copies the missing blocks into `slab`.
inline void PushPrompt(const DecodeJob& job, const std::vector<MissingBlock>& missing, std::span<std::byte> slab) {
  const std::span kv = std::span(job.spec.tokens).first(job.spec.tokens.size() - 1);
  if (kv.empty()) return;
  const int64_t count = BlocksFor(std::ssize(kv));
  FakeBackend prefill(count);
  std::vector<BlockId> blocks;
  for (uint32_t i = 0; i < count; ++i) blocks.push_back(BlockId(i));
  Batch batch;
  batch.slices.push_back({.tokens = kv, .start = 0, .blocks = blocks, .wants_logits = false});
  BATON_CHECK(prefill.Forward(batch, [](int64_t) { return true; }).ok(), "the fake prefill failed");
  const auto bytes = static_cast<size_t>(FakeBackend::Layout().BlockBytes());
  for (const MissingBlock& block : missing) {
    std::memcpy(&slab[block.target.value() * bytes],
                &prefill.kv_slab().host()[static_cast<size_t>(block.index) * bytes], bytes);
  }
}

// Reserves, pushes and commits with the given functions of the hand-off. Sets the fields of the job
// that Start needs. Returns false if the answer is Wait.
template <typename OnReserve, typename OnCommit>
bool HandOff(DecodeJob& job, std::span<std::byte> slab, OnReserve on_reserve, OnCommit on_commit) {
  const ReserveReply reply = on_reserve(ReserveFor(job)).value();
  if (std::holds_alternative<Wait>(reply)) return false;
  const auto& reserved = std::get<Reserved>(reply);
  PushPrompt(job, reserved.missing, slab);
  std::vector<BlockId> written;
  for (const MissingBlock& block : reserved.missing) written.push_back(block.target);
  const absl::Status committed = on_commit(Commit{reserved.reservation, static_cast<int32_t>(written.size()),
                                                  DigestsOf(slab, FakeBackend::Layout(), written).value()});
  BATON_CHECK(committed.ok(), "the commit was refused");
  job.reservation = reserved.reservation;
  job.blocks = static_cast<int32_t>(BlocksFor(std::ssize(job.spec.tokens) - 1));
  return true;
}

// The output of one request.
struct Output {
  std::vector<TokenId> tokens;
  std::vector<TokenLogprobs> logprobs;
  std::string text;
  std::optional<FinishReason> finish;
  std::vector<absl::Duration> queued;  // the `queued` of its updates
  absl::Status failure;
  std::optional<PromptLogprobs> prompt;
  bool ended() const { return finish.has_value() || !failure.ok(); }
};

inline void Collect(std::span<const TokenUpdate> updates, std::map<RequestId, Output>& outputs) {
  for (const TokenUpdate& update : updates) {
    Output& output = outputs[update.request_id];
    BATON_CHECK(!output.ended(), "an update after the end");
    output.tokens.insert(output.tokens.end(), update.tokens.begin(), update.tokens.end());
    output.logprobs.insert(output.logprobs.end(), update.logprobs.begin(), update.logprobs.end());
    output.text += update.text;
    output.finish = update.finish;
    if (update.queued) output.queued.push_back(*update.queued);
    if (!update.prompt) continue;
    BATON_CHECK(!output.prompt, "the log probabilities of a prompt came twice");
    output.prompt = update.prompt;
  }
}
inline void Collect(const RequestFailed& failed, std::map<RequestId, Output>& outputs) {
  Output& output = outputs[failed.request_id];
  BATON_CHECK(!output.ended(), "a failure after the end");
  output.failure = failed.status;
}

// One DecodeEngine with its slab. The test runs its steps.
class DecodeWorld {
 public:
  explicit DecodeWorld(DecodeEngineOptions options) : engine(options), backend(options.blocks) {
    BATON_CHECK(engine.handoff().OnLink(TestLink(), now).ok(), "the decode worker refused the link");
  }

  // Returns false if there is no room now.
  bool HandOffJob(DecodeJob& job) {
    return HandOff(
        job, backend.kv_slab().host(), [&](const ReserveRequest& r) { return engine.handoff().OnReserve(r, now); },
        [&](const Commit& c) { return engine.handoff().OnCommit(c, now); });
  }
  // Hands off and starts a job. Runs steps until there is room.
  void StartJob(DecodeJob job) {
    while (!HandOffJob(job)) BATON_CHECK(Step(), "no room, and nothing runs");
    const absl::Status started = engine.Start(std::move(job), now);
    BATON_CHECK(started.ok(), started.ToString());
  }

  // Starts a job whose reservation covers growth of one token only, so that blocks may run out
  // later. Returns false if there is no room now.
  bool TryStartUnderReserved(DecodeJob job) {
    const int32_t max_tokens = std::exchange(job.spec.sampling.max_tokens, 1);
    if (!HandOffJob(job)) return false;
    job.spec.sampling.max_tokens = max_tokens;
    const absl::Status started = engine.Start(std::move(job), now);
    BATON_CHECK(started.ok(), started.ToString());
    return true;
  }
  void StartUnderReserved(const DecodeJob& job) {
    while (!TryStartUnderReserved(job)) BATON_CHECK(Step(), "no room, and nothing runs");
  }

  // Computes the digests that the engine has requested, as a worker's own thread does.
  void RunChecks() {
    while (const std::optional<BlockCheck> check = engine.handoff().NextCheck()) {
      engine.OnDigests(check->id, DigestsOf(backend.kv_slab(), FakeBackend::Layout(), check->blocks), now);
    }
    TakeEvents();
    engine.CheckInvariants();
  }

  // Returns false if nothing could run.
  bool Step() {
    now += absl::Milliseconds(10);
    DecodeStep* step = Begin();
    if (step != nullptr) Finish(*step);
    return step != nullptr;
  }
  DecodeStep* Begin() {
    engine.Tick(now);
    DecodeStep* step = engine.BeginStep(now);
    if (step == nullptr || step->batch.slices.empty() || !TakesLate()) TakeEvents();
    return step;
  }
  void Finish(DecodeStep& step) {
    absl::Status status = CopySwaps(step, backend.kv_slab(), FakeBackend::Layout().BlockBytes());
    BATON_CHECK(status.ok(), "host memory is always copied");
    bool next_started = false;
    if (!step.batch.slices.empty()) {
      const absl::StatusOr<LogitsView> logits = backend.Forward(
          step.batch, [](int64_t) { return true; }, {[this] { TakeEvents(); }, [this] { return BeginNext(); }});
      status = logits.status();
      next_started = logits.ok() && logits->next_started;
      for (int64_t i = 0; logits.ok() && i < step.logit_rows(); ++i) step.Sample(i, *logits, scratch);
    }
    engine.FinishStep(
        {.status = status, .next_started = next_started, .took = time_of ? time_of(step) : absl::ZeroDuration()});
    if (!TakesLate()) TakeEvents();
    engine.CheckInvariants();
  }
  void RunAll() {
    while (Step()) {
    }
  }
  void TakeEvents() {
    const DecodeEvents events = engine.TakeEvents();
    Collect(events.updates, outputs);
    room += events.room.requests;
    if (!events.room.kept.empty()) kept.push_back(events.room.kept);
    for (const RequestFailed& failed : events.failures) Collect(failed, outputs);
  }
  // Returns true if all blocks are free or cached, and none is referenced or quarantined.
  bool AllBlocksBack() const { return baton::AllBlocksBack(engine.load().blocks); }

  absl::Time now = absl::UnixEpoch();
  DecodeEngine engine;
  FakeBackend backend;
  std::map<RequestId, Output> outputs;
  int64_t room = 0;             // number of requests that reports of room have covered
  std::vector<RequestId> kept;  // the requests for which room was kept and reported
  SamplerScratch scratch;
  // If set, a step's events are sometimes taken late, as a worker does: during the next step or
  // after it.
  std::mt19937* takes_late = nullptr;
  // The time that a step takes, or none if unset.
  std::function<absl::Duration(const DecodeStep&)> time_of;
  // Called after BeginNext, before the running step ends.
  std::function<void()> on_next_planned;

 private:
  const Batch* BeginNext() {
    const Batch* next = engine.BeginNext();
    if (on_next_planned) on_next_planned();
    engine.CheckInvariants();
    return next;
  }
  bool TakesLate() { return takes_late != nullptr && (*takes_late)() % 2 == 0; }
};

}  // namespace baton
