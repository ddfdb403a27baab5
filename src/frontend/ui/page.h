// The page at /ui.
#pragma once

#include <string>
#include <string_view>

namespace baton {

// One HTML document with its script and style inside, compiled in from page.html.
std::string_view UiPage();

// A Content-Security-Policy under which the page works: should foreign text ever become an element, it still loads,
// runs and sends nothing. `connect`: the sources that the page's script may ask, such as "'self'".
std::string UiPolicy(std::string_view connect);

// The same document for a file: it draws the workflow of `inlined`, a JSON object {"workflow": name, "trace": an answer
// of /ui/trace}, and asks no router. Foreign text in `inlined` cannot end the element that holds it.
std::string UiPageWith(std::string_view inlined);

}  // namespace baton
