// The checker accepts a right history, and refuses a history with one violation of each rule.
#include "simulator/history.h"

#include <string>
#include <vector>

#include "catch.h"

namespace baton {
namespace {

absl::Time At(double seconds) { return absl::UnixEpoch() + absl::Seconds(seconds); }

// A history of two requests, of which the second has the output of the first in its prompt.
struct Pair {
  Pair() {
    undisturbed.requests["up"] = {
        .submitted = At(0), .ends = 1, .ended = At(1), .status = absl::OkStatus(), .tokens = {1, 2, 3}};
    undisturbed.requests["down"] = {.upstreams = {"up"},
                                    .submitted = At(0),
                                    .ends = 1,
                                    .ended = At(2),
                                    .status = absl::OkStatus(),
                                    .tokens = {4, 5}};
    run = undisturbed;
    run.disturbed_from = At(0.5);
    run.quiet_from = At(1.5);
  }
  ClientHistory& up() { return run.requests.at("up"); }
  ClientHistory& down() { return run.requests.at("down"); }
  // Ends `up` with a failure after its first token, and `down` with it.
  void Fail(const absl::Status& status, absl::Time ended) {
    up().status = status;
    up().tokens = {1};
    up().ended = ended;
    down().status = absl::AbortedError("output_of 'up'");
    down().tokens = {};
    down().ended = ended;
  }
  std::vector<std::string> Found() const { return Violations(run, undisturbed); }

  History undisturbed, run;
};

using Texts = std::vector<std::string>;

}  // namespace

TEST_CASE("Violations are none for a run that equals the undisturbed run") { CHECK(Pair().Found().empty()); }

TEST_CASE("Violations name a request that ends never, twice or with tokens after its end") {
  Pair never, twice, late;
  never.up().ends = 0;
  CHECK(never.Found() == Texts{"up ended 0 times"});
  twice.up().ends = 2;
  CHECK(twice.Found() == Texts{"up ended 2 times"});
  late.up().late_tokens = true;
  CHECK(late.Found() == Texts{"up got tokens after its end"});
}

TEST_CASE("Violations name a request with other, fewer or more tokens") {
  Pair other, fewer, more;
  other.up().tokens[1] = 9;
  CHECK(other.Found() == Texts{"up has another token than the undisturbed run at position 1"});
  fewer.up().tokens.pop_back();
  CHECK(fewer.Found() == Texts{"up ended with OK after 2 of 3 tokens"});
  more.up().tokens.push_back(4);
  CHECK(more.Found() == Texts{"up has another token than the undisturbed run at position 3"});
}

TEST_CASE("Violations name a failed request whose tokens are no prefix") {
  Pair pair;
  pair.Fail(absl::UnavailableError("no worker"), At(31));
  CHECK(pair.Found().empty());
  pair.up().tokens = {2};
  CHECK(pair.Found() == Texts{"up has another token than the undisturbed run at position 0"});
}

TEST_CASE("Violations name a cancelled request that its client did not cancel") {
  Pair pair;
  pair.Fail(absl::CancelledError("cancelled"), At(1));
  CHECK(pair.Found() == Texts{"up ended after 1s without a reason: CANCELLED: cancelled"});
  pair.up().cancelled = true;
  CHECK(pair.Found().empty());
}

TEST_CASE("Violations name a request that was cancelled as unneeded while another one needed it") {
  Pair pair;
  pair.Fail(absl::CancelledError("no request needs the output"), At(1));
  CHECK(pair.Found().empty());
  pair.down().ended = At(3);
  CHECK(pair.Found().size() == 1);
}

TEST_CASE("Violations name a request that fails before its wait is over") {
  Pair early, undisturbed;
  early.Fail(absl::UnavailableError("no worker"), At(29));
  CHECK(early.Found() == Texts{"up ended after 29s without a reason: UNAVAILABLE: no worker"});
  undisturbed.Fail(absl::ResourceExhaustedError("no room"), At(31));
  undisturbed.run.disturbed_from = absl::InfiniteFuture();
  CHECK(undisturbed.Found() == Texts{"up ended after 31s without a reason: RESOURCE_EXHAUSTED: no room"});
}

TEST_CASE("Violations name an INTERNAL end without three lost workers") {
  Pair pair;
  pair.Fail(absl::InternalError("a crash"), At(1));
  pair.run.breaks = 2;
  CHECK(pair.Found() == Texts{"up ended after 1s without a reason: INTERNAL: a crash"});
  pair.run.breaks = 3;
  CHECK(pair.Found().empty());
}

TEST_CASE("Violations name a failed request whose upstream request ended well") {
  Pair pair;
  pair.down().status = absl::AbortedError("output_of 'up'");
  pair.down().tokens = {};
  CHECK(pair.Found() == Texts{"down ended after 2s without a reason: ABORTED: output_of 'up'"});
}

TEST_CASE("Violations name a request that waits beyond its bound") {
  const absl::Duration bound = WaitBound();
  Pair pair;
  // `up` counts from the end of the faults, and `down` from the end of `up`.
  pair.up().ended = At(1.5) + bound;
  pair.down().ended = pair.up().ended + bound;
  CHECK(pair.Found().empty());
  pair.up().ended += absl::Milliseconds(1);
  REQUIRE(pair.Found().size() == 1);
  CHECK(pair.Found()[0].starts_with("up ended "));
}

TEST_CASE("Violations name each kind of block and place that is not free at the end") {
  const auto with = [](int64_t SimulatedCluster::Holdings::*place) {
    Pair pair;
    pair.run.held.*place = 2;
    return pair.Found();
  };
  using Holdings = SimulatedCluster::Holdings;
  CHECK(with(&Holdings::blocks) == Texts{"2 blocks are still referenced"});
  CHECK(with(&Holdings::quarantined) == Texts{"2 blocks are still in quarantine"});
  CHECK(with(&Holdings::prefill_requests) == Texts{"2 requests are still at prefill workers"});
  CHECK(with(&Holdings::decode_requests) == Texts{"2 requests are still at decode workers"});
  CHECK(with(&Holdings::router_requests) == Texts{"2 requests are still at the router"});
  CHECK(with(&Holdings::waiting_requests) == Texts{"2 requests still wait at the router"});
  CHECK(with(&Holdings::assignments) == Texts{"2 requests are still assigned to workers"});
}

}  // namespace baton
