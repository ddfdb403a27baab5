#include "request/virtual_times.h"

#include "catch.h"

namespace baton {
namespace {

TEST_CASE("VirtualTimes lets a returning tenant start at the current virtual time") {
  VirtualTimes times;
  times.BeginWait("a");
  times.BeginWait("slow");
  for (int i = 0; i < 10; ++i) times.Charge({{"a", 100}});
  CHECK(times.TimeOf("a") == 1000);
  CHECK(times.TimeOf("slow") == 0);
  times.BeginWait("new");
  CHECK(times.TimeOf("new") == 900);
  times.EndWait("slow");
  CHECK(times.TimeOf("slow") == 900);
}

TEST_CASE("VirtualTimes remembers the time of a tenant that was served ahead") {
  VirtualTimes times;
  times.Charge({{"a", 500}});
  CHECK(times.TimeOf("a") == 500);
  times.Refund("a", 200);
  CHECK(times.TimeOf("a") == 300);
  times.Refund("a", 300);
  times.Refund("a", 1);  // nothing of the charge is left
  CHECK(times.TimeOf("a") == 0);
}

}  // namespace
}  // namespace baton
