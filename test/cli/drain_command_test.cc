#include "cli/drain_command.h"

#include "catch.h"

namespace baton {
namespace {

TEST_CASE("DrainText states whether the worker still has requests") {
  v1::DrainWorkerResponse response;
  CHECK(DrainText({.server = {}, .worker = "d:1"}, response) ==
        "worker d:1 is drained: it has no request of this router\n");
  response.set_remaining_requests(2);
  CHECK(DrainText({.server = {}, .worker = "d:1"}, response) ==
        "worker d:1 is drained: it still runs 2 requests of this router, which move or end later\n");
  CHECK(DrainText({.server = {}, .worker = "d:1", .undo = true}, response) == "worker d:1 gets requests again\n");
}

TEST_CASE("DrainText makes the worker's name printable") {
  CHECK(DrainText({.server = {}, .worker = "d\x1b[2J", .undo = true}, {}).find('\x1b') == std::string::npos);
}

}  // namespace
}  // namespace baton
