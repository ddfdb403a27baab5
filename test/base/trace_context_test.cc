#include "base/trace_context.h"

#include "catch.h"

namespace baton {
namespace {

const std::string kTrace = "4bf92f3577b34da6a3ce929d0e0e4736", kSpan = "00f067aa0ba902b7";
const std::string kHeader = "00-" + kTrace + "-" + kSpan + "-01";

TEST_CASE("ToTraceparent returns the header that ParseTraceparent read") {
  const auto context = ParseTraceparent(kHeader);
  REQUIRE(context.has_value());
  CHECK(context->trace_id == kTrace);
  CHECK(context->span_id == kSpan);
  CHECK(context->sampled);
  CHECK_FALSE(context->random);
  CHECK(ToTraceparent(*context) == kHeader);
}

TEST_CASE("ParseTraceparent ignores a malformed traceparent") {
  const std::string zeros(32, '0');
  for (const std::string& header :
       {std::string(), std::string("00"), kHeader.substr(0, 54), kHeader + "-", kHeader + " ", kHeader + "-more",
        "ff" + kHeader.substr(2), "0x" + kHeader.substr(2), "00-" + zeros + "-" + kSpan + "-01",
        "00-" + kTrace + "-0000000000000000-01", "00-" + kTrace + "-" + kSpan + "-0g", "00_" + kHeader.substr(3),
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-" + kSpan + "-01", "00-" + kTrace + "-" + kSpan + "_01",
        "01" + kHeader.substr(2) + "more"}) {
    INFO(header);
    CHECK_FALSE(ParseTraceparent(header).has_value());
  }
}

TEST_CASE("ParseTraceparent reads the known part of a later version and drops other flags") {
  for (const std::string& header : {"01" + kHeader.substr(2), "cc" + kHeader.substr(2) + "-what-comes"}) {
    INFO(header);
    REQUIRE(ParseTraceparent(header).has_value());
    CHECK(ToTraceparent(*ParseTraceparent(header)) == kHeader);
  }
  CHECK(ToTraceparent(*ParseTraceparent(kHeader.substr(0, 53) + "ff")) == kHeader.substr(0, 53) + "03");
  CHECK(ToTraceparent(*ParseTraceparent(kHeader.substr(0, 53) + "00")) == kHeader.substr(0, 53) + "00");
}

TEST_CASE("BeginSpan gives a call a span in its caller's trace or a new trace") {
  const TraceContext joined = BeginSpan(kHeader);
  CHECK(joined.trace_id == kTrace);
  CHECK(joined.span_id != kSpan);
  CHECK(joined.sampled);
  for (const std::string& header : {std::string(), kHeader.substr(1)}) {
    const TraceContext fresh = BeginSpan(header), another = BeginSpan(header);
    CHECK(ParseTraceparent(ToTraceparent(fresh)).has_value());
    CHECK(fresh.trace_id != another.trace_id);
    CHECK(fresh.span_id != another.span_id);
    CHECK_FALSE(fresh.sampled);
    CHECK(fresh.random);
  }
}

}  // namespace
}  // namespace baton
