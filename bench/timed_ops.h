// A wrapper of Ops that measures the time of each kind of operation in a forward pass.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "model/ops.h"

namespace baton {

class TimedOps final : public Ops {
 public:
  explicit TimedOps(Ops& ops) : ops_(ops) {}

  // Returns the seconds since the last call, by kind. A norm counts for the projection after it.
  std::map<std::string, double> TakeSeconds() { return std::exchange(seconds_, {}); }

  absl::StatusOr<WeightId> Pack(const WeightSource& source) override { return ops_.Pack(source); }
  absl::Status Begin(const Batch& batch) override {
    const Timer timer(seconds_["begin"]);
    return ops_.Begin(batch);
  }
  void Embed(WeightId table) override {
    const Timer timer(seconds_["embed"]);
    ops_.Embed(table);
  }
  void Linear(const LinearStep& step) override {
    const Timer timer(seconds_[NameOf(step)]);
    ops_.Linear(step);
  }
  void StoreKv(int64_t layer, const std::optional<QkNorm>& norm) override {
    const Timer timer(seconds_["store_kv"]);
    ops_.StoreKv(layer, norm);
  }
  void Attend(int64_t layer) override {
    const Timer timer(seconds_["attend"]);
    ops_.Attend(layer);
  }
  void KeepLogitRows() override { ops_.KeepLogitRows(); }
  absl::StatusOr<LogitsView> Logits(WeightId norm, WeightId head) override {
    const Timer timer(seconds_["logits"]);
    return ops_.Logits(norm, head);
  }

 private:
  using Clock = std::chrono::steady_clock;

  class Timer {
   public:
    explicit Timer(double& seconds) : seconds_(seconds) {}
    ~Timer() { seconds_ += std::chrono::duration<double>(Clock::now() - start_).count(); }
    Timer(const Timer&) = delete;
    Timer& operator=(const Timer&) = delete;

   private:
    double& seconds_;
    const Clock::time_point start_ = Clock::now();
  };

  static const char* NameOf(const LinearStep& step) {
    if (step.output == Activation::kQkv) return "qkv";
    if (step.output == Activation::kGated) return "gate_up";
    return step.input == Activation::kGated ? "down" : "o";
  }

  Ops& ops_;
  std::map<std::string, double> seconds_;
};

}  // namespace baton
