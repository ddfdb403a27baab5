// Paths of files in the checkout.
#pragma once

#include <string>
#include <string_view>

namespace baton {

// Returns the path of a file in the checkout. `relative` begins at the root of the checkout. Only
// source_path.cc has the root, so compiler caches serve the tests of any checkout.
std::string SourcePath(std::string_view relative);

}  // namespace baton
