// Finds the name that a misspelt name means.
#pragma once

#include <span>
#include <string_view>

namespace baton {

// Returns the name of `known` with the fewest edits from `name`, or "" if none is near. Case, '_'
// and '-' do not count as edits. A name of n letters may have n / 3 edits.
std::string_view NearestName(std::string_view name, std::span<const std::string_view> known);

}  // namespace baton
