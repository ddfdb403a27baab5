#include "metrics/metric_table.h"

#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "catch.h"
#include "http_client.h"

namespace baton {
namespace {

bool HasLine(const std::string& text, const std::string& line) {
  for (const absl::string_view one : absl::StrSplit(text, '\n')) {
    if (one == line) return true;
  }
  return false;
}

std::string Get(const std::string& address) {
  HttpClient client(address);
  client.Get("/metrics");
  return client.Read().body;
}

}  // namespace

TEST_CASE("a metric is served with its name, its help and the value of each set of labels") {
  Metrics metrics;
  metrics.Counter(Metric::kRequests, {{"code", "OK"}}).Increment(3);
  metrics.Counter(Metric::kRequests, {{"code", "CANCELLED"}}).Increment();
  metrics.Gauge(Metric::kLiveRequests).Set(7);
  const absl::StatusOr<std::string> address = metrics.Serve("127.0.0.1:0");
  REQUIRE(address.ok());
  const std::string text = Get(*address);
  CHECK(HasLine(text, "# TYPE baton_requests_total counter"));
  CHECK(HasLine(text, "# HELP baton_requests_total Requests that ended, by gRPC status `code`."));
  CHECK(HasLine(text, "baton_requests_total{code=\"OK\"} 3"));
  CHECK(HasLine(text, "baton_requests_total{code=\"CANCELLED\"} 1"));
  CHECK(HasLine(text, "baton_live_requests 7"));
  CHECK(HasLine(metrics.Text(), "baton_live_requests 7"));
}

TEST_CASE("the same labels name the same series") {
  Metrics metrics;
  prometheus::Counter& ok = metrics.Counter(Metric::kRequests, {{"code", "OK"}});
  CHECK(&metrics.Counter(Metric::kRequests, {{"code", "OK"}}) == &ok);
  CHECK(&metrics.Counter(Metric::kRequests, {{"code", "ABORTED"}}) != &ok);
}

TEST_CASE("histograms reach from 10 us to 5,000 s, or from 1 to 1,000,000 tokens") {
  Metrics metrics;
  metrics.Histogram(Metric::kFirstTokenSeconds).Observe(3e-4);
  metrics.Histogram(Metric::kVllmPromptLength).Observe(300);
  const std::string text = metrics.Text();
  CHECK(HasLine(text, "baton_first_token_seconds_bucket{le=\"1e-05\"} 0"));
  CHECK(HasLine(text, "baton_first_token_seconds_bucket{le=\"0.0005\"} 1"));
  CHECK(HasLine(text, "baton_first_token_seconds_bucket{le=\"5000\"} 1"));
  CHECK(HasLine(text, "vllm:request_prompt_tokens_bucket{le=\"1\"} 0"));
  CHECK(HasLine(text, "vllm:request_prompt_tokens_bucket{le=\"500\"} 1"));
  CHECK(HasLine(text, "vllm:request_prompt_tokens_bucket{le=\"1000000\"} 1"));
}

TEST_CASE("a counter by code begins with a series of 0 for each of gRPC's codes") {
  Metrics metrics;
  CreateCodes(metrics, Metric::kRequests);
  const std::string text = metrics.Text();
  std::set<std::string> codes;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::StartsWith(line, "baton_requests_total{")) continue;
    CHECK(absl::EndsWith(line, " 0"));
    codes.emplace(line);
  }
  CHECK(codes.size() == 17);
  CHECK(HasLine(text, "baton_requests_total{code=\"RESOURCE_EXHAUSTED\"} 0"));
}

TEST_CASE("a port that is taken is refused with its address") {
  Metrics first, second;
  const absl::StatusOr<std::string> address = first.Serve("127.0.0.1:0");
  REQUIRE(address.ok());
  const absl::Status refused = second.Serve(*address).status();
  CHECK(absl::IsUnavailable(refused));
  CHECK(absl::StrContains(refused.message(), absl::StrCat("metrics: cannot listen on '", *address, "': ")));
}

}  // namespace baton
