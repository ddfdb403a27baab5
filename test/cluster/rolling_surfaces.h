// The ways in which clients call a router. Each surface behaves like a real client of its kind, and
// decides from a failure whether to send the request again.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace baton {

struct Question {
  int prompt = 0;  // equal prompts have equal answers
  // Unique. It separates the KV and the request ids of questions.
  std::string tag{};
  size_t router = 0;     // the router to call
  bool is_first = true;  // whether this is the first try
};

struct Try {
  // All tokens and the bits of their probabilities. Empty if the try failed.
  std::string answer{};
  std::string failure{};  // the error
  // Whether the error allows another try. No part of an answer had arrived.
  bool may_repeat = false;
  std::chrono::seconds wait{};  // the wait before the next try
};

// The calls of one client. Not thread-safe. It makes no assertions, so any thread may use it.
class Surface {
 public:
  virtual ~Surface() = default;
  virtual Try Ask(const Question& question) = 0;
};

struct SurfaceKind {
  std::string name;
  size_t tries;  // for each request, with the routers one after the other
  std::function<std::unique_ptr<Surface>()> make;
};

// Surfaces for the routers at these addresses. A request is sent again if it was UNAVAILABLE before
// any answer. It is also sent again if it was CANCELLED, which gRPC's servers return to calls that
// arrive while they stop.
std::vector<SurfaceKind> GrpcSurfaces(const std::vector<std::string>& routers);
// Surfaces that behave like OpenAI's package behind a balancer. It sends a call up to twice again
// in two cases: the connection ended before an answer, or the status is 429, 503 or similar. The
// answer can forbid another try and state the time for it. A stream that has begun is not sent
// again.
std::vector<SurfaceKind> HttpSurfaces(const std::vector<std::string>& routers);

}  // namespace baton
