#include "frontend/ui/page.h"

#include <openssl/sha.h>

#include <array>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace baton {
namespace {

// Returns the entry of a Content-Security-Policy, "'sha256-...'", that allows the content of the
// page's only element of this name.
std::string SourceOf(const std::string& element) {
  const std::string_view page = UiPage();
  const size_t begin = page.find("<" + element + ">"), end = page.find("</" + element + ">");
  BATON_CHECK(begin != page.npos && end != page.npos, element);
  const size_t text = begin + element.size() + 2;
  std::array<unsigned char, SHA256_DIGEST_LENGTH> sha;
  SHA256(reinterpret_cast<const unsigned char*>(page.data()) + text, end - text, sha.data());
  return absl::StrCat(
      "'sha256-", absl::Base64Escape(absl::string_view(reinterpret_cast<const char*>(sha.data()), sha.size())), "'");
}

}  // namespace

std::string_view UiPage() {
  return
#include "frontend/ui/page.inc"
      ;
}

std::string UiPolicy(std::string_view connect) {
  return absl::StrCat("default-src 'none'; script-src ", SourceOf("script"), "; style-src ", SourceOf("style"),
                      "; connect-src ", absl::string_view(connect.data(), connect.size()),
                      "; base-uri 'none'; form-action 'none'");
}

std::string UiPageWith(std::string_view inlined) {
  constexpr std::string_view kHead = "<head>\n", kScript = "<script>";  // the page has one of each
  const std::string_view page = UiPage();
  const size_t head = page.find(kHead) + kHead.size(), script = page.find(kScript);
  BATON_CHECK(head >= kHead.size() && script != page.npos, "a page without head or script");
  std::string document(page.substr(0, head));
  absl::StrAppend(&document, "<meta http-equiv=\"Content-Security-Policy\" content=\"", UiPolicy("'none'"), "\">\n");
  document += page.substr(head, script - head);
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
