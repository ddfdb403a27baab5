// The head of a request as Beast has parsed it: what the server requires of it, and what handlers
// receive.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "boost/beast/http/message.hpp"
#include "boost/beast/http/string_body.hpp"
#include "frontend/http/http_message.h"

namespace baton {

using ParsedRequest = boost::beast::http::request<boost::beast::http::string_body>;

// Returns the first problem of the head, if there is one. `max_headers` is an upper bound on their
// number.
std::optional<HttpProblem> ProblemOf(const ParsedRequest& head, int max_headers);

// Returns the request without its body. Call it before the body is read, because a trailer's fields
// come after the body and are no headers.
HttpRequest HeadOf(const ParsedRequest& head);
// Returns what has arrived of a head that is incomplete or malformed: the fields that Beast has
// parsed, and whole lines of the `rest`, which Beast has not taken. Lines with control characters
// are left out.
HttpRequest PartialHeadOf(const ParsedRequest& head, std::string_view rest);

// Returns the values of all headers "content-encoding", separated by commas.
std::string EncodingsOf(const ParsedRequest& head);

}  // namespace baton
