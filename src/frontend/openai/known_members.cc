#include "frontend/openai/known_members.h"

namespace baton {
namespace {

using Rule = KnownMember::Rule;

constexpr KnownMember kMessageMembers[] = {
    {"annotations"},               // OpenAI: citations of web pages
    {"audio", Rule::kEmpty},       // OpenAI: the answer as audio
    {"cache_control"},             // Anthropic, through litellm
    {"citations"},                 // litellm, Perplexity
    {"extra_content"},             // Google
    {"id"},                        // agent frameworks
    {"images", Rule::kEmpty},      // litellm, OpenRouter
    {"metadata"},                  // agent frameworks
    {"parsed"},                    // openai-python: parse()
    {"partial", Rule::kEmpty},     // Moonshot: the answer continues this message
    {"prefix", Rule::kEmpty},      // Mistral, DeepSeek: the answer continues this message
    {"provider_specific_fields"},  // litellm
    {"reasoning_details"},         // OpenRouter
    {"reasoning_items"},           // litellm
    {"status"},                    // OpenAI's Responses API
    {"thinking_blocks"},           // litellm
    {"weight"},                    // OpenAI: fine-tuning
};

constexpr KnownMember kPartMembers[] = {
    {"annotations"},               // OpenAI's Responses API
    {"cache_control"},             // Anthropic
    {"citations"},                 // Anthropic
    {"extras"},                    // langchain
    {"id"},                        // langchain
    {"index"},                     // langchain: a streamed part
    {"logprobs"},                  // OpenAI's Responses API
    {"provider_specific_fields"},  // litellm
    {"signature"},                 // Anthropic: of a thought
};

constexpr KnownMember kToolCallMembers[] = {
    {"cache_control"},             // Anthropic, through litellm
    {"custom", Rule::kEmpty},      // OpenAI: a call of another type
    {"extra_content"},             // Google
    {"index"},                     // a streamed call
    {"parsed_arguments"},          // openai-python: parse(), in the function
    {"provider_specific_fields"},  // litellm
    {"thought_signature"},         // Google, through other servers
};

constexpr KnownMember kToolMembers[] = {
    {"cache_control"},             // Anthropic, through litellm
    {"provider_specific_fields"},  // litellm
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

void SkipEmpty(FieldReader& object, std::string_view name, std::string_view why) {
  const Json* value = object.Any(name);
  if (value != nullptr && !IsEmpty(*value)) object.Refuse(name, why);
}

void SkipMembers(FieldReader& object, std::span<const KnownMember> members, std::string_view why) {
  for (const KnownMember& member : members) {
    member.rule == Rule::kEmpty ? SkipEmpty(object, member.name, why) : (void)object.Any(member.name);
  }
}

}  // namespace baton
