// Tests that restart the processes of a cluster one after the other, while clients call in every
// way. No request is lost, and all answers have the tokens and bits of a quiet cluster.
#include <signal.h>

#include <iostream>
#include <vector>

#include "catch.h"
#include "rolling_fleet.h"
#include "rolling_load.h"

namespace baton {
namespace {

std::vector<SurfaceKind> AllSurfaces(const Fleet& fleet) {
  std::vector<SurfaceKind> all = GrpcSurfaces(fleet.grpc);
  for (SurfaceKind& kind : HttpSurfaces(fleet.http)) all.push_back(std::move(kind));
  return all;
}

void CheckNothingLost(Load& load) {
  load.Stop();
  const std::string report = load.Report();
  INFO(report);
  CHECK(load.lost() == 0);
  std::cout << "rolling restart:\n" << report;
}

TEST_CASE("Every request is answered when all processes restart and clients retry", "[waits]") {
  Fleet fleet;
  Load load(AllSurfaces(fleet), fleet.routers.size());
  load.AwaitMore(5);
  for (size_t i = 0; i < 2; ++i) {
    fleet.Restart(fleet.prefill[i]);
    load.AwaitMore(3);
    fleet.Restart(fleet.decode[i]);
    load.AwaitMore(3);
  }
  // Routers restart the requests that workers do not finish, so clients need not send them again.
  CHECK(load.sent_again() == 0);
  for (size_t i = 0; i < 2; ++i) {
    fleet.RestartRouter(i);
    load.AwaitMore(3);
  }
  CheckNothingLost(load);
}

TEST_CASE("Requests wait for the successor of a role's only worker") {
  Fleet fleet;
  for (auto* workers : {&fleet.prefill, &fleet.decode}) {
    (*workers)[1]->process.Signal(SIGTERM);
    REQUIRE((*workers)[1]->process.Wait() == 0);
  }
  Load load(AllSurfaces(fleet), fleet.routers.size());
  load.AwaitMore(3);
  fleet.Restart(fleet.prefill[0]);
  load.AwaitMore(3);
  fleet.Restart(fleet.decode[0]);
  load.AwaitMore(3);
  CHECK(load.sent_again() == 0);
  CheckNothingLost(load);
}

}  // namespace
}  // namespace baton
