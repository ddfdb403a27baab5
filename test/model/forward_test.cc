#include "model/forward.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "catch.h"
#include "model/random_weights.h"

namespace baton {
namespace {

// Records the operations that a forward pass asks for.
class RecordingOps final : public Ops {
 public:
  std::vector<std::string> calls;

  absl::StatusOr<WeightId> Pack(const WeightSource& source) override {
    if (packed == fail_at) return absl::ResourceExhaustedError("no room");
    const char* forms[] = {"vector", "table", "matrix", "gate-up"};
    calls.push_back(absl::StrCat("pack ", forms[static_cast<int>(source.form)], " of ", source.parts.size(),
                                 source.biases.empty() ? "" : " with bias"));
    return WeightId(packed++);
  }
  absl::Status Begin(const Batch&) override { return Record("begin"); }
  void Embed(WeightId) override { calls.push_back("embed"); }
  void Linear(const LinearStep& step) override {
    const char* names[] = {"hidden", "qkv", "attended", "gated"};
    const char* then[] = {" = ", " += ", " = swiglu "};
    calls.push_back(absl::StrCat(names[static_cast<int>(step.output)], then[static_cast<int>(step.then)],
                                 step.norm ? "norm " : "", names[static_cast<int>(step.input)]));
  }
  void StoreKv(int64_t layer, const std::optional<QkNorm>& norm) override {
    calls.push_back(absl::StrCat("store ", layer, norm ? " with norm" : ""));
  }
  void Attend(int64_t layer) override { calls.push_back(absl::StrCat("attend ", layer)); }
  void KeepLogitRows() override { calls.push_back("keep"); }
  absl::StatusOr<LogitsView> Logits(WeightId, WeightId) override {
    calls.push_back("logits");
    return LogitsView{nullptr, 1, 2};
  }

  uint32_t packed = 0;
  uint32_t fail_at = ~0u;

 private:
  absl::Status Record(const char* call) {
    calls.push_back(call);
    return absl::OkStatus();
  }
};

ModelConfig Shape() {
  ModelConfig shape;
  shape.layers = 2;
  shape.hidden = shape.ffn = shape.vocab = 8;
  shape.heads = 2;
  shape.kv_heads = 1;
  shape.head_dim = 4;
  shape.context = 64;
  return shape;
}

std::vector<std::string> CallsOfForward(const ModelConfig& shape, bool wants_logits) {
  RecordingOps ops;
  const auto model = PackModel(RandomWeights(shape, 1), true, ops);
  REQUIRE(model.ok());
  ops.calls.clear();
  const std::vector<TokenId> tokens = {1, 2, 3};
  const std::vector<BlockId> blocks = {BlockId(0)};
  const Batch batch{{{tokens, 0, blocks, wants_logits}}};
  const auto logits = Forward(*model, batch, ops, [&](int64_t layer) {
    ops.calls.push_back(absl::StrCat("done ", layer));
    return true;
  });
  REQUIRE(logits.ok());
  CHECK(logits->rows == (wants_logits ? 1 : 0));
  return ops.calls;
}

}  // namespace

TEST_CASE("Forward continues the last layer with the rows that need logits") {
  const std::vector<std::string> expected = {"begin",
                                             "embed",  //
                                             "qkv = norm hidden",
                                             "store 0",
                                             "done 0",
                                             "attend 0",
                                             "hidden += attended",
                                             "gated = swiglu norm hidden",
                                             "hidden += gated",  //
                                             "qkv = norm hidden",
                                             "store 1",
                                             "done 1",
                                             "keep",
                                             "attend 1",
                                             "hidden += attended",
                                             "gated = swiglu norm hidden",
                                             "hidden += gated",  //
                                             "logits"};
  CHECK(CallsOfForward(Shape(), true) == expected);
}

TEST_CASE("Forward without logits ends after it has stored the last layer") {
  const std::vector<std::string> calls = CallsOfForward(Shape(), false);
  REQUIRE(calls.size() == 12);
  CHECK(calls[10] == "store 1");
  CHECK(calls[11] == "done 1");
}

TEST_CASE("Forward asks nothing of the device for an empty batch") {
  RecordingOps ops;
  const auto model = PackModel(RandomWeights(Shape(), 1), true, ops);
  ops.calls.clear();
  const auto logits = Forward(*model, {}, ops, [](int64_t) { return true; });
  REQUIRE(logits.ok());
  CHECK(logits->rows == 0);
  CHECK(ops.calls.empty());
}

TEST_CASE("PackModel packs the tensors of each family") {
  RecordingOps ops;
  ModelConfig shape = Shape();
  shape.layers = 1;
  shape.qkv_bias = true;
  REQUIRE(PackModel(RandomWeights(shape, 1), true, ops).ok());
  const std::vector<std::string> qwen2 = {"pack table of 1",  "pack vector of 1", "pack matrix of 3 with bias",
                                          "pack matrix of 1", "pack vector of 1", "pack gate-up of 2",
                                          "pack matrix of 1", "pack vector of 1", "pack matrix of 1"};
  CHECK(ops.calls == qwen2);

  shape.qkv_bias = false;
  shape.qk_norm = true;
  RecordingOps prefill;
  const auto model = PackModel(RandomWeights(shape, 1), false, prefill);
  REQUIRE(model.ok());
  CHECK(model->layers[0].Find(LayerRole::kQNorm).has_value());
  CHECK_FALSE(model->lm_head.has_value());
  CHECK(prefill.packed == 10);  // two more norms and no head
}

TEST_CASE("PackModel returns the error of a device that cannot pack") {
  RecordingOps ops;
  ops.fail_at = 3;
  CHECK(PackModel(RandomWeights(Shape(), 1), true, ops).status().code() == absl::StatusCode::kResourceExhausted);
}

TEST_CASE("Forward computes no layer after the one whose callback ends the pass") {
  RecordingOps ops;
  const auto model = PackModel(RandomWeights(Shape(), 1), true, ops);
  REQUIRE(model.ok());
  const std::vector<TokenId> tokens = {1, 2, 3};
  const std::vector<BlockId> blocks = {BlockId(0)};
  ops.calls.clear();
  const auto logits =
      Forward(*model, Batch{{{tokens, 0, blocks, true}}}, ops, [&](int64_t layer) { return layer < 0; });
  CHECK(absl::IsAborted(logits.status()));
  const std::vector<std::string> all = CallsOfForward(Shape(), true);
  const auto first_done = std::find(all.begin(), all.end(), "done 0");
  CHECK(ops.calls == std::vector<std::string>(all.begin(), first_done));
}

}  // namespace baton
