#include "tenants/workflows.h"

#include <deque>
#include <string>
#include <vector>

#include "base/strings.h"
#include "catch.h"

namespace baton {
namespace {

// Requests are numbered. The class under test does not use them.
class World {
 public:
  explicit World(Workflows::Limits limits = {}) : workflows_(limits) {}

  // Returns the error of the arrival, or "".
  std::string Arrive(const std::string& name, WorkflowLimits stated = {}, const std::string& tenant = "t") {
    const WorkflowKey key{tenant, name};
    const absl::Status status = workflows_.Check(key, stated, received, now);
    if (!status.ok()) return CodeAndMessage(status);
    parts.push_back({.node = reinterpret_cast<AgentNode*>(parts.size() + 1)});
    workflows_.Arrived(parts.back(), key, tenant, stated, now);
    workflows_.CheckInvariants();
    return "";
  }
  void End(size_t index) {
    workflows_.Ended(parts[index], now);
    workflows_.CheckInvariants();
  }
  bool Generate(size_t index, int64_t tokens) { return Workflows::Generated(parts[index], tokens); }
  // Returns the numbers of requests, from 0.
  static std::vector<size_t> Numbers(const std::vector<Workflows::Part*>& parts) {
    std::vector<size_t> numbers;
    for (const Workflows::Part* part : parts) numbers.push_back(reinterpret_cast<size_t>(part->node) - 1);
    return numbers;
  }
  Workflows& operator*() { return workflows_; }

  absl::Time now = absl::UnixEpoch();
  absl::Time received = absl::InfiniteFuture();  // of the requests that arrive
  std::deque<Workflows::Part> parts;

 private:
  Workflows workflows_;
};

using Numbers = std::vector<size_t>;

WorkflowLimits Deadline(int seconds) { return {.deadline = absl::Seconds(seconds)}; }
WorkflowLimits Tokens(int64_t tokens) { return {.max_tokens = tokens}; }

TEST_CASE("Workflows finds the live requests of a workflow in order of arrival") {
  World w;
  for (const char* name : {"a", "b", "a", "a"}) CHECK(w.Arrive(name).empty());
  CHECK(w.Arrive("a", {}, "other").empty());
  CHECK(World::Numbers((*w).Cancel({"t", "a"}, w.now)) == Numbers{0, 2, 3});
  CHECK(World::Numbers(Workflows::Siblings(w.parts[4])) == Numbers{4});
  w.End(2);
  CHECK(World::Numbers((*w).Cancel({"t", "a"}, w.now)) == Numbers{0, 3});
  CHECK((*w).Cancel({"t", "unknown"}, w.now).empty());
  for (const size_t i : {0, 3}) w.End(i);
  CHECK((*w).Cancel({"t", "a"}, w.now).empty());
}

TEST_CASE("Workflows refuses requests that were read while their workflow was cancelled") {
  World w({.cancelled = 2});
  w.received = w.now;
  w.now += absl::Seconds(1);
  CHECK((*w).Cancel({"t", "a"}, w.now).empty());
  w.now += absl::Seconds(1);
  CHECK(w.Arrive("a") == "CANCELLED: workflow 'a' was cancelled while the request was read");
  CHECK(w.Arrive("b").empty());
  CHECK(w.Arrive("a", {}, "other").empty());
  w.received = w.now;
  CHECK(w.Arrive("a").empty());
  // A later cancellation of other workflows drops the oldest one.
  w.received = absl::UnixEpoch();
  for (const char* name : {"c", "d"}) CHECK((*w).Cancel({"t", name}, w.now).empty());
  CHECK(w.Arrive("a").empty());
  CHECK_FALSE(w.Arrive("c").empty());
}

TEST_CASE("Workflows counts a deadline from the first request and only lowers it") {
  World w;
  CHECK(w.Arrive("a").empty());
  w.now += absl::Seconds(10);
  CHECK((*w).NextDeadline() == absl::InfiniteFuture());
  CHECK(w.Arrive("a", Deadline(30)).empty());
  CHECK(w.Arrive("a", Deadline(60)).empty());
  CHECK((*w).NextDeadline() == absl::UnixEpoch() + absl::Seconds(30));
  // A refused request changes nothing.
  CHECK(w.Arrive("a", Deadline(10)) ==
        "DEADLINE_EXCEEDED: the deadline of workflow 'a' (10s after its first request) had passed when the request "
        "arrived");
  CHECK(w.Arrive("a", Deadline(20)).empty());
  w.now = absl::UnixEpoch() + absl::Seconds(20);
  CHECK((*w).NextDeadline() == w.now);
  CHECK(World::Numbers((*w).TakeOverdue(w.now)) == Numbers{0, 1, 2, 3});
  CHECK((*w).TakeOverdue(w.now).empty());
  CHECK(Workflows::DeadlineText(w.parts[0]) == "the deadline of workflow 'a' (20s after its first request)");
  for (size_t i = 0; i < 4; ++i) w.End(i);
  CHECK(w.Arrive("a").starts_with("DEADLINE_EXCEEDED: "));
  CHECK(w.Arrive("b").empty());
}

TEST_CASE("Workflows counts generated tokens of all requests against the lowest limit") {
  World w;
  CHECK(w.Arrive("a").empty());
  CHECK_FALSE(w.Generate(0, 6));
  CHECK(w.Arrive("a", Tokens(10)).empty());
  CHECK(w.Arrive("a", Tokens(100)).empty());
  CHECK(w.Arrive("a", Tokens(6)) ==
        "FAILED_PRECONDITION: workflow 'a' has generated 6 tokens, limit 6 (max_tokens of its limits)");
  CHECK_FALSE(w.Generate(1, 3));
  w.End(0);
  CHECK(w.Generate(2, 2));
  CHECK(CodeAndMessage(Workflows::NoTokenLeft(w.parts[2])) ==
        "FAILED_PRECONDITION: workflow 'a' has generated 11 tokens, limit 10 (max_tokens of its limits)");
  for (const size_t i : {1, 2}) w.End(i);
  CHECK(w.Arrive("a").starts_with("FAILED_PRECONDITION: "));
  Workflows::Part none;
  CHECK_FALSE(Workflows::Generated(none, 1000));
  (*w).Ended(none, w.now);
}

TEST_CASE("Workflows forgets a workflow 10 minutes after its last request") {
  World w;
  CHECK(w.Arrive("a", Tokens(10)).empty());
  w.Generate(0, 10);
  w.End(0);
  w.now += absl::Minutes(10) - absl::Seconds(1);
  CHECK_FALSE(w.Arrive("a").empty());
  w.now += absl::Seconds(1);
  CHECK(w.Arrive("a").empty());
  CHECK_FALSE(w.Generate(1, 1000));
  CHECK((*w).kept() == 0);
}

TEST_CASE("Workflows drops kept workflows of the tenant that has the most") {
  World w({.kept = 4});
  const auto run = [&w](const std::string& name, const std::string& tenant) {
    REQUIRE(w.Arrive(name, Tokens(1), tenant).empty());
    w.Generate(w.parts.size() - 1, 1);
    w.End(w.parts.size() - 1);
    w.now += absl::Milliseconds(1);
  };
  run("quiet", "q");
  for (const char* name : {"1", "2", "3", "4", "5"}) run(name, "loud");
  CHECK((*w).kept() == 4);
  CHECK_FALSE(w.Arrive("quiet", {}, "q").empty());
  for (const char* name : {"3", "4", "5"}) CHECK_FALSE(w.Arrive(name, {}, "loud").empty());
  CHECK(w.Arrive("2", {}, "loud").empty());
  // Live workflows are not counted, and not dropped.
  for (const char* name : {"6", "7", "8", "9"}) CHECK(w.Arrive(name, {}, "loud").empty());
  CHECK((*w).kept() == 4);
}

}  // namespace
}  // namespace baton
