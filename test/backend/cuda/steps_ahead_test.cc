// Decode steps that begin before the last one is over.
#include <algorithm>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "backend/cuda/cuda_test_device.h"
#include "catch.h"
#include "model/sampler.h"

namespace baton {
namespace {

// A stream that goes on with what is chosen, there or from its logits, on a device that begins steps ahead and on one
// that waits for the host.
struct Chosen {
  TestSequence on_device, twin;    // at the same places of both; tokens are the prompt, and room for what is chosen
  int64_t next = 0;                // the position that it decodes next
  std::optional<Sampler> sampler;  // none: from its logits
  int64_t number = 0;
};

TEST_CASE("steps that begin before the last one's tokens are known have the tokens of steps that wait for them") {
  if (!HasDevice()) return;
  const ModelConfig shape = LlamaShape(DType::kBF16);
  const RandomWeights weights(shape, 23);
  const SamplingParams kinds[] = {{.temperature = 0},
                                  {.temperature = 0.9f, .top_p = 0.9f},
                                  {.temperature = 1.1f, .repetition_penalty = 1.3f},
                                  {.temperature = 0, .presence_penalty = 2, .frequency_penalty = 2}};
  for (const bool same_bits : {false, true}) {
    INFO("same bits " << same_bits);
    std::mt19937 random(same_bits);
    std::vector<Chosen> streams(24);
    const StepLimits limits{.tokens = 100, .logits = std::ssize(streams)};
    Device device(weights, same_bits, 1, 1, limits), plain(weights, same_bits, 1, 1, limits);
    for (size_t i = 0; i < streams.size(); ++i) {
      Chosen& s = streams[i];
      s.number = static_cast<int64_t>(i);
      s.next = static_cast<int64_t>(random() % 200);
      const std::vector<TokenId> prompt = RandomTokens(s.next + 1, shape.vocab, random());
      if (i % 8 != 5) s.sampler.emplace(kinds[random() % 4], prompt, /*default_seed=*/i);
      std::vector<TokenId> tokens = prompt;
      tokens.resize(prompt.size() + 1 + random() % (s.sampler ? 50 : 8));
      s.on_device = device.Place(tokens);
      s.twin = plain.Place(tokens);
      REQUIRE(s.on_device.blocks == s.twin.blocks);
      device.Prefill(s.on_device, s.next, 100);
      plain.Prefill(s.twin, s.next, 100);
    }
    std::vector<Chosen*> rows, next_rows;  // of the running step and the one after; null: it ended
    size_t came = 0;
    int64_t ahead = 0, with_logits = 0;
    Batch batch, next;
    std::vector<SampleSpec> specs, next_specs;
    const auto is_last = [](const Chosen& s, int64_t position) {
      return position + 1 == std::ssize(s.on_device.tokens);
    };
    const auto add = [&](Chosen& s, int32_t follows, Batch& to, std::vector<SampleSpec>& to_specs) {
      const int64_t further = follows == kFollowsNone ? 0 : 1;
      to.slices.push_back(NextOf(s.on_device, s.next + further));
      if (s.sampler) to_specs.push_back(s.sampler->Spec(further));
      to.slices.back().sample = s.sampler ? &to_specs.back() : nullptr;
      to.slices.back().follows = follows;
    };
    const auto come = [&](std::vector<Chosen*>& to) {
      if (came < streams.size() && (to.empty() || random() % 4 == 0)) to.push_back(&streams[came++]);
    };
    while (came < streams.size() || !rows.empty()) {
      if (!batch.begun) {
        std::erase(rows, nullptr);
        come(rows);
        batch.slices.clear();
        specs.clear();
        specs.reserve(rows.size());
        for (Chosen* s : rows) add(*s, kFollowsNone, batch, specs);
      }
      if (rows.empty()) continue;
      // The other device's step has the same rows, those in vain, too, since a token's bits depend on its neighbours.
      Batch waits;
      std::vector<SampleSpec> waits_specs;
      waits_specs.reserve(rows.size());
      for (Chosen* s : rows) {
        waits.slices.push_back(NextOf(s->twin, s->next));
        if (s->sampler) waits_specs.push_back(s->sampler->Spec());
        waits.slices.back().sample = s->sampler ? &waits_specs.back() : nullptr;
      }
      const auto expected = plain->Forward(waits, [](int64_t) { return true; });
      const auto begin_next = [&]() -> const Batch* {
        REQUIRE(std::ranges::all_of(rows, [](const Chosen* s) { return s->sampler.has_value(); }));
        next.slices.clear();
        next_specs.clear();
        if (random() % 6 == 0) return nullptr;
        std::vector<std::pair<Chosen*, int32_t>> follows;
        for (size_t i = 0; i < rows.size(); ++i) {
          if (!is_last(*rows[i], rows[i]->next)) follows.emplace_back(rows[i], static_cast<int32_t>(i));
        }
        std::ranges::shuffle(follows, random);
        for (const auto& [s, row] : follows) next_rows.push_back(s);
        come(next_rows);
        next_specs.reserve(next_rows.size());
        for (size_t i = 0; i < next_rows.size(); ++i) {
          add(*next_rows[i], i < follows.size() ? follows[i].second : kFollowsNone, next, next_specs);
        }
        return next_rows.empty() ? nullptr : &next;
      };
      next_rows.clear();
      const auto got = device->Forward(batch, [](int64_t) { return true; }, {[] {}, begin_next});
      REQUIRE((expected.ok() && got.ok()));
      REQUIRE(got->next_begun == !next_rows.empty());
      ahead += batch.begun;
      for (size_t i = 0; i < rows.size(); ++i) {
        Chosen& s = *rows[i];
        INFO("stream " << s.number << " at " << s.next);
        SampledToken chosen;
        if (s.sampler) {
          chosen = got->sampled[i];
          CHECK((chosen.id >= 0 && chosen.id == expected->sampled[i].id));
          CHECK(chosen.logprob == expected->sampled[i].logprob);
          s.sampler->Accept(chosen.id);
        } else {
          const auto row = [&](const LogitsView& view) { return std::span(view.data + i * view.vocab, view.vocab); };
          CHECK(std::ranges::equal(row(*got), row(*expected)));
          chosen.id = static_cast<TokenId>(std::ranges::max_element(row(*got)) - row(*got).begin());
          with_logits += batch.begun;
        }
        if (is_last(s, s.next)) {
          std::ranges::replace(rows, &s, nullptr);
          continue;
        }
        ++s.next;
        s.on_device.tokens[s.next] = s.twin.tokens[s.next] = chosen.id;
      }
      if (got->next_begun) {
        // What a backend may not read any more is not there.
        for (SequenceSlice& slice : next.slices) slice = {};
        std::swap(batch, next);
        std::swap(specs, next_specs);
        rows = next_rows;
      }
      batch.begun = got->next_begun;
    }
    CHECK(ahead > 50);
    CHECK(with_logits > 0);
    CHECK(device.OthersAreUntouched());
  }
}

// One stream, of which each step begins ahead but the first.
class Ahead {
 public:
  explicit Ahead(const RandomWeights& weights)
      : device_(std::in_place, weights, false, 1, 1, StepLimits{.tokens = 64, .logits = 8}),
        sequence_(device_->Place(RandomTokens(60, weights.config.vocab, 3))) {
    device_->Prefill(sequence_, 40, 40);
  }
  // The token after `position`, or why there is none.
  absl::StatusOr<TokenId> Step(int32_t position, bool stored = true) {
    Batch batch = At(position), next = At(position + 1);
    batch.begun = std::exchange(begun_, false);
    next.slices[0].follows = 0;
    const auto view = (*device_)->Forward(batch, [&](int64_t) { return stored; }, {[] {}, [&] { return &next; }});
    if (!view.ok()) return view.status();
    begun_ = view->next_begun;
    sequence_.tokens[static_cast<size_t>(position) + 1] = view->sampled[0].id;
    return view->sampled[0].id;
  }
  bool begun() const { return begun_; }
  void End() { device_.reset(); }

 private:
  Batch At(int32_t position) const {
    Batch batch{{NextOf(sequence_, position)}};
    batch.slices[0].sample = &kGreedy;
    return batch;
  }

  static constexpr SampleSpec kGreedy{.temperature = 0};
  std::optional<Device> device_;
  TestSequence sequence_;
  bool begun_ = false;
};

TEST_CASE("a step that has begun ends with the one before if that is broken off, and with its device") {
  if (!HasDevice()) return;
  const RandomWeights weights(LlamaShape(DType::kBF16), 23);
  Ahead whole(weights), broken(weights);
  std::vector<TokenId> tokens;
  for (int32_t position = 40; position < 50; ++position) {
    const absl::StatusOr<TokenId> token = whole.Step(position);
    REQUIRE((token.ok() && whole.begun()));
    tokens.push_back(*token);
  }
  for (int32_t position = 40; position < 50; ++position) {
    if (position % 3 == 0) CHECK(absl::IsAborted(broken.Step(position, /*stored=*/false).status()));
    CHECK(broken.Step(position).value() == tokens[static_cast<size_t>(position - 40)]);
  }
  REQUIRE(broken.begun());
  broken.End();
}

}  // namespace
}  // namespace baton
