// A client's prompt, as the segments that it is made of.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "agent/prompt.h"
#include "inference.pb.h"
#include "router/client_request.h"
#include "text/chat_values.h"

namespace baton {

// Token segments are never empty, and no two of them are neighbours unless a reference stood between them.
// INVALID_ARGUMENT names field, value and limit; UNIMPLEMENTED: chat without a template.
// `now`: the time that a template shows. `with_prefix`: the tokenizer's prefix stands before a first segment of text.
// `values`: of the chat, with one element of tool_calls for each message. The chat's texts of JSON are then ignored.
// Null: the values are parsed from these texts.
absl::StatusOr<std::vector<PromptSegment>> ReadPrompt(const v1::Segments& segments, const Room& room, bool with_prefix);
absl::StatusOr<std::vector<PromptSegment>> ReadPrompt(const v1::Chat& chat, const Room& room, absl::Time now,
                                                      const ChatValues* values = nullptr);

// Of a chat without references; with one it is INVALID_ARGUMENT. Other errors as above.
absl::StatusOr<std::vector<TokenId>> ChatTokens(const v1::Chat& chat, const ServedModel& model, absl::Time now,
                                                const ChatValues* values = nullptr);

absl::Status CheckRequestId(std::string_view field, std::string_view id);

}  // namespace baton
