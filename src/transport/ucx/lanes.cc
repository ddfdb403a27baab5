#include "transport/ucx/lanes.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace baton {
namespace {

std::string TextOf(absl::FunctionRef<void(FILE*)> print) {
  char* text = nullptr;
  size_t bytes = 0;
  FILE* out = open_memstream(&text, &bytes);
  if (out == nullptr) return "";
  print(out);
  std::fclose(out);
  const std::unique_ptr<char, decltype(&std::free)> owner(text, &std::free);
  return {text, bytes};
}

// Returns the words of each line that contains `mark`.
std::vector<std::vector<std::string>> LinesWith(absl::string_view mark, absl::string_view text) {
  std::vector<std::vector<std::string>> lines;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (absl::StrContains(line, mark)) lines.push_back(absl::StrSplit(line, ' ', absl::SkipEmpty()));
  }
  return lines;
}

}  // namespace

// UCX prints one line for each transport:
// "#      resource 1  :  md 1  dev 1  flags -- tcp/lo"
std::vector<std::string> TransportsOf(ucp_context_h context) {
  const std::string text = TextOf([&](FILE* out) { ucp_context_print_info(context, out); });
  std::vector<std::string> transports;
  for (const auto& words : LinesWith(" resource ", text)) transports.push_back(words.back());
  return transports;
}

std::vector<std::string> LanesOf(ucp_ep_h endpoint) {
  return LanesIn(TextOf([&](FILE* out) { ucp_ep_print_info(endpoint, out); }));
}

// UCX prints one line for each lane, with the number of its transport before the name:
// "#                 lane[0]:  1:tcp/lo.0 md[1]                -> md[1]/tcp/sysdev[255] am wireup"
std::vector<std::string> LanesIn(std::string_view text) {
  std::vector<std::string> lanes;
  for (const auto& words : LinesWith(" lane[", absl::string_view(text.data(), text.size()))) {
    const size_t colon = words.size() > 2 ? words[2].find(':') : std::string::npos;
    if (colon != std::string::npos) lanes.push_back(words[2].substr(colon + 1));
  }
  return lanes;
}

// The names of transports that write by RDMA are rc_verbs, rc_mlx5 and dc_mlx5. UCX emulates writes
// over ud_*.
bool IsRdma(std::span<const std::string> lanes) {
  const auto any = [&](absl::string_view prefix) {
    return std::ranges::any_of(lanes, [&](const std::string& lane) { return absl::StartsWith(lane, prefix); });
  };
  return (any("rc_") || any("dc_")) && !any("tcp/");
}

}  // namespace baton
