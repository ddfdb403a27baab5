// The readers of the table of fields (api_fields.h), grouped by the file that defines them.
#pragma once

#include "frontend/openai/api_fields.h"

namespace baton {

// request_fields.cc: fields that completions and chats share.

// Refuses the body with NOT_FOUND if the model is not served. A prefill hint without a model has
// its call's model.
void ReadModel(BodyDraft& draft, const ApiField& field);
void ReadSamples(BodyDraft& draft, const ApiField& field);
void ReadStream(BodyDraft& draft, const ApiField& field);
void ReadStreamOptions(BodyDraft& draft, const ApiField& field);
void ReadResponseFormat(BodyDraft& draft, const ApiField& field);
void ReadReturnTokenIds(BodyDraft& draft, const ApiField& field);
void ReadTokensAsIds(BodyDraft& draft, const ApiField& field);
void ReadTimeout(BodyDraft& draft, const ApiField& field);
void ReadBestOf(BodyDraft& draft, const ApiField& field);
void ReadPromptLogprobs(BodyDraft& draft, const ApiField& field);
// Read a text or an object that does not affect the answer.
void ReadLabel(BodyDraft& draft, const ApiField& field);
void ReadIgnoredObject(BodyDraft& draft, const ApiField& field);
void ReadMetadata(BodyDraft& draft, const ApiField& field);
// Checks the ranges of floats. ReadRequest checks all other ranges for the clients of all APIs.
void ReadSampling(BodyDraft& draft, const ApiField& field);

// agent_fields.cc: Baton's fields for agents. ReadRequest checks the values.

// Reads a text or an integer into the field of the same name of baton.v1.GenerateRequest.
void ReadRequestField(BodyDraft& draft, const ApiField& field);
void ReadJoin(BodyDraft& draft, const ApiField& field);
void ReadWorkflowLimits(BodyDraft& draft, const ApiField& field);

// chat_reader.cc

// Reads max_tokens or its later name max_completion_tokens. If a chat has both, they must be equal.
void ReadChatMaxTokens(BodyDraft& draft, const ApiField& field);
void ReadChatLogprobs(BodyDraft& draft, const ApiField& field);
void ReadTopLogprobs(BodyDraft& draft, const ApiField& field);
// See HistoryReader.
void ReadMessages(BodyDraft& draft, const ApiField& field);
void ReadGenerationPrompt(BodyDraft& draft, const ApiField& field);
void ReadTemplateKwargs(BodyDraft& draft, const ApiField& field);
// REQUIRES: ReadTemplateKwargs was called, because the chat's own variables outrank the effort's.
void ReadReasoningEffort(BodyDraft& draft, const ApiField& field);

// chat_tools.cc

// With "none", the model is not shown the tools, so that it cannot call one.
void ReadToolChoice(BodyDraft& draft, const ApiField& field);
void ReadParallelToolCalls(BodyDraft& draft, const ApiField& field);
void ReadTools(BodyDraft& draft, const ApiField& field);
// The older form of tool_choice and tools. The answer then has the older form of calls.
void ReadFunctionCall(BodyDraft& draft, const ApiField& field);
void ReadFunctions(BodyDraft& draft, const ApiField& field);

// prefill_hints_reader.cc

void ReadPrefillHints(BodyDraft& draft, const ApiField& field);

// completion_reader.cc

void ReadCompletionMaxTokens(BodyDraft& draft, const ApiField& field);
void ReadCompletionLogprobs(BodyDraft& draft, const ApiField& field);
void ReadSegments(BodyDraft& draft, const ApiField& field);
// A body has either segments or a prompt. A body that continues a context may lack both.
void ReadPrompt(BodyDraft& draft, const ApiField& field);
void ReadEcho(BodyDraft& draft, const ApiField& field);

// model_routes.cc

void ReadTokenizeText(BodyDraft& draft, const ApiField& field);
void ReadAddSpecialTokens(BodyDraft& draft, const ApiField& field);
void ReadDetokenizeIds(BodyDraft& draft, const ApiField& field);

}  // namespace baton
