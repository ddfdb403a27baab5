// Files of the checkout that tests read.
#pragma once

#include <string>
#include <string_view>

namespace baton {

// `relative`: to the root of the checkout. Compiled in one place, so that compiler caches serve any checkout's tests.
std::string SourcePath(std::string_view relative);

}  // namespace baton
