// The reader of client requests. Code behind it may rely on the checks that it makes.
#pragma once

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "inference.pb.h"
#include "model/served_model.h"
#include "router/client_request.h"
#include "text/chat_values.h"

namespace baton {

inline constexpr size_t kMaxNameBytes = 256;   // session_id, cache_salt
inline constexpr size_t kMaxAgentBytes = 128;  // workflow, agent
inline bool IsControlCharacter(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }

// Bytes of text in a prompt. They decide whether tokenising runs at once or on another thread.
size_t TextBytes(const v1::Segments& segments);
size_t TextBytes(const v1::Chat& chat);

// Returns the request's own time limit, counted from its arrival. InfiniteDuration if it has none,
// or one that ReadRequest refuses.
absl::Duration TimeoutOf(const v1::GenerateRequest& request);

// Checks session_id, cache_salt, workflow, agent and request_id. Returns INVALID_ARGUMENT if one is
// too long or has characters that it may not have.
absl::Status CheckNames(const v1::GenerateRequest& request);

// Reads the limits that a request states for its workflow. Returns INVALID_ARGUMENT if one is
// wrong, or if the request names no workflow.
absl::StatusOr<WorkflowLimits> ReadWorkflowLimits(const v1::GenerateRequest& request);

// Reads and checks a request of an API of this form, in time linear in the text. `now` and `values`
// are as in ReadPrompt. In the result, the id is empty if the client sent none, and the deadline is
// not set. Returns INVALID_ARGUMENT if a field is wrong. An error about a field is meant to name
// the field, the value and the limit. Returns UNIMPLEMENTED if the model of a chat has no template.
absl::StatusOr<ClientRequest> ReadRequest(const v1::GenerateRequest& request, const ServedModels& models,
                                          absl::Time now, const RequestForm& form = {},
                                          const ChatValues* values = nullptr);

// Converts the message of either call to a Generate request. A PrefillOnly request becomes a
// Generate request with the same fields and max_tokens 0.
inline v1::GenerateRequest AsGenerate(v1::GenerateRequest request) { return request; }
v1::GenerateRequest AsGenerate(v1::PrefillOnlyRequest request);

}  // namespace baton
