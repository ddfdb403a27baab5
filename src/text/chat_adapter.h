// Rewrites chats with tools for chat templates that have no form for them.
#pragma once

#include "text/chat_abilities.h"
#include "text/chat_template.h"

namespace baton {

// Returns a chat that the template can show. Parts that the template can show do not change, and
// neither does a chat without tools, calls and results. docs/openai.md has the texts. If the chat
// has tools that the template cannot show, its calls and results become text too.
//
// - Tools become a block of text in the system message. Without a system message, one is added. If
//   the template has no system messages, the block precedes the text of the user's first message.
// - Calls become text of their answer, in the format of Qwen and Hermes.
// - Several calls in one answer become answers with one call each, if the template shows only one.
//   The result of each call follows it.
// - Results become messages of the user. Results in sequence share one message.
ChatInput AdaptChat(ChatInput input, const ChatAbilities& can);

}  // namespace baton
