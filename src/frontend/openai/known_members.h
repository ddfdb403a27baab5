// Tables of the members that servers and official clients put into messages, parts and tools, and
// that do not change the prompt.
#pragma once

#include <span>
#include <string_view>

#include "frontend/openai/field_reader.h"

namespace baton {

struct KnownMember {
  enum class Rule {
    kIgnored,  // accepted with any value
    kEmpty,    // accepted if it is null, false, or without content
  };

  std::string_view name;
  Rule rule = Rule::kIgnored;
};

// Members that clients send back as they received them, or that mark a place for another server's
// cache. The tables do not have the members that a reader reads.
std::span<const KnownMember> MessageMembers();
std::span<const KnownMember> PartMembers();
std::span<const KnownMember> ToolCallMembers();
std::span<const KnownMember> ToolMembers();

// Takes the members of a table. Refuses one that must be empty and is not, with the reason `why`.
void SkipMembers(FieldReader& object, std::span<const KnownMember> members, std::string_view why = "is not supported");
// Takes one member that must be empty.
void SkipEmpty(FieldReader& object, std::string_view name, std::string_view why);

}  // namespace baton
