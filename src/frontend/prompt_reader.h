// Reads a client's prompt into segments.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "agent/prompt.h"
#include "inference.pb.h"
#include "router/client_request.h"
#include "text/chat_values.h"

namespace baton {

// Checks the ids of the list `field`. INVALID_ARGUMENT: the model has no such token.
absl::Status CheckIds(std::string_view field, std::span<const TokenId> ids, const ServedModel& model);

// Returns whether the tokenizer's prefix precedes these segments, unless they continue a context.
bool HavePrefix(const v1::Segments& segments);

// In the result, token segments are never empty. A reference stands between any two of them. `now`
// is the time that a chat template shows. If `with_prefix` is set, the tokenizer's prefix precedes
// segments that HavePrefix. `values` has the parsed JSON texts of the chat, with one element of
// tool_calls for each message. If it is null, the JSON texts of the chat are parsed instead.
// Returns INVALID_ARGUMENT if a field is wrong. An error about a field is meant to name the field
// by its path, the value and the limit. Returns UNIMPLEMENTED if the model of a chat has no
// template.
absl::StatusOr<std::vector<PromptSegment>> ReadPrompt(const v1::Segments& segments, const PromptLimit& limit,
                                                      bool with_prefix, const FieldPaths& paths = {});
absl::StatusOr<std::vector<PromptSegment>> ReadPrompt(const v1::Chat& chat, const PromptLimit& limit, absl::Time now,
                                                      const FieldPaths& paths = {}, const ChatValues* values = nullptr);

// Returns the tokens of a chat without references. Returns INVALID_ARGUMENT if the chat has a
// reference. Other errors are those of ReadPrompt.
absl::StatusOr<std::vector<TokenId>> ChatTokens(const v1::Chat& chat, const ServedModel& model, absl::Time now,
                                                const FieldPaths& paths = {}, const ChatValues* values = nullptr);

}  // namespace baton
