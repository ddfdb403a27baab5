#include "frontend/openai/known_members.h"

namespace baton {
namespace {

using Rule = KnownMember::Rule;

// tools/make_reference reads the rows of these tables.
constexpr KnownMember kMessageMembers[] = {
    {"role", Rule::kRead},
    {"content", Rule::kRead},            // a text, or a list of parts
    {"name", Rule::kRead},               // for the template
    {"refusal", Rule::kRead},            // of an answer: its text
    {"reasoning_content", Rule::kRead},  // of an answer
    {"reasoning", Rule::kRead},          // the other name of reasoning_content
    {"tool_calls", Rule::kRead},         // of an answer
    {"function_call", Rule::kRead},      // the older form of tool_calls
    {"tool_call_id", Rule::kRead},       // of the result of a tool
    {"annotations"},                     // OpenAI: citations of web pages
    {"audio", Rule::kEmpty},             // OpenAI: the answer as audio
    {"cache_control"},                   // Anthropic, through litellm
    {"citations"},                       // litellm, Perplexity
    {"extra_content"},                   // Google
    {"id"},                              // agent frameworks
    {"images", Rule::kEmpty},            // litellm, OpenRouter
    {"metadata"},                        // agent frameworks
    {"parsed"},                          // openai-python: parse()
    {"partial", Rule::kEmpty},           // Moonshot: the answer continues this message
    {"prefix", Rule::kEmpty},            // Mistral, DeepSeek: the answer continues this message
    {"provider_specific_fields"},        // litellm
    {"reasoning_details"},               // OpenRouter
    {"reasoning_items"},                 // litellm
    {"status"},                          // OpenAI's Responses API
    {"thinking_blocks"},                 // litellm
    {"weight"},                          // OpenAI: fine-tuning
};

constexpr KnownMember kPartMembers[] = {
    {"type", Rule::kRead},
    {"text", Rule::kRead},
    {"refusal", Rule::kRead},      // text of an answer
    {"thinking", Rule::kRead},     // Anthropic: a thought
    {"reasoning", Rule::kRead},    // a thought
    {"data", Rule::kRead},         // Anthropic: a hidden thought, which is left out
    {"output_of", Rule::kRead},    // a reference
    {"group", Rule::kRead},        // a part group
    {"annotations"},               // OpenAI's Responses API
    {"cache_control"},             // Anthropic
    {"citations"},                 // Anthropic
    {"extras"},                    // langchain
    {"id"},                        // langchain
    {"index"},                     // langchain: a streamed part
    {"logprobs"},                  // OpenAI's Responses API
    {"prompt_cache_breakpoint"},   // OpenAI
    {"provider_specific_fields"},  // litellm
    {"signature"},                 // Anthropic: of a thought
};

constexpr KnownMember kToolCallMembers[] = {
    {"id", Rule::kRead},
    {"type", Rule::kRead},  // function
    {"function", Rule::kRead},
    {"name", Rule::kRead},         // in the function
    {"arguments", Rule::kRead},    // in the function: a text of JSON, or an object
    {"cache_control"},             // Anthropic, through litellm
    {"custom", Rule::kEmpty},      // OpenAI: a call of another type
    {"extra_content"},             // Google
    {"index"},                     // a streamed call
    {"parsed_arguments"},          // openai-python: parse(), in the function
    {"provider_specific_fields"},  // litellm
    {"thought_signature"},         // Google, through other servers
};

constexpr KnownMember kToolMembers[] = {
    {"type", Rule::kRead},  // function
    {"function", Rule::kRead},
    {"name", Rule::kRead},            // in the function
    {"description", Rule::kRead},     // in the function
    {"parameters", Rule::kRead},      // in the function: a JSON schema
    {"strict", Rule::kRead},          // in the function: calls are compared with the schema
    {"defer_loading", Rule::kEmpty},  // vLLM
    {"cache_control"},                // Anthropic, through litellm
    {"provider_specific_fields"},     // litellm
};

constexpr KnownMember kStreamOptionMembers[] = {
    {"include_usage", Rule::kRead},
    {"continuous_usage_stats", Rule::kRead},  // vLLM: usage in each event
    {"include_obfuscation", Rule::kRead},     // OpenAI: pads events; default false
};

constexpr KnownMember kResponseFormatMembers[] = {
    {"type", Rule::kRead},            // text
    {"json_schema", Rule::kRefused},  // with the type json_schema
    {"name", Rule::kRefused},         // in json_schema
    {"description", Rule::kRefused},  // in json_schema
    {"schema", Rule::kRefused},       // in json_schema
    {"strict", Rule::kRefused},       // in json_schema
    {"format", Rule::kRefused},       // vLLM: with the type structural_tag
    {"structures", Rule::kRefused},   // vLLM: the older form of structural_tag
    {"triggers", Rule::kRefused},     // vLLM: the older form of structural_tag
};

constexpr KnownMember kToolChoiceMembers[] = {
    {"type", Rule::kRefused},           // function, allowed_tools, custom
    {"function", Rule::kRefused},       // a forced call
    {"custom", Rule::kRefused},         // a forced call of another type
    {"name", Rule::kRefused},           // in the function, in custom, and in a function_call
    {"allowed_tools", Rule::kRefused},  // the tools that may be called
    {"mode", Rule::kRefused},           // in allowed_tools
    {"tools", Rule::kRefused},          // in allowed_tools
};

bool IsEmpty(const Json& value) {
  if (value.is_boolean()) return !value.get<bool>();
  if (value.is_string()) return value.get_ref<const std::string&>().empty();
  return value.is_structured() && value.empty();
}

}  // namespace

std::span<const KnownMember> MessageMembers() { return kMessageMembers; }
std::span<const KnownMember> PartMembers() { return kPartMembers; }
std::span<const KnownMember> ToolCallMembers() { return kToolCallMembers; }
std::span<const KnownMember> ToolMembers() { return kToolMembers; }
std::span<const KnownMember> StreamOptionMembers() { return kStreamOptionMembers; }
std::span<const KnownMember> ResponseFormatMembers() { return kResponseFormatMembers; }
std::span<const KnownMember> ToolChoiceMembers() { return kToolChoiceMembers; }

void SkipEmpty(FieldReader& object, std::string_view name, std::string_view why) {
  const Json* value = object.Refused(name);
  if (value != nullptr && !IsEmpty(*value)) object.Refuse(name, why);
}

void SkipMembers(FieldReader& object, std::span<const KnownMember> members, std::string_view why) {
  for (const KnownMember& member : members) {
    if (member.rule == Rule::kEmpty) SkipEmpty(object, member.name, why);
    if (member.rule == Rule::kIgnored) object.Any(member.name);
    if (member.rule == Rule::kRefused && object.Refused(member.name) != nullptr) object.Refuse(member.name, why);
  }
}

}  // namespace baton
