// The policy of the page at /ui. clients/python/tests/ui_test.py tests the page's content in a
// browser.
#include "frontend/ui/page.h"

#include <string>

#include "catch.h"
#include "nlohmann/json.hpp"

namespace baton {
namespace {

int Count(std::string_view text, std::string_view part) {
  int count = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++count;
  return count;
}

std::string Inlined(const std::string& page) {
  const std::string begin = "<script type=\"application/json\" id=\"inlined\">";
  const size_t from = page.find(begin) + begin.size();
  return page.substr(from, page.find("</script>", from) - from);
}

}  // namespace

TEST_CASE("The page is one document that names no other host") {
  CHECK(UiPage().starts_with("<!doctype html>"));
  CHECK(Count(UiPage(), "<script>") == 1);
  CHECK(Count(UiPage(), "<style>") == 1);
  for (const char* foreign : {"http://", "https://", "src=", "@import"}) {
    INFO(foreign);
    CHECK(Count(UiPage(), foreign) == 0);
  }
}

TEST_CASE("The policy allows the page's own script and style, by their digests") {
  const std::string policy = UiPolicy("'self'");
  INFO(policy);
  CHECK(policy.starts_with("default-src 'none'; script-src 'sha256-"));
  CHECK(Count(policy, "'sha256-") == 2);
  CHECK(Count(policy, "unsafe") == 0);
  CHECK(policy.find("; connect-src 'self'; ") != policy.npos);
  CHECK(UiPolicy("'none'").find("; connect-src 'none'; ") != policy.npos);
}

TEST_CASE("A page for a file has its data and a policy, and data ends no element") {
  const std::string hostile = "</script><script>alert(1)</script><!--";
  const std::string page = UiPageWith(nlohmann::json({{"workflow", hostile}}).dump());
  CHECK(Count(page, "<script") == 2);
  CHECK(Count(page, "<!--") == Count(UiPage(), "<!--"));
  CHECK(nlohmann::json::parse(Inlined(page)).at("workflow") == hostile);
  const size_t policy =
      page.find("<meta http-equiv=\"Content-Security-Policy\" content=\"" + UiPolicy("'none'") + "\">");
  REQUIRE(policy != page.npos);
  CHECK(policy < page.find("<script"));  // the policy stands before the elements that it covers
}

}  // namespace baton
