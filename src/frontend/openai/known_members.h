// Tables of the members of objects in bodies: messages, parts, tools and others.
#pragma once

#include <span>
#include <string_view>

#include "frontend/openai/field_reader.h"

namespace baton {

struct KnownMember {
  enum class Rule {
    kRead,     // a reader reads it
    kIgnored,  // accepted with any value
    kEmpty,    // accepted if it is null, false, or without content
    kRefused,  // refused unless it is null
  };

  std::string_view name;
  Rule rule = Rule::kIgnored;
};

// Ignored members are those that clients send back as they received them, or that mark a place for
// another server's cache. A table also has the members of an object's own objects, such as those of
// a tool's function.
std::span<const KnownMember> MessageMembers();
std::span<const KnownMember> PartMembers();
std::span<const KnownMember> ToolCallMembers();
std::span<const KnownMember> ToolMembers();
std::span<const KnownMember> StreamOptionMembers();
std::span<const KnownMember> ResponseFormatMembers();
std::span<const KnownMember> ToolChoiceMembers();

// Takes the members of a table that no reader reads. Refuses a member with the reason `why` if the
// table refuses it, or if it must be empty and is not.
void SkipMembers(FieldReader& object, std::span<const KnownMember> members, std::string_view why = "is not supported");
// Takes one member that must be empty.
void SkipEmpty(FieldReader& object, std::string_view name, std::string_view why);

}  // namespace baton
