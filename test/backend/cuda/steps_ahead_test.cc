// Decode steps that begin before the previous step has ended.
#include <algorithm>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "backend/cuda/cuda_test_device.h"
#include "catch.h"
#include "model/sampler.h"

namespace baton {
namespace {

// Streams that decode in steps that are enqueued early where possible. A stream continues with the
// token that the device samples, or that the test chooses from logits. Each stream has a twin, with
// which CheckAgain repeats the steps one by one. It uses the same device, because another device
// may compute products differently.
class Streams {
 public:
  Streams(const RandomWeights& weights, bool same_bits, uint32_t seed)
      : random_(seed), device_(weights, same_bits, 1, 1, {.tokens = 100, .logits = kStreams}) {
    for (int i = 0; i < kStreams; ++i) streams_.push_back(Make(weights.config.vocab, i));
  }

  void RunAhead() {
    while (started_streams_ < kStreams || !rows_.empty()) Step();
  }
  // Repeats all steps without enqueueing any early, and compares the results with those of
  // RunAhead.
  void CheckAgain() {
    for (const Made& made : steps_) CheckAgain(made);
  }

  int64_t ahead = 0;        // steps that were enqueued early
  int64_t with_logits = 0;  // rows of such steps that the device did not sample
  bool UnusedBlocksAreUntouched() { return device_.UnusedBlocksAreUntouched(); }

 private:
  static constexpr int kStreams = 18;
  struct Stream {
    TestSequence sequence, twin;
    std::optional<Sampler> sampler, twin_sampler;  // unset: the test chooses from the logits
    int64_t next = 0;                              // the next position to decode
    bool IsLast(int64_t position) const { return position + 1 == std::ssize(sequence.tokens); }
  };
  struct Made {
    std::vector<std::pair<Stream*, int64_t>> rows;  // with their positions
    std::vector<SampledToken> chosen;
    // Rows that the device did not sample.
    std::vector<std::vector<float>> logits;
  };
  // A batch with the specs that its slices point to.
  struct Planned {
    Batch batch;
    std::vector<SampleSpec> specs;
  };

  Stream Make(int64_t vocab, int i) {
    static const SamplingParams kKinds[] = {
        {.draw = {.temperature = 0}},
        {.draw = {.temperature = 0.9f, .top_p = 0.9f}},
        {.draw = {.temperature = 1.1f, .repetition_penalty = 1.3f}},
        {.draw = {.temperature = 0, .presence_penalty = 2, .frequency_penalty = 2}},
        {.draw = {.temperature = 0.9f}, .logit_bias = {{3, 4}, {17, -100}}, .min_tokens = 7},
        {.draw = {.temperature = 0.7f, .presence_penalty = 1}, .allowed_token_ids = {2, 3, 5, 7, 11, 13}}};
    static const TokenRules kRules{.ends = {3, 5, 40}, .bad_words = {{41}}};
    Stream s;
    s.next = static_cast<int64_t>(random_() % 100);
    std::vector<TokenId> tokens = RandomTokens(s.next + 1, vocab, random_());
    // The default seed of each sampler is the stream's number.
    if (i % 8 != 5) s.sampler.emplace(kKinds[random_() % std::size(kKinds)], tokens, static_cast<uint64_t>(i), kRules);
    s.twin_sampler = s.sampler;
    tokens.resize(tokens.size() + 1 + random_() % (s.sampler ? 50 : 8));
    for (TestSequence* sequence : {&s.sequence, &s.twin}) {
      *sequence = device_.Place(tokens);
      device_.Prefill(*sequence, s.next, 100);
    }
    return s;
  }

  static void Add(const TestSequence& sequence, int64_t position, const std::optional<Sampler>& sampler,
                  int32_t follows, Planned& to) {
    to.batch.slices.push_back(NextOf(sequence, position));
    if (sampler) to.specs.push_back(sampler->Spec(follows == kFollowsNone ? 0 : 1));
    to.batch.slices.back().sample = sampler ? &to.specs.back() : nullptr;
    to.batch.slices.back().follows = follows;
  }
  static void Clear(Planned& planned) {
    planned.batch.slices.clear();
    planned.specs.clear();
    planned.specs.reserve(kStreams);  // slices point to them
  }
  void MaybeStartStream(std::vector<Stream*>& rows) {
    if (started_streams_ < kStreams && (rows.empty() || random_() % 4 == 0)) {
      rows.push_back(&streams_[started_streams_++]);
    }
  }

  const Batch* BeginNext() {
    const auto sampled = [](const Stream* s) { return s->sampler.has_value(); };
    REQUIRE(std::ranges::all_of(rows_, sampled));
    Clear(next_);
    if (random_() % 6 == 0) return nullptr;
    std::vector<size_t> order(rows_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::shuffle(order, random_);
    for (const size_t row : order) {
      Stream& s = *rows_[row];
      if (s.IsLast(s.next)) continue;
      next_rows_.push_back(&s);
      Add(s.sequence, s.next + 1, s.sampler, static_cast<int32_t>(row), next_);
    }
    const size_t before = next_rows_.size();
    MaybeStartStream(next_rows_);
    for (size_t i = before; i < next_rows_.size(); ++i) {
      Add(next_rows_[i]->sequence, next_rows_[i]->next, next_rows_[i]->sampler, kFollowsNone, next_);
    }
    return next_rows_.empty() ? nullptr : &next_.batch;
  }

  void Step() {
    if (!now_.batch.started) {
      MaybeStartStream(rows_);
      Clear(now_);
      for (Stream* s : rows_) Add(s->sequence, s->next, s->sampler, kFollowsNone, now_);
    }
    next_rows_.clear();
    const auto got =
        device_->Forward(now_.batch, [](int64_t) { return true; }, {[] {}, [this] { return BeginNext(); }});
    REQUIRE(got.ok());
    REQUIRE(got->next_started == !next_rows_.empty());
    ahead += now_.batch.started;
    Take(*got);
    if (got->next_started) {
      // The backend must not read a batch again that is enqueued, so the test clears its slices.
      for (SequenceSlice& slice : next_.batch.slices) slice = {};
      std::swap(now_, next_);
      rows_ = next_rows_;
    } else {
      std::erase_if(rows_, [](const Stream* s) { return s->next == std::ssize(s->sequence.tokens); });
    }
    now_.batch.started = got->next_started;
  }

  void Take(const LogitsView& got) {
    Made& made = steps_.emplace_back();
    for (size_t i = 0; i < rows_.size(); ++i) {
      Stream& s = *rows_[i];
      made.rows.emplace_back(&s, s.next);
      const std::span row(got.data + static_cast<int64_t>(i) * got.vocab, static_cast<size_t>(got.vocab));
      SampledToken chosen;
      if (s.sampler) {
        chosen = got.sampled[i];
        s.sampler->Accept(chosen.id);
      } else {
        made.logits.emplace_back(row.begin(), row.end());
        chosen.id = static_cast<TokenId>(std::ranges::max_element(row) - row.begin());
        with_logits += now_.batch.started;
      }
      made.chosen.push_back(chosen);
      if (++s.next < std::ssize(s.sequence.tokens)) s.sequence.tokens[s.next] = s.twin.tokens[s.next] = chosen.id;
    }
  }

  void CheckAgain(const Made& made) {
    Planned again;
    Clear(again);
    for (const auto& [s, position] : made.rows) Add(s->twin, position, s->twin_sampler, kFollowsNone, again);
    const auto got = device_->Forward(again.batch, [](int64_t) { return true; });
    REQUIRE(got.ok());
    auto logits = made.logits.begin();
    for (size_t i = 0; i < made.rows.size(); ++i) {
      const auto& [s, position] = made.rows[i];
      INFO("stream " << s - streams_.data() << " at " << position);
      if (s->twin_sampler) {
        CHECK((made.chosen[i].id >= 0 && got->sampled[i].id == made.chosen[i].id));
        CHECK(got->sampled[i].logprob == made.chosen[i].logprob);
        s->twin_sampler->Accept(made.chosen[i].id);
      } else {
        const float* row = got->data + static_cast<int64_t>(i) * got->vocab;
        CHECK(std::equal(logits->begin(), logits->end(), row));
        ++logits;
      }
    }
  }

  std::mt19937 random_;
  Device device_;
  std::vector<Stream> streams_;
  int started_streams_ = 0;
  std::vector<Stream*> rows_, next_rows_;  // of the running and the next step
  Planned now_, next_;
  std::vector<Made> steps_;
};

TEST_CASE("Steps that are enqueued ahead give the same tokens as steps that wait") {
  if (!HasDevice()) return;
  const RandomWeights weights(LlamaShape(DType::kBF16), 23);
  for (const bool same_bits : {false, true}) {
    INFO("same bits " << same_bits);
    Streams streams(weights, same_bits, same_bits);
    streams.RunAhead();
    CHECK(streams.ahead > 50);
    CHECK(streams.with_logits > 0);
    streams.CheckAgain();
    CHECK(streams.UnusedBlocksAreUntouched());
  }
}

// One stream. All of its steps except the first are enqueued early.
class Ahead {
 public:
  // The device has same_bits = true.
  explicit Ahead(const RandomWeights& weights)
      : device_(std::in_place, weights, true, 1, 1, StepLimits{.tokens = 64, .logits = 8}),
        sequence_(device_->Place(RandomTokens(60, weights.config.vocab, 3))) {
    device_->Prefill(sequence_, 40, 40);
  }
  // Returns the token after `position`, or an error.
  absl::StatusOr<TokenId> Step(int32_t position, bool stored = true) {
    Batch batch = At(position), next = At(position + 1);
    batch.started = std::exchange(started_, false);
    next.slices[0].follows = 0;
    const auto view = (*device_)->Forward(batch, [&](int64_t) { return stored; }, {[] {}, [&] { return &next; }});
    if (!view.ok()) return view.status();
    started_ = view->next_started;
    sequence_.tokens[static_cast<size_t>(position) + 1] = view->sampled[0].id;
    return view->sampled[0].id;
  }
  bool started() const { return started_; }
  void End() { device_.reset(); }

 private:
  Batch At(int32_t position) const {
    Batch batch{{NextOf(sequence_, position)}};
    batch.slices[0].sample = &kGreedy;
    return batch;
  }

  static constexpr SampleSpec kGreedy{.draw = {.temperature = 0}};
  std::optional<Device> device_;
  TestSequence sequence_;
  bool started_ = false;
};

TEST_CASE("A step enqueued ahead is aborted with the previous step or ends with its device") {
  if (!HasDevice()) return;
  const RandomWeights weights(LlamaShape(DType::kBF16), 23);
  Ahead whole(weights), broken(weights);
  std::vector<TokenId> tokens;
  for (int32_t position = 40; position < 50; ++position) {
    const absl::StatusOr<TokenId> token = whole.Step(position);
    REQUIRE((token.ok() && whole.started()));
    tokens.push_back(*token);
  }
  for (int32_t position = 40; position < 50; ++position) {
    if (position % 3 == 0) CHECK(absl::IsAborted(broken.Step(position, /*stored=*/false).status()));
    CHECK(broken.Step(position).value() == tokens[static_cast<size_t>(position - 40)]);
  }
  REQUIRE(broken.started());
  broken.End();
}

TEST_CASE("A step that needs memory for more rows is not enqueued ahead") {
  if (!HasDevice()) return;
  const RandomWeights weights(LlamaShape(DType::kBF16), 23);
  Device device(weights, /*same_bits=*/true, 1, 1, {.tokens = 64, .logits = 4});
  std::vector<TestSequence> sequences;
  for (uint32_t i = 0; i < 5; ++i) {
    sequences.push_back(device.Place(RandomTokens(20, weights.config.vocab, i)));
    device.Prefill(sequences.back(), 10, 10);
  }
  const auto step = [&](size_t streams, int64_t position, int32_t follows) {
    Batch batch;
    for (size_t i = 0; i < streams; ++i) {
      batch.slices.push_back(NextOf(sequences[i], i == 0 ? position : 10));
      batch.slices.back().sample = &kGreedy;
    }
    batch.slices[0].follows = follows;
    return batch;
  };
  const auto run = [&](const Batch& batch, const Batch* next) {
    const auto view = device->Forward(batch, [](int64_t) { return true; }, {[] {}, [&] { return next; }});
    REQUIRE(view.ok());
    sequences[0].tokens[11] = view->sampled[0].id;
    return view->next_started;
  };
  const Batch five = step(5, 11, 0);  // their rows are rounded up to 8
  CHECK_FALSE(run(step(1, 10, kFollowsNone), &five));
  CHECK_FALSE(run(step(5, 11, kFollowsNone), nullptr));
  CHECK(run(step(1, 10, kFollowsNone), &five));  // there is memory for 8 rows now
}

}  // namespace
}  // namespace baton
