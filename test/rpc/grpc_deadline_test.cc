#include "rpc/grpc_deadline.h"

#include <dlfcn.h>

#include <string>
#include <thread>
#include <vector>

#include "absl/base/config.h"
#include "absl/strings/str_cat.h"
#include "catch.h"
#include "grpc/support/sync.h"
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

TEST_CASE("gRPC and Abseil wait by Baton's functions") {
  const auto server = GrpcServer::Start("", GrpcServer::Audience::kWorkers, {});
  REQUIRE(server.ok());
  const auto deadline_after = &DeadlineAfter;
  std::vector<std::string> names = {"gpr_sleep_until", "gpr_cv_wait"};
  if (ABSL_LTS_RELEASE_VERSION < 20230802) {
    names.push_back(absl::StrCat("AbslInternalPerThreadSemWait_", ABSL_INTERNAL_INLINE_NAMESPACE_STR));
  }
  for (const std::string& name : names) {
    INFO(name);
    const void* function = dlsym(RTLD_DEFAULT, name.c_str());
    REQUIRE(function != nullptr);
    CHECK(HolderOf(function) == HolderOf(reinterpret_cast<const void*>(deadline_after)));
  }
}

// A mutex and a condition of gRPC, whose mutex the test holds.
struct HeldCondition {
  gpr_mu mutex;
  gpr_cv changed;
  HeldCondition() {
    gpr_mu_init(&mutex);
    gpr_cv_init(&changed);
    gpr_mu_lock(&mutex);
  }
  ~HeldCondition() {
    gpr_mu_unlock(&mutex);
    gpr_cv_destroy(&changed);
    gpr_mu_destroy(&mutex);
  }
  bool TimesOut(gpr_timespec until) { return gpr_cv_wait(&changed, &mutex, until) != 0; }
};

TEST_CASE("A wait of gRPC ends at its deadline and not earlier") {
  HeldCondition condition;
  const gpr_timespec deadline = DeadlineAfter(absl::Milliseconds(20));
  CHECK(condition.TimesOut(deadline));
  CHECK(TimeUntil(deadline) <= absl::ZeroDuration());
  CHECK(condition.TimesOut(deadline));
  CHECK(condition.TimesOut(gpr_inf_past(GPR_CLOCK_MONOTONIC)));
  CHECK(condition.TimesOut(gpr_now(GPR_CLOCK_REALTIME)));
}

TEST_CASE("A wait of gRPC ends when it is notified") {
  for (const gpr_timespec until : {DeadlineAfter(absl::Hours(1)), gpr_inf_future(GPR_CLOCK_MONOTONIC)}) {
    HeldCondition condition;
    bool notified = false;
    std::thread notifier([&] {
      gpr_mu_lock(&condition.mutex);
      notified = true;
      gpr_cv_signal(&condition.changed);
      gpr_mu_unlock(&condition.mutex);
    });
    while (!notified) CHECK_FALSE(condition.TimesOut(until));
    notifier.join();
  }
}

}  // namespace
}  // namespace baton
