// The agent graph's part of a live request or value.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "agent/agent_output.h"
#include "agent/streaming_prompt.h"
#include "base/ids.h"

namespace baton {

struct Request;

// Its request or value owns it.
struct AgentNode {
  const RequestId* id = nullptr;       // the request's id
  Request* request = nullptr;          // for callers, not the graph; null: a value
  const std::string* agent = nullptr;  // the request's agent name; null: none
  bool is_internal = false;            // not of a client: its prompt needs no output
  bool keep = false;                   // true: OutputUnneeded never concerns the request
  // 1, or one more than that of the request with this id that failed before.
  int32_t attempt = 1;
  // The attempts of upstream requests whose ends settled references of the prompt, by ScopedId.
  absl::flat_hash_map<RequestId, int32_t> used_attempts{};
  std::unique_ptr<AgentOutput> output{};         // null: the graph does not have the request
  std::unique_ptr<StreamingPrompt> streaming{};  // null: the prompt is complete
};

}  // namespace baton
