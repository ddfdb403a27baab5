#include "request/timeline.h"

#include <random>

#include "absl/strings/str_cat.h"
#include "catch.h"
#include "request/lives.h"
#include "seeds.h"

namespace baton {
namespace {

RequestLife Life(const std::string& id, int64_t ended_ms) {
  RequestLife life;
  life.outcome.id = id;
  life.workflow = "w";
  life.stages.arrived = life.stages.complete = At(0);
  life.stages.ended = At(ended_ms);
  return life;
}

PrefillStep Step(int64_t began_ms, int64_t ended_ms, int32_t tokens) {
  return {.began = absl::Milliseconds(began_ms), .ended = absl::Milliseconds(ended_ms), .tokens = tokens};
}

std::string Text(const std::vector<PhaseSpan>& spans) {
  const char* names[] = {"waiting", "queued", "prefill", "handoff", "decode_queue", "first", "decode"};
  std::string text;
  for (const PhaseSpan& span : spans) {
    absl::StrAppend(&text, text.empty() ? "" : " ", names[static_cast<int>(span.phase)], " ",
                    absl::ToInt64Milliseconds(span.begin - At(0)), "-", absl::ToInt64Milliseconds(span.end - At(0)));
    if (span.tokens > 0) absl::StrAppend(&text, " (", span.tokens, ")");
  }
  return text;
}

TEST_CASE("SpansOf shows waiting, prefill, hand-off and decode of a life") {
  RequestLife life = Life("r", 200);
  life.stages.arrived = At(10);
  life.stages.complete = At(60);
  life.stages.placed = At(11);
  life.stages.prefilled = At(100);
  life.stages.computed = At(95);
  // Two steps ran while the request waited. Two ran after that, with another request's steps
  // between them. One followed at once.
  life.steps = {Step(80, 75, 16), Step(60, 58, 32), Step(30, 20, 64), Step(15, 10, 8), Step(10, 5, 4)};
  life.stages.decoding = At(104);
  life.stages.first_token = At(110);
  life.outcome.completion_tokens = 7;
  CHECK(Text(SpansOf(life, At(900))) ==
        "waiting 10-20 prefill 20-25 (16) waiting 25-40 prefill 40-42 (32) waiting 42-60 queued 60-70 "
        "prefill 70-80 (64) queued 80-85 prefill 85-90 (8) prefill 90-95 (4) handoff 95-100 "
        "decode_queue 100-104 first 104-110 "
        "decode 110-200 (7)");
}

TEST_CASE("SpansOf shows no wait for a short pause between steps") {
  RequestLife life = Life("r", 10);
  life.stages.prefilled = At(10);
  life.outcome.prefill_only = true;
  life.steps = {Step(10, 6, 16), Step(6, 0, 16)};
  life.steps[1].began -= absl::Microseconds(499);
  CHECK(SpansOf(life, At(10)).size() == 2);
  life.steps[1].began -= absl::Microseconds(1);
  CHECK(SpansOf(life, At(10)).size() == 3);
}

TEST_CASE("SpansOf shows a live request up to now") {
  RequestLife life = Life("r", 0);
  life.stages.ended = life.stages.complete = absl::InfiniteFuture();
  CHECK(Text(SpansOf(life, At(5))) == "waiting 0-5");
  life.stages.placed = At(2);
  CHECK(Text(SpansOf(life, At(5))) == "waiting 0-5");
  life.stages.complete = At(4);
  CHECK(Text(SpansOf(life, At(8))) == "waiting 0-4 queued 4-8");
  life.stages.computing = At(6);
  CHECK(Text(SpansOf(life, At(8))) == "waiting 0-4 queued 4-6 prefill 6-8");
  life.stages.prefilled = At(9);
  CHECK(Text(SpansOf(life, At(12))) == "waiting 0-4 queued 4-9 decode_queue 9-12");
  life.stages.decoding = At(11);
  life.stages.first_token = At(12);
  CHECK(Text(SpansOf(life, At(20))) == "waiting 0-4 queued 4-9 decode_queue 9-11 first 11-12 decode 12-20");
}

TEST_CASE("SpansOf leaves no gap whatever times workers report") {
  ForEachSeed(1, [](uint64_t seed) {
    std::mt19937 random(seed);
    const auto any = [&] { return static_cast<int64_t>(random() % 2000) - 500; };
    for (int i = 0; i < 2000; ++i) {
      RequestLife life = Life("r", 1000);
      for (absl::Time* time :
           {&life.stages.complete, &life.stages.placed, &life.stages.computing, &life.stages.computed,
            &life.stages.prefilled, &life.stages.decoding, &life.stages.first_token}) {
        if (random() % 4 != 0) *time = At(any());
      }
      for (size_t step = random() % (kMaxPrefillSteps + 1); step > 0; --step) {
        life.steps.push_back(Step(any(), any(), 1));
      }
      if (!life.steps.empty() && random() % 8 == 0) life.steps.back().began = -absl::InfiniteDuration();
      life.outcome.prefill_only = random() % 2 == 0;
      const std::vector<PhaseSpan> spans = SpansOf(life, At(2000));
      REQUIRE(spans.size() <= 2 * kMaxPrefillSteps + 7);
      absl::Time at = life.stages.arrived;
      for (const PhaseSpan& span : spans) {
        REQUIRE(span.begin == at);
        REQUIRE(span.end > span.begin);
        at = span.end;
      }
      REQUIRE(at == life.stages.ended);
    }
  });
}

TEST_CASE("Timeline finds a workflow by name within its cache domain") {
  Timeline timeline({});
  RequestLife other = Life("b", 2), salted = Life("c", 3);
  other.workflow = "v";
  salted.cache_domain = "t";
  timeline.Keep(Life("a", 1));
  timeline.Keep(other);
  timeline.Keep(salted);
  timeline.Keep(Life("d", 4));
  CHECK(Ids(timeline.Find("w", "", At(5))) == "ad");
  CHECK(Ids(timeline.Find("v", "", At(5))) == "b");
  CHECK(Ids(timeline.Find("w", "t", At(5))) == "c");
  CHECK(timeline.Find("v", "t", At(5)).empty());
}

TEST_CASE("Timeline drops lives of the tenant that has the most") {
  Timeline timeline({.requests = 4});
  const auto keep = [&timeline](const std::string& id, const std::string& tenant, const std::string& domain) {
    RequestLife life = Life(id, 1);
    life.outcome.tenant = tenant;
    life.cache_domain = domain;
    timeline.Keep(life);
    timeline.CheckInvariants();
  };
  keep("q", "quiet", "quiet/x");
  keep("r", "quiet", "quiet/y");
  for (const char* id : {"a", "b", "c", "d"}) keep(id, "loud", absl::StrCat("loud/", id));
  CHECK(Ids(timeline.Find("w", "quiet/x", At(1))) == "q");
  CHECK(Ids(timeline.Find("w", "quiet/y", At(1))) == "r");
  CHECK(Ids(timeline.Find("w", "loud/b", At(1))) == "");
  CHECK(Ids(timeline.Find("w", "loud/c", At(1))) == "c");
  // On a router without keys each cache domain has a share.
  for (const char* id : {"m", "n"}) keep(id, "", id);
  for (const char* id : {"m", "n"}) CHECK(Ids(timeline.Find("w", id, At(1))) == id);
}

TEST_CASE("Timeline drops the oldest lives by age, number and size") {
  SECTION("there are too many lives") {
    Timeline timeline({.requests = 2});
    for (const char* id : {"a", "b", "c"}) timeline.Keep(Life(id, 1));
    CHECK(Ids(timeline.Find("w", "", At(1))) == "bc");
  }
  SECTION("a life is too old") {
    Timeline timeline({.age = absl::Milliseconds(10)});
    timeline.Keep(Life("a", 1));
    timeline.Keep(Life("b", 5));
    CHECK(Ids(timeline.Find("w", "", At(10))) == "ab");
    CHECK(Ids(timeline.Find("w", "", At(11))) == "b");
    CHECK(Ids(timeline.Find("w", "", At(15))) == "");
    CHECK(timeline.bytes() == 0);
  }
  SECTION("the lives are too large") {
    Timeline timeline({.bytes = 5120});  // room for one of the large lives
    RequestLife large = Life("c", 1);
    timeline.Keep(Life("a", 1));
    large.upstreams.assign(20, std::string(128, 'u'));
    for (int i = 0; i < 3; ++i) timeline.Keep(large);
    CHECK(timeline.bytes() <= 5120);
    CHECK(Ids(timeline.Find("w", "", At(1))) == "c");
    large.upstreams.assign(100, std::string(128, 'u'));
    timeline.Keep(large);
    timeline.CheckInvariants();
    CHECK(timeline.bytes() == 0);
  }
}

}  // namespace
}  // namespace baton
