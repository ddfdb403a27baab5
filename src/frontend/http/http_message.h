// An HTTP/1.1 request and response, as handlers see them.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace baton {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;
  std::string path, query;  // before and after the first '?', not decoded; query may be empty
  HttpHeaders headers;
  std::string body;  // decoded if "content-encoding" names an encoding
  std::string peer;  // the client's address
  // The account of HttpOptions::max_bodies_bytes that the request counts for. Empty if it has none.
  std::string account;
  // Headers of every answer to this request, besides those of the answer itself.
  HttpHeaders answer_headers;
  // The request's share of HttpOptions::max_bodies_bytes, held as long as the request is kept.
  std::shared_ptr<const void> charge;

  // Returns the value of the first header of this name, in any case of letters. Empty if there is
  // none.
  std::string_view header(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  HttpHeaders headers;  // without the headers that describe how the body is sent
  std::string body;
};

// A reason to refuse a request, and the status of that answer.
struct HttpProblem {
  int status = 400;
  std::string message;
};

// The phrase after a status code: "Not Found".
std::string_view ReasonPhrase(int status);

}  // namespace baton
