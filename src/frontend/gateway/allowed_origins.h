// Cross-origin resource sharing (CORS): the web pages of other sites that may call the router.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "frontend/http/http_message.h"

namespace baton {

// Checks a value of --allow-origin: "*", "null", or an origin as browsers send it,
// "https://app.example:8443". Returns INVALID_ARGUMENT for any other text.
absl::Status CheckOrigin(std::string_view origin);

class AllowedOrigins {
 public:
  // `origins` are valid (CheckOrigin). "*" stands for all origins but "null", which is that of
  // sandboxed frames and local files. Every site can make such pages, so "null" is allowed only if
  // it is listed.
  explicit AllowedOrigins(std::vector<std::string> origins);

  // Returns false for an empty `origin`, which is that of a client without a page.
  bool Allow(std::string_view origin) const;
  // Returns the headers of every answer to a request of this origin. A browser shows the answer to
  // the page only with them.
  HttpHeaders AnswerHeaders(std::string_view origin) const;

 private:
  const std::vector<std::string> origins_;
  const bool all_;
};

// Returns whether a browser asks if a page may send a request.
bool IsPreflight(const HttpRequest& request);
// Returns the headers by which the answer to a preflight allows the request, whatever its headers
// are. The headers of AnswerHeaders are needed too.
HttpHeaders PreflightHeaders(const HttpRequest& preflight);

}  // namespace baton
