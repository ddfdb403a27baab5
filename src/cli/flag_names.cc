#include "cli/flag_names.h"

#include <algorithm>
#include <string_view>

#include "base/strings.h"

namespace baton {

std::string FlagOf(const SamplingField& field) {
  std::string flag = StrCat("--", field.name);
  std::ranges::replace(flag, '_', '-');
  return flag;
}

FlagNames ChatFlagNames() {
  FlagNames names = {{"model", "--model"}, {"session_id", "--session"}};
  for (const SamplingField& field : SamplingFields()) {
    if (!field.help.empty()) names.emplace_back(WireName(field), FlagOf(field));
  }
  return names;
}

FlagNames GenerateFlagNames(const GenerateOptions& options) {
  FlagNames names = ChatFlagNames();
  const std::string prompt = options.prompt ? "--prompt" : "--ids";
  names.insert(names.end(), {{"context_id", "--context"},
                             {"workflow", "--workflow"},
                             {"agent", "--agent"},
                             {"segments.segments[0].token_ids.ids", prompt},
                             {"segments.segments[0].text", prompt},
                             {"segments.segments", prompt},
                             {"chat.messages[0].content", "--chat"},
                             {"chat.messages", "--chat"}});
  return names;
}

absl::Status NameFlag(const absl::Status& status, const FlagNames& names) {
  const std::string_view message = Message(status);
  for (const auto& [path, flag] : names) {
    if (!message.starts_with(path)) continue;
    const std::string_view rest = message.substr(path.size());
    // Another field may begin with the same letters.
    if (rest.starts_with(": ") || rest.starts_with('[')) return {status.code(), StrCat(flag, rest)};
  }
  return status;
}

}  // namespace baton
