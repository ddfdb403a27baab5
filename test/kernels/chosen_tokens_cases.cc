#include <algorithm>
#include <string>
#include <vector>

#include "kernels/chosen_tokens.h"
#include "test/kernels/device_array.h"
#include "test/kernels/kernel_case.h"
#include "test/kernels/random_values.h"

namespace baton::cuda {
namespace {

// The values that the kernel changes.
struct Values {
  std::vector<int32_t> tokens;
  std::vector<SamplingRow> params;
  std::vector<SeenToken> seen;
};

// Returns rows with up to `longest` tokens under penalties and space for one more token. Many rows
// have no such tokens.
Values RandomValues(int32_t rows, int32_t longest, std::mt19937_64& random) {
  Values values;
  for (int32_t row = 0; row < rows; ++row) {
    values.tokens.push_back(static_cast<int32_t>(random() % 1000));
    const auto begin = static_cast<int32_t>(values.seen.size());
    const auto count = random() % 3 == 0 ? 0 : static_cast<int32_t>(1 + random() % static_cast<uint64_t>(longest));
    values.params.push_back({.seen_begin = begin, .seen_count = count});
    if (count == 0) continue;
    const std::vector<int64_t> ids = RandomOrder(2 * longest, random);
    for (int32_t i = 0; i < count; ++i) {
      values.seen.push_back({static_cast<int32_t>(ids[i]), static_cast<int32_t>(random() % 3)});
    }
    values.seen.push_back({-7, -7});
  }
  return values;
}

// Returns the chosen token of each row, or -1. Some of these tokens have been seen.
std::vector<int32_t> RandomChosen(int32_t rows, int32_t longest, std::mt19937_64& random) {
  std::vector<int32_t> chosen;
  for (int32_t row = 0; row < rows; ++row) {
    const bool none = random() % 8 == 0;
    chosen.push_back(none ? -1 : static_cast<int32_t>(random() % static_cast<uint64_t>(3 * longest)));
  }
  return chosen;
}

Values Expected(Values values, const std::vector<int32_t>& chosen, const std::vector<int32_t>& follows,
                bool penalties) {
  for (size_t row = 0; row < follows.size(); ++row) {
    if (follows[row] < 0) continue;
    const int32_t id = values.tokens[row] = std::max(0, chosen[follows[row]]);
    SamplingRow& params = values.params[row];
    if (!penalties || params.seen_count == 0) continue;
    const auto begin = values.seen.begin() + params.seen_begin, end = begin + params.seen_count;
    const auto seen = std::find_if(begin, end, [&](const SeenToken& s) { return s.id == id; });
    if (seen == end) ++params.seen_count;
    *seen = {id, seen == end ? 1 : seen->outputs + 1};
  }
  return values;
}

bool Same(const Values& a, const Values& b) {
  const auto same_row = [](const SamplingRow& x, const SamplingRow& y) {
    return x.seen_begin == y.seen_begin && x.seen_count == y.seen_count;
  };
  const auto same_token = [](const SeenToken& x, const SeenToken& y) { return x.id == y.id && x.outputs == y.outputs; };
  return a.tokens == b.tokens && std::ranges::equal(a.params, b.params, same_row) &&
         std::ranges::equal(a.seen, b.seen, same_token);
}

template <typename T>
cudaError_t CopyTo(const DeviceArray<T>& to, const DeviceArray<T>& from, cudaStream_t stream) {
  return cudaMemcpyAsync(to.data(), from.data(), from.size() * sizeof(T), cudaMemcpyDeviceToDevice, stream);
}

KernelCase MakeCase(int32_t rows, int32_t longest, bool penalties, bool check, std::mt19937_64& random) {
  Values before = RandomValues(rows, longest, random);
  if (before.seen.empty()) before.seen.resize(1);
  const std::vector<int32_t> chosen = RandomChosen(rows, longest, random);
  std::vector<int32_t> follows;
  for (int32_t row = 0; row < rows; ++row) {
    follows.push_back(random() % 8 == 0 ? -1 : static_cast<int32_t>(random() % static_cast<uint64_t>(rows)));
  }
  const DeviceArray<int32_t> chosen_there(chosen), follows_there(follows), tokens(before.tokens),
      tokens_then(before.tokens);
  const DeviceArray<SamplingRow> params(before.params), params_then(before.params);
  const DeviceArray<SeenToken> seen(before.seen), seen_then(before.seen);
  KernelCase result;
  result.name = "chosen_tokens " + std::to_string(rows) + (penalties ? " with penalties" : "");
  result.bytes = 3.0 * rows * sizeof(int32_t);
  if (penalties) result.bytes += static_cast<double>(before.seen.size() * sizeof(SeenToken));
  result.tolerance = 0;
  // The kernel counts tokens, so each launch first restores the values.
  result.launch = [=](cudaStream_t stream) {
    for (const cudaError_t copied :
         {CopyTo(tokens, tokens_then, stream), CopyTo(params, params_then, stream), CopyTo(seen, seen_then, stream)}) {
      if (copied != cudaSuccess) return copied;
    }
    return LaunchChosenTokens({.chosen = chosen_there.data(),
                               .follows = follows_there.data(),
                               .rows = rows,
                               .tokens = tokens.data(),
                               .params = penalties ? params.data() : nullptr,
                               .seen = penalties ? seen.data() : nullptr},
                              stream);
  };
  if (!check) return result;
  const Values expected = Expected(before, chosen, follows, penalties);
  result.error = [=] { return Same({tokens.ToHost(), params.ToHost(), seen.ToHost()}, expected) ? 0.0 : 1.0; };
  return result;
}

}  // namespace

std::vector<KernelCase> ChosenTokensCases(CaseSize size, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<KernelCase> cases;
  for (const bool penalties : {false, true}) {
    if (size == CaseSize::kBench) {
      cases.push_back(MakeCase(256, 1000, penalties, /*check=*/false, random));
      continue;
    }
    for (const auto& [rows, longest] : {std::pair{1, 1}, {7, 40}, {64, 255}, {33, 257}, {256, 1000}}) {
      cases.push_back(MakeCase(rows, longest, penalties, /*check=*/true, random));
    }
  }
  return cases;
}

}  // namespace baton::cuda
