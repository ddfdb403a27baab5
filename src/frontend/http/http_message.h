// A request and an answer of HTTP/1.1, as those who serve it see them.
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
  std::string path, query;  // around the first '?', as they came; the query may be empty
  HttpHeaders headers;
  std::string body;
  std::string peer;                    // its address
  std::string account;                 // whose share of HttpOptions::max_bodies_bytes it counts in; empty: nobody's
  std::shared_ptr<const void> charge;  // what it counts for among HttpOptions::max_bodies_bytes, as long as it is kept

  // The first value of this name, whatever the case of its letters; empty: there is none.
  std::string_view header(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  HttpHeaders headers;  // without those that say how the body is sent
  std::string body;
};

// What follows a status code: "Not Found".
std::string_view ReasonPhrase(int status);

}  // namespace baton
