#include "frontend/http/request_head.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/strings.h"
#include "boost/beast/core/string.hpp"
#include "boost/beast/http/field.hpp"

namespace baton {
namespace {

namespace http = boost::beast::http;

constexpr std::string_view kLineEnd = "\r\n";

std::string Text(boost::beast::string_view view) { return std::string(view.data(), view.size()); }

// Removes the authority of a target: "http://host/path" becomes "/path".
std::string_view WithoutAuthority(std::string_view target) {
  const size_t host = target.starts_with("http://") ? 7 : target.starts_with("https://") ? 8 : 0;
  if (host == 0) return target;
  const size_t slash = target.find('/', host);
  return slash == std::string_view::npos ? "/" : target.substr(slash);
}

}  // namespace

std::optional<HttpProblem> ProblemOf(const ParsedRequest& head, int max_headers) {
  const bool is_http_1_0 = head.version() == 10;
  const auto headers = std::distance(head.begin(), head.end());
  if (headers > max_headers) return HttpProblem{431, absl::StrCat("headers: ", headers, ", limit ", max_headers)};
  if (!is_http_1_0 && head.count(http::field::host) != 1) return HttpProblem{400, "Host: expected exactly one"};
  if (head.count(http::field::authorization) > 1) return HttpProblem{400, "Authorization: expected one at most"};
  if (head.count("x-api-key") > 1) return HttpProblem{400, "x-api-key: expected one at most"};
  // Another encoding around "chunked" would be passed on undecoded. In an HTTP/1.0 request, the
  // header was passed on by a proxy that does not support it.
  const bool encoded = head.count(http::field::transfer_encoding) > 0;
  if (encoded && (is_http_1_0 || head.count(http::field::transfer_encoding) > 1 ||
                  !boost::beast::iequals(head[http::field::transfer_encoding], "chunked"))) {
    return HttpProblem{400, "Transfer-Encoding: only chunked is supported, and only in HTTP/1.1"};
  }
  return std::nullopt;
}

HttpRequest HeadOf(const ParsedRequest& head) {
  HttpRequest request;
  request.method = Text(head.method_string());
  const std::string target(WithoutAuthority({head.target().data(), head.target().size()}));
  const size_t mark = target.find('?');
  request.path = target.substr(0, mark);
  if (mark != std::string::npos) request.query = target.substr(mark + 1);
  for (const auto& field : head) request.headers.emplace_back(Text(field.name_string()), Text(field.value()));
  return request;
}

HttpRequest PartialHeadOf(const ParsedRequest& head, std::string_view rest) {
  HttpRequest request = HeadOf(head);
  for (size_t end = rest.find(kLineEnd); end != std::string_view::npos && end > 0; end = rest.find(kLineEnd)) {
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end + kLineEnd.size());
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos || std::ranges::any_of(line, absl::ascii_iscntrl)) continue;
    request.headers.emplace_back(line.substr(0, colon),
                                 ToStd(absl::StripAsciiWhitespace(ToAbsl(line.substr(colon + 1)))));
  }
  return request;
}

std::string EncodingsOf(const ParsedRequest& head) {
  std::string encodings;
  const auto [begin, end] = head.equal_range(http::field::content_encoding);
  for (auto field = begin; field != end; ++field) {
    absl::StrAppend(&encodings, encodings.empty() ? "" : ", ", Text(field->value()));
  }
  return encodings;
}

}  // namespace baton
