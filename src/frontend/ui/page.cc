#include "frontend/ui/page.h"

#include "base/check.h"

namespace baton {

std::string_view UiPage() {
  return
#include "frontend/ui/page.inc"
      ;
}

std::string UiPageWith(std::string_view inlined) {
  constexpr std::string_view kScript = "<script>";  // the page has one
  const std::string_view page = UiPage();
  const size_t script = page.find(kScript);
  BATON_CHECK(script != page.npos, "a page without a script");
  std::string document(page.substr(0, script));
  document += "<script type=\"application/json\" id=\"inlined\">";
  for (const char c : inlined) {
    if (c == '<') {
      document += "\\u003c";
    } else {
      document += c;
    }
  }
  document += "</script>\n";
  document += page.substr(script);
  return document;
}

}  // namespace baton
