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
  times.Settle("a", 500, 300);
  CHECK(times.TimeOf("a") == 300);
  times.Settle("a", 400, 100);
  times.Settle("a", 1, 0);  // nothing of the charge is left
  CHECK(times.TimeOf("a") == 0);
}

TEST_CASE("VirtualTimes charges the rest when a tenant was served more than it was charged") {
  VirtualTimes times;
  times.Charge({{"a", 100}});
  times.Settle("a", 100, 450);
  CHECK(times.TimeOf("a") == 450);
  CHECK(times.TimeOf("b") == 0);  // the current virtual time
  times.Settle("b", 10, 30);      // its charge lies behind the current virtual time
  CHECK(times.TimeOf("b") == 20);
}

}  // namespace
}  // namespace baton
