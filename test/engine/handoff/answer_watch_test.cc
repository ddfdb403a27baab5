#include "engine/handoff/answer_watch.h"

#include "catch.h"

namespace baton {
namespace {

constexpr absl::Duration kWithin = absl::Seconds(2), kQuarter = absl::Milliseconds(500);
const absl::Time kAsked = absl::UnixEpoch();

// Does each check at its time. Returns the time at which the peer is mute, or InfiniteFuture if it
// is not mute before `until`.
absl::Time MuteAt(AnswerWatch& watch, absl::Time until) {
  for (absl::Time now = watch.next_check(); now < until; now = watch.next_check()) {
    if (watch.Check(now)) return now;
  }
  return absl::InfiniteFuture();
}

}  // namespace

TEST_CASE("AnswerWatch reports a mute peer when messages wait without an answer") {
  AnswerWatch watch(kWithin);
  CHECK(watch.next_check() == absl::InfiniteFuture());
  CHECK_FALSE(watch.Check(kAsked + absl::Hours(1)));
  watch.Sent(kAsked);
  watch.Sent(kAsked + absl::Seconds(1));  // does not delay the checks of the first message
  CHECK(MuteAt(watch, kAsked + absl::Hours(1)) == kAsked + kWithin);
}

TEST_CASE("AnswerWatch counts from the last answer while other messages wait") {
  AnswerWatch watch(kWithin);
  for (int i = 0; i < 4; ++i) watch.Sent(kAsked);
  absl::Time answered = kAsked;
  for (int i = 0; i < 3; ++i) {
    answered += kWithin - absl::Milliseconds(1);
    CHECK(MuteAt(watch, answered) == absl::InfiniteFuture());
    watch.Ended(/*answered=*/true, answered);
  }
  CHECK(MuteAt(watch, kAsked + absl::Hours(1)) == answered + kWithin);
}

TEST_CASE("AnswerWatch expects nothing when no message waits") {
  for (const bool answered : {true, false}) {
    AnswerWatch watch(kWithin);
    watch.Sent(kAsked);
    watch.Ended(answered, kAsked + kQuarter);
    CHECK(watch.next_check() == absl::InfiniteFuture());
    // The next message has the whole time.
    watch.Sent(kAsked + absl::Minutes(1));
    CHECK(MuteAt(watch, kAsked + absl::Hours(1)) == kAsked + absl::Minutes(1) + kWithin);
  }
}

TEST_CASE("AnswerWatch takes no message for answered when it waits no longer") {
  AnswerWatch watch(kWithin);
  watch.Sent(kAsked);
  watch.Sent(kAsked);
  CHECK(MuteAt(watch, kAsked + kWithin / 2 + absl::Nanoseconds(1)) == absl::InfiniteFuture());
  watch.Ended(/*answered=*/false, kAsked + kWithin / 2);
  CHECK(MuteAt(watch, kAsked + absl::Hours(1)) == kAsked + kWithin);
}

TEST_CASE("AnswerWatch begins again when this process stood still") {
  for (int stood_at = 0; stood_at < 4; ++stood_at) {
    AnswerWatch watch(kWithin);
    watch.Sent(kAsked);
    for (int check = 0; check < stood_at; ++check) CHECK_FALSE(watch.Check(watch.next_check()));
    const absl::Time resumed = watch.next_check() + absl::Seconds(5);
    CHECK_FALSE(watch.Check(resumed));
    CHECK(MuteAt(watch, kAsked + absl::Hours(1)) == resumed + kWithin);
  }
  // A timer that is late by less does not extend the time.
  AnswerWatch watch(kWithin);
  watch.Sent(kAsked);
  for (int check = 0; check < 3; ++check) CHECK_FALSE(watch.Check(watch.next_check() + kQuarter));
  CHECK(watch.Check(watch.next_check() + kQuarter));
}

TEST_CASE("AnswerWatch reports no mute peer when it is off") {
  AnswerWatch watch(absl::InfiniteDuration());
  watch.Sent(kAsked);
  CHECK(watch.next_check() == absl::InfiniteFuture());
  CHECK_FALSE(watch.Check(kAsked + absl::Hours(1)));
}

}  // namespace baton
