// The HTML page at /ui.
#pragma once

#include <string>
#include <string_view>

namespace baton {

// One HTML document with script and style, compiled in from page.html.
std::string_view UiPage();

// A Content-Security-Policy under which the page works. The policy keeps foreign text from loading,
// running or sending anything, even if it became an element. `connect` lists the sources that the
// page's script may request, such as "'self'".
std::string UiPolicy(std::string_view connect);

// Returns the same document for a file. It draws the workflow of `inlined`, a JSON object
// {"workflow": name, "trace": an answer of /ui/trace}, and sends no requests. Foreign text in
// `inlined` cannot end the element that holds it.
std::string UiPageWith(std::string_view inlined);

}  // namespace baton
