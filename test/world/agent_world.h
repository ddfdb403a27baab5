// An agent graph with tokenizers, and with the prompts as the graph reports them.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "agent/agent_graph.h"
#include "agent/values.h"
#include "catch.h"
#include "text/tokenizer_fixture.h"

namespace baton {

using Ids = std::vector<TokenId>;

// Tokenizers of two models: one makes a token of each byte, and one merges letters.
inline const Tokenizer& ByteTokens() {
  static const auto tokenizer = LoadTokenizer(TinyTokenizer());
  return *tokenizer;
}
inline const Tokenizer& PairTokens() {
  static const auto tokenizer =
      LoadTokenizer(TinyTokenizer({{"a", "b"}, {"b", "c"}, {"ab", "ab"}, {" ", "a"}, {"c", "a"}, {" a", "b"}}));
  return *tokenizer;
}

inline Ids TextIds(const Tokenizer& tokenizer, std::string_view text) {
  return tokenizer.Encode(text, Tokenizer::SpecialTokens::kAsText);
}

inline Ids Bytes(std::string_view text) { return TextIds(ByteTokens(), text); }

// The tokens and states that the graph has reported for a prompt.
struct Reported {
  Ids tokens{};
  bool complete = false;
  int restarts = 0;
  absl::Status failure{};
};

// A prompt with the id of its request.
struct NamedPrompt : PromptSpec {
  RequestId id{};
};

// How long prompts wait for the next attempt if the failure states no retry delay.
inline const absl::Duration kRetryWait = absl::Seconds(1) + AgentLimits().wait_retry;

inline NamedPrompt Spec(const RequestId& id, std::vector<PromptSegment> segments) {
  return {{.segments = std::move(segments)}, id};
}

class AgentWorld {
 public:
  explicit AgentWorld(AgentLimits limits = {}, ValueLimits value_limits = {})
      : graph(limits,
              [this](const RequestId& id) {
                if (AgentNode* value = values.Find(id)) return value;
                const auto found = nodes_.find(id);
                return found == nodes_.end() || found->second.output == nullptr ? nullptr : &found->second;
              }),
        values(value_limits, graph, workflows) {}

  // Gives requests an agent name. The default is none. Call it before Submit.
  void Name(const RequestId& id, const std::string& agent) { Node(id).agent = &(agents_[id] = agent); }
  // Returns the node of the request with this id. Makes the node if there is none.
  AgentNode& Node(const RequestId& id) {
    const auto found = nodes_.try_emplace(id).first;
    found->second.id = &found->first;
    return found->second;
  }
  absl::Status Submit(const NamedPrompt& prompt) {
    const RequestId id = prompt.id;
    absl::StatusOr<PromptIncrement> increment = graph.Submit(Node(id), Complete(prompt), now);
    if (increment.ok()) reported[id] = {.tokens = std::move(increment->tokens), .complete = increment->complete};
    Drain();
    return increment.status();
  }
  // Submits a request and undoes that.
  void Undo(const NamedPrompt& prompt) {
    REQUIRE(graph.Submit(Node(prompt.id), Complete(prompt), now).ok());
    graph.Undo(Node(prompt.id));
    Drain();
  }
  // Appends text to the output of a request whose model has ByteTokens().
  void Made(const RequestId& id, std::string_view tokens, std::string_view text) {
    graph.Made(Node(id), TextIds(ByteTokens(), tokens), text);
    Drain();
  }
  void Made(const RequestId& id, std::string_view text) { Made(id, text, text); }
  void End(const RequestId& id, absl::Status status = absl::OkStatus(), absl::Duration retry_after = {}) {
    graph.Ended(Node(id), status, now, retry_after);
    Drain();
  }
  // Begins a value. It is a text if there is no tokenizer.
  absl::StatusOr<ValueTicket> Begin(const RequestId& id, const Tokenizer* tokenizer = nullptr,
                                    const std::string& tenant = "") {
    auto ticket = values.Begin({.id = id, .tenant = tenant, .agent = "tool", .tokenizer = tokenizer}, nullptr, now);
    Drain();
    return ticket;
  }
  absl::Status Append(const ValueTicket& ticket, std::string_view text) {
    const absl::Status status = values.AppendText(ticket, text, now);
    Drain();
    return status;
  }
  absl::Status Append(const ValueTicket& ticket, const Ids& tokens) {
    const absl::Status status = values.AppendTokens(ticket, tokens, now);
    Drain();
    return status;
  }
  void End(const ValueTicket& ticket, absl::Status status = absl::OkStatus()) {
    values.End(ticket, status, now);
    Drain();
  }
  // Refuses a submission with this id.
  void Refuse(const RequestId& id, const absl::Status& status, absl::Duration retry_after = {}) {
    graph.Refused(id, "writer", status, retry_after, now);
    Drain();
  }
  void Advance(absl::Duration time) {
    now += time;
    graph.Tick(now);
    values.Tick(now);
    Drain();
  }
  std::string Text(const RequestId& id, const Tokenizer& tokenizer = ByteTokens()) const {
    return Bytes(tokenizer, reported.at(id).tokens);
  }

  AgentGraph graph;
  Workflows workflows{Workflows::Limits()};
  Values values;
  absl::Time now = absl::UnixEpoch();
  std::map<RequestId, Reported> reported;

 private:
  std::map<RequestId, AgentNode> nodes_;  // of live and ended requests
  std::map<RequestId, std::string> agents_;
  std::deque<PromptSpec> specs_;  // the graph refers to them

  const PromptSpec& Complete(const NamedPrompt& prompt) {
    PromptSpec& spec = specs_.emplace_back(prompt);
    if (spec.tokenizer == nullptr) spec.tokenizer = &ByteTokens();
    if (spec.most_tokens == 0) spec.most_tokens = 10000;
    return spec;
  }
  // Ends a request as the router does. Appends the actions that follow.
  void Fail(AgentNode& node, const absl::Status& status, std::vector<AgentAction>& actions) {
    reported.at(*node.id).failure = status;
    graph.Ended(node, status, now);
    for (AgentAction& more : graph.TakeActions()) actions.push_back(std::move(more));
  }
  void Drain() {
    std::vector<AgentAction> actions = graph.TakeActions();
    for (size_t i = 0; i < actions.size(); ++i) {
      AgentAction& action = actions[i];
      if (auto* increment = std::get_if<PromptIncrement>(&action)) {
        Reported& prompt = reported.at(*increment->node->id);
        REQUIRE_FALSE(prompt.complete);
        prompt.tokens.insert(prompt.tokens.end(), increment->tokens.begin(), increment->tokens.end());
        prompt.complete = increment->complete;
      } else if (auto* restarted = std::get_if<PromptRestarted>(&action)) {
        reported.at(*restarted->node->id).tokens.clear();
        ++reported.at(*restarted->node->id).restarts;
      } else if (const auto* failed = std::get_if<PromptFailed>(&action)) {
        Fail(*failed->node, failed->status, actions);
      } else {
        AgentNode& unneeded = *std::get<OutputUnneeded>(action).node;
        if (unneeded.output != nullptr) Fail(unneeded, absl::CancelledError("unneeded"), actions);
      }
    }
    graph.CheckInvariants();
    values.CheckInvariants();
  }
};

}  // namespace baton
