#include "seeds.h"

#include <atomic>
#include <cstdlib>
#include <random>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace baton {
namespace {

std::atomic<uint64_t> running_seed;
std::atomic<bool> has_running_seed;

std::optional<uint64_t> NumberFrom(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr) return std::nullopt;
  uint64_t number = 0;
  BATON_CHECK(absl::SimpleAtoi(text, &number), absl::StrCat(variable, ": expected a number, got '", text, "'"));
  return number;
}

}  // namespace

Seeds::Seeds(uint64_t count) : first_(1), count_(count), all_(true) {
  if (const std::optional<uint64_t> seed = NumberFrom("BATON_SEED")) {
    first_ = *seed;
    count_ = 1;
    all_ = false;
  } else if (const std::optional<uint64_t> times = NumberFrom("BATON_RANDOM_SEEDS")) {
    first_ = std::random_device{}();
    count_ = count * *times;
  }
}

void SetRunningSeed(std::optional<uint64_t> seed) {
  running_seed = seed.value_or(0);
  has_running_seed = seed.has_value();
}

std::optional<uint64_t> RunningSeed() {
  return has_running_seed ? std::optional<uint64_t>(running_seed) : std::nullopt;
}

}  // namespace baton
