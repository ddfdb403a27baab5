// The page at /ui.
#pragma once

#include <string_view>

namespace baton {

// One HTML document with its script and style inside, compiled in from page.html.
std::string_view UiPage();

}  // namespace baton
