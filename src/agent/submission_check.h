// Decides whether an agent graph accepts a request or value. It reads the graph, and changes
// nothing.
#pragma once

#include <functional>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "agent/agent_limits.h"
#include "agent/agent_node.h"
#include "agent/output_table.h"
#include "agent/prompt.h"
#include "agent/refusal_table.h"
#include "agent/shares.h"
#include "base/ids.h"

namespace baton {

class SubmissionCheck {
 public:
  // Finds the node of a live request or value by its id. Returns null if there is none.
  using FindNode = std::function<AgentNode*(const RequestId& id)>;
  // The arguments must outlive this object. `references` are those of streaming prompts.
  SubmissionCheck(const AgentLimits& limits, const FindNode& find, const OutputTable& outputs,
                  const RefusalTable& refusals, const Shares& references)
      : limits_(limits), find_(find), outputs_(outputs), refusals_(refusals), references_(references) {}

  // Finds an announced, live or kept output. Returns null if there is none.
  AgentOutput* Find(const RequestId& id) const;
  // Whether the reference makes its upstream request an announced one, or would do so.
  bool Announces(const Reference& reference, absl::Time now) const;

  // Returns ALREADY_EXISTS if the node's id is in use (AgentGraph::Submit).
  absl::Status CheckId(const AgentNode& node, bool is_value) const;
  // Returns the other errors of AgentGraph::Submit that precede the prompt's assembly.
  absl::Status CheckReferences(const RequestId& id, const PromptSpec& spec, absl::Time now) const;
  // Returns the error of a reference to an unknown request.
  absl::Status NotFound(const Reference& reference) const;

 private:
  absl::Status CheckUpstream(const Reference& reference, absl::Time now) const;
  bool IsCycle(const RequestId& id, const PromptSpec& spec) const;

  const AgentLimits& limits_;
  const FindNode& find_;
  const OutputTable& outputs_;
  const RefusalTable& refusals_;
  const Shares& references_;
};

}  // namespace baton
