#include "rpc/grpc_deadline.h"

#include <dlfcn.h>

#include "catch.h"
#include "rpc/grpc_server.h"

namespace baton {
namespace {

// Returns the address of the program or library that contains `symbol`.
const void* HolderOf(const void* symbol) {
  Dl_info info{};
  REQUIRE(dladdr(symbol, &info) != 0);
  return info.dli_fbase;
}

TEST_CASE("A deadline of gRPC lies on the monotonic clock") {
  const gpr_timespec before = gpr_now(GPR_CLOCK_MONOTONIC);
  const gpr_timespec deadline = DeadlineAfter(absl::Milliseconds(2500));
  CHECK(deadline.clock_type == GPR_CLOCK_MONOTONIC);
  CHECK(gpr_time_cmp(deadline, gpr_time_add(before, gpr_time_from_millis(2500, GPR_TIMESPAN))) >= 0);
  CHECK(TimeUntil(deadline) <= absl::Milliseconds(2500));
}

TEST_CASE("TimeUntil is negative when the deadline has passed") {
  CHECK(TimeUntil(DeadlineAfter(absl::Seconds(-3))) <= absl::Seconds(-3));
  CHECK(TimeUntil(gpr_inf_past(GPR_CLOCK_MONOTONIC)) < absl::ZeroDuration());
}

TEST_CASE("An infinite deadline of gRPC stays infinite") {
  CHECK(TimeUntil(DeadlineAfter(absl::InfiniteDuration())) == absl::InfiniteDuration());
  CHECK(TimeUntil(gpr_inf_future(GPR_CLOCK_REALTIME)) == absl::InfiniteDuration());
}

TEST_CASE("gRPC's threads sleep by Baton's function") {
  const auto server = GrpcServer::Start("", GrpcServer::Audience::kWorkers, {});
  REQUIRE(server.ok());
  const void* sleep = dlsym(RTLD_DEFAULT, "gpr_sleep_until");
  const auto deadline_after = &DeadlineAfter;
  CHECK(HolderOf(sleep) == HolderOf(reinterpret_cast<const void*>(deadline_after)));
}

}  // namespace
}  // namespace baton
