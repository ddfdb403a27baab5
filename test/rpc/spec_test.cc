// Tests that a RequestSpec at the worker equals the router's, whatever values it has.
#include <random>

#include "absl/strings/str_cat.h"
#include "catch.h"
#include "rpc/worker_convert.h"
#include "seeds.h"
#include "world/dispatcher_world.h"

namespace baton {
namespace {

class RandomSpec {
 public:
  explicit RandomSpec(uint64_t seed) : rng_(seed) {}

  // Returns a spec in which half of all fields have random values. A new field without a line here
  // does not compile.
  RequestSpec Draw() {
    RequestSpec spec;
    auto& [tokens, generated, cache_domain, tenant, priority, arrival_offset, sampling, expected_tokens, traceparent] =
        spec;
    if (Half()) tokens = Many<TokenId>([this] { return Int(0, 200'000); });
    if (Half()) generated = Int(0, 1000);
    if (Half()) cache_domain = Word();
    if (Half()) tenant = Word();
    if (Half()) priority = Int(-1001, 1000);
    if (Half()) arrival_offset = absl::Microseconds(Int(-100'000'000, 100'000'000));
    if (Half()) sampling = DrawSampling();
    if (Half()) expected_tokens = Int(0, 100'000);
    if (Half()) traceparent = Word();
    return spec;
  }

 private:
  SamplingParams DrawSampling() {
    SamplingParams params;
    if (Half()) params.draw.temperature = Float();
    if (Half()) params.draw.top_k = Int(0, 100);
    if (Half()) params.draw.top_p = Float();
    if (Half()) params.draw.min_p = Float();
    if (Half()) params.draw.repetition_penalty = Float();
    if (Half()) params.draw.presence_penalty = -Float();
    if (Half()) params.draw.frequency_penalty = -Float();
    if (Half()) params.seed = rng_();
    if (Half()) params.max_tokens = Int(1, 100'000);
    if (Half()) params.stop = Many<std::string>([this] { return Word(); });
    if (Half()) params.stop_ids = Many<TokenId>([this] { return Int(0, 200'000); });
    if (Half()) params.ignore_eos = true;
    if (Half()) params.logprobs = Int(0, 20);
    return params;
  }
  bool Half() { return rng_() % 2 == 0; }
  int Int(int least, int most) { return std::uniform_int_distribution(least, most)(rng_); }
  float Float() { return std::uniform_real_distribution(0.01f, 1.0f)(rng_); }
  std::string Word() { return absl::StrCat("wört", rng_() % 1000, "\n"); }
  template <typename T, typename One>
  std::vector<T> Many(One one) {
    std::vector<T> many(rng_() % 50);
    for (T& element : many) element = one();
    return many;
  }

  std::mt19937_64 rng_;
};

void CheckSame(const SamplingParams& a, const SamplingParams& b) {
  CHECK(a.draw.temperature == b.draw.temperature);
  CHECK(a.draw.top_k == b.draw.top_k);
  CHECK(a.draw.top_p == b.draw.top_p);
  CHECK(a.draw.min_p == b.draw.min_p);
  CHECK(a.draw.repetition_penalty == b.draw.repetition_penalty);
  CHECK(a.draw.presence_penalty == b.draw.presence_penalty);
  CHECK(a.draw.frequency_penalty == b.draw.frequency_penalty);
  CHECK(a.seed == b.seed);
  CHECK(a.max_tokens == b.max_tokens);
  CHECK(a.stop == b.stop);
  CHECK(a.stop_ids == b.stop_ids);
  CHECK(a.ignore_eos == b.ignore_eos);
  CHECK(a.logprobs == b.logprobs);
}

void CheckSame(const RequestSpec& a, const RequestSpec& b) {
  CHECK(a.tokens == b.tokens);
  CHECK(a.generated == b.generated);
  CHECK(a.cache_domain == b.cache_domain);
  CHECK(a.tenant == b.tenant);
  CHECK(a.priority == b.priority);
  CHECK(a.arrival_offset == b.arrival_offset);
  CheckSame(a.sampling, b.sampling);
  CHECK(a.expected_tokens == b.expected_tokens);
  CHECK(a.traceparent == b.traceparent);
}

// Converts the job to its wire form and back.
template <typename Job>
Job ByWire(const Job& job) {
  decltype(ToProto(job)) proto;
  REQUIRE(proto.ParseFromString(ToProto(job).SerializeAsString()));
  return FromProto(proto);
}

TEST_CASE("Every field of a spec reaches a worker in a job of either kind") {
  ForEachSeed(100, [](uint64_t seed) {
    const RequestSpec spec = RandomSpec(seed).Draw();
    CheckSame(ByWire(PrefillJob{.request_id = std::string("r"), .spec = spec}).spec, spec);
    CheckSame(ByWire(DecodeJob{.request_id = std::string("r"), .spec = spec}).spec, spec);
  });
}

TEST_CASE("Both workers receive the spec of the router's caller") {
  ForEachSeed(50, [](uint64_t seed) {
    Driven d;
    ClientRequest request = d.Request("r", "ab");
    const TokenBuffer tokens = request.spec.tokens;
    request.spec = RandomSpec(seed).Draw();
    request.spec.tokens = tokens;
    request.spec.priority = std::max(request.spec.priority, -1000);
    // The router computes arrival offsets itself, and this router leaves them zero.
    request.spec.arrival_offset = absl::ZeroDuration();
    request.spec.generated = 0;
    // The largest output that the worker's context can hold.
    request.spec.sampling.max_tokens = std::clamp(request.spec.sampling.max_tokens, 1, 62);
    request.spec.expected_tokens = ExpectedTokens(request, OutputLengths());
    // The router draws a seed for a request without one.
    if (!request.spec.sampling.seed) request.spec.sampling.seed = 7;
    const RequestSpec spec = request.spec;
    REQUIRE(d.Submit(std::move(request)).ok());
    const auto sent = [&] {
      const auto actions = (*d).TakeActions();
      REQUIRE(actions.size() == 1);
      return std::get<WorkerCommand>(actions[0]).what;
    };
    const PrefillJob prefill = ByWire(std::get<PrefillJob>(sent()));
    CheckSame(prefill.spec, spec);
    PrefillDone done;
    done.request_id = prefill.request_id;
    done.decode_incarnation = Incarnation(22);
    (*d).Reported(kP, done, d.now);
    const DecodeJob decode = ByWire(std::get<DecodeJob>(sent()));
    CheckSame(decode.spec, spec);
  });
}

}  // namespace
}  // namespace baton
