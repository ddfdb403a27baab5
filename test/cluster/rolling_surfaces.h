// The ways in which clients call a router, each as a client of that kind does it: what it answers, and what a failure
// allows.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace baton {

struct Question {
  int prompt = 0;        // the same answer for the same one
  std::string tag{};     // no other question's: no KV of others is found, and ids are new
  size_t router = 0;     // to ask
  bool is_first = true;  // of its tries
};

struct Try {
  std::string answer{};         // all tokens and the bits of their probabilities; empty: it failed
  std::string failure{};        // what it said
  bool may_repeat = false;      // by what it said, and nothing of an answer had come
  std::chrono::seconds wait{};  // that it asks for
};

// One client's. Not thread-safe; asserts nothing, so that it may run on any thread.
class Surface {
 public:
  virtual ~Surface() = default;
  virtual Try Ask(const Question& question) = 0;
};

struct SurfaceKind {
  std::string name;
  size_t tries;  // of each request, the routers in turn
  std::function<std::unique_ptr<Surface>()> make;
};

// Of routers at these addresses. What was UNAVAILABLE before anything came is sent again; so is what was CANCELLED,
// which gRPC's servers say to calls that come in the moment in which they stop.
std::vector<SurfaceKind> GrpcSurfaces(const std::vector<std::string>& routers);
// As OpenAI's package behind a balancer: it sends a call twice again where its connection ends before an answer, and
// after 429, 503 and their like unless the answer says that it should not, when the answer says so. A stream that has
// begun is not begun again.
std::vector<SurfaceKind> HttpSurfaces(const std::vector<std::string>& routers);

}  // namespace baton
