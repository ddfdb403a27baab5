#include "agent/streaming_prompt.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "agent/scoped_id.h"
#include "agent/upstream_failure.h"
#include "base/strings.h"
#include "kv/block_layout.h"
#include "text/utf8.h"

namespace baton {
namespace {

Output::Part PartOf(const Reference& reference) {
  return reference.with_reasoning ? Output::Part::kWhole : Output::Part::kAnswer;
}

// Returns the code and the start of the message.
std::string StartOf(const absl::Status& status) {
  constexpr size_t kLongest = 100;  // bytes of the message
  std::string_view message = Message(status).substr(0, kLongest);
  message.remove_suffix(CutOffSuffix(message));
  return StrCat(absl::StatusCodeToString(status.code()), ": ", message,
                message.size() < status.message().size() ? "..." : "");
}

AwaitedOutput AsAwaited(const AgentOutput& output) {
  AwaitedOutput awaited{.id = NameOf(output.id), .announced = output.state == AgentOutput::State::kAnnounced};
  if (!awaited.announced || output.status.ok()) return awaited;
  awaited.failure = StartOf(output.status);
  awaited.failed_attempt = output.refused ? 0 : output.attempts;
  awaited.retry_wait = output.retry_wait;
  return awaited;
}

}  // namespace

bool StreamingPrompt::WaitsFor(AgentOutput& output) const {
  return !std::ranges::all_of(upstreams.at(&output), [&](size_t i) { return prompt.settled(i); });
}

bool StreamingPrompt::Reads(AgentOutput& output) const {
  return std::ranges::any_of(upstreams.at(&output), [this](size_t index) { return prompt.reads(index); });
}

void StreamingPrompt::Unlink(AgentOutput& output) {
  for (const size_t i : upstreams.at(&output)) sources[i] = nullptr;
  upstreams.erase(&output);
}

std::string StreamingPrompt::AgentOf(size_t index) const {
  const std::string& agent = prompt.settled(index) ? settled_agents[index] : sources[index]->readable().agent;
  return agent.empty() ? NameOf(prompt.reference(index).upstream) : agent;
}

AwaitedOutputs StreamingPrompt::Awaited(size_t most) const {
  AwaitedOutputs awaited;
  absl::flat_hash_set<const AgentOutput*> seen;
  for (size_t i = 0; i < prompt.references(); ++i) {
    if (prompt.settled(i) || !seen.insert(sources[i]).second) continue;
    if (++awaited.count > static_cast<int64_t>(most)) continue;
    awaited.first.push_back(AsAwaited(*sources[i]));
  }
  return awaited;
}

Output::Tokens StreamingPrompt::Read(size_t index, int64_t most) const {
  AgentOutput& source = *sources[index];
  Output* text = source.readable().text.get();
  if (text == nullptr) return {};
  const Output::Tokens tokens = text->TokensFor(*prompt.spec().tokenizer, PartOf(prompt.reference(index)), most);
  kept->Count(source);  // an encoding takes memory
  return tokens;
}

absl::Status StreamingPrompt::TooLong(int64_t at_least) const {
  return absl::InvalidArgumentError(absl::StrCat(prompt.spec().path, ": with the outputs it refers to it has at least ",
                                                 at_least, " tokens, limit ", prompt.spec().most_tokens,
                                                 prompt.spec().most_tokens_reason));
}

absl::StatusOr<bool> StreamingPrompt::Settle(size_t index, const absl::Status& status) {
  const Reference& reference = prompt.reference(index);
  const AgentOutput* upstream = sources[index];
  // A later submission does not change the name, which the prompt may have already.
  if (upstream != nullptr) settled_agents[index] = upstream->readable().agent;
  if (!status.ok() && reference.on_failure == OnFailure::kAbort) {
    const std::string& agent = upstream == nullptr ? settled_agents[index] : upstream->current.agent;
    if (!prompt.may_discard()) return UpstreamFailed(reference.upstream, agent, status, prompt.spec().first);
    prompt.Discard(index);
  } else if (!status.ok() && reference.on_failure == OnFailure::kSubstitute) {
    const bool restarts = prompt.Replace(index, reference.substitute);
    if (restarts) unreported.clear();
    return restarts;
  } else if (upstream != nullptr && upstream->state == AgentOutput::State::kEnded) {
    prompt.Settle(index);
  } else {
    const Output::Tokens so_far = upstream == nullptr ? Output::Tokens() : Read(index, prompt.spec().most_tokens);
    if (so_far.at_least > prompt.spec().most_tokens) return TooLong(so_far.at_least);
    prompt.Cut(index, std::vector<TokenId>(so_far.ids.begin(), so_far.ids.end()));
  }
  return false;
}

bool StreamingPrompt::Rewind(AgentOutput& output) {
  bool restarts = false;
  for (const size_t i : upstreams.at(&output)) restarts |= !prompt.settled(i) && prompt.Rewind(i);
  if (restarts) unreported.clear();
  return restarts;
}

absl::StatusOr<StreamingPrompt::Tokens> StreamingPrompt::Next() {
  const auto fresh = prompt.Take([&](size_t reference, int64_t most) { return Read(reference, most); },
                                 [&](size_t reference) { return AgentOf(reference); });
  unreported.insert(unreported.end(), fresh.begin(), fresh.end());
  if (prompt.at_least() > prompt.spec().most_tokens) return TooLong(prompt.at_least());
  if (prompt.complete()) {
    if (prompt.given() == 0) {
      return absl::InvalidArgumentError(prompt.spec().path + ": is empty, expected at least one token");
    }
    return Tokens{std::move(unreported), true};
  }
  // Prefill makes no KV of a prompt's last token, and any token so far may be the last. A block
  // therefore counts as complete once the token after it exists.
  const int64_t report = std::ssize(unreported) - (prompt.given() + kBlockTokens - 1) % kBlockTokens;
  if (report <= 0 || prompt.given() <= kBlockTokens) return Tokens{};
  Tokens next{{unreported.begin(), unreported.begin() + report}, false};
  unreported.erase(unreported.begin(), unreported.begin() + report);
  return next;
}

}  // namespace baton
