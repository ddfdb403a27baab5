#include "metrics/metrics.h"

#include <atomic>
#include <chrono>
#include <future>
#include <set>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "catch.h"
#include "http_client.h"
#include "metric_value.h"
#include "metrics/worker_snapshot.h"
#include "router/dispatcher.h"

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

// A component whose state is `snapshot`.
template <typename Snapshot>
Metrics::Read<Snapshot> Reads(const Snapshot& snapshot) {
  return [&snapshot](auto read) { read(snapshot); };
}

const MetricLabels kPrefill{{"role", "prefill"}, {"stage", "prefill"}, {"model", "m"}};
const MetricLabels kDecode{{"role", "decode"}, {"stage", "decode"}, {"model", "m"}};

}  // namespace

TEST_CASE("Metrics shows a metric with name, help and a value for each label set") {
  Metrics metrics;
  auto counts = metrics.Create<RouterCounts>();
  for (int i = 0; i < 3; ++i) counts.requests.Increment(absl::StatusCode::kOk);
  counts.requests.Increment(absl::StatusCode::kCancelled);
  metrics.Create<HttpCounts>().connections->Set(7);
  const absl::StatusOr<std::string> address = metrics.Serve("127.0.0.1:0");
  REQUIRE(address.ok());
  const std::string text = Get(*address);
  CHECK(HasLine(text, "# TYPE baton_requests_total counter"));
  CHECK(HasLine(text, "# HELP baton_requests_total Requests that ended, by gRPC status `code`."));
  CHECK(HasLine(text, "baton_requests_total{code=\"OK\"} 3"));
  CHECK(HasLine(text, "baton_requests_total{code=\"CANCELLED\"} 1"));
  CHECK(HasLine(text, "baton_http_connections 7"));
  CHECK(HasLine(metrics.Text(), "baton_http_connections 7"));
}

TEST_CASE("Metrics gives equal labels the same series") {
  Metrics metrics;
  LabelCounter requests = metrics.Create<RouterCounts>().requests;
  CHECK(&requests.Of("OK") == &metrics.Create<RouterCounts>().requests.Of("OK"));
  CHECK(&requests.Of("OK") != &requests.Of("ABORTED"));
  CHECK(metrics.Create<WorkerCounts>(kPrefill).queue == metrics.Create<WorkerCounts>(kPrefill).queue);
  CHECK(metrics.Create<WorkerCounts>(kPrefill).queue != metrics.Create<WorkerCounts>(kDecode).queue);
}

TEST_CASE("Histograms cover 10 us to 5,000 s, or 1 to 1,000,000 tokens") {
  Metrics metrics;
  metrics.Create<RouterCounts>().first_token->Observe(3e-4);
  metrics.Create<VllmCounts>({{"model_name", "m"}}).prompt_length->Observe(300);
  const std::string text = metrics.Text();
  CHECK(HasLine(text, "baton_first_token_seconds_bucket{le=\"1e-05\"} 0"));
  CHECK(HasLine(text, "baton_first_token_seconds_bucket{le=\"0.0005\"} 1"));
  CHECK(HasLine(text, "baton_first_token_seconds_bucket{le=\"5000\"} 1"));
  CHECK(HasLine(text, "vllm:request_prompt_tokens_bucket{model_name=\"m\",le=\"1\"} 0"));
  CHECK(HasLine(text, "vllm:request_prompt_tokens_bucket{model_name=\"m\",le=\"500\"} 1"));
  CHECK(HasLine(text, "vllm:request_prompt_tokens_bucket{model_name=\"m\",le=\"1000000\"} 1"));
}

TEST_CASE("A counter by code starts with 0 for each of gRPC's codes") {
  Metrics metrics;
  metrics.Create<RouterCounts>().requests.CreateCodes();
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

TEST_CASE("A getter shows the current state, and the last state when its component is gone") {
  Metrics metrics;
  DecodeSnapshot state;
  state.blocks_total = 10;
  {
    const Metrics::Reader reader = metrics.Attach<DecodeSnapshot>(kDecode, Reads(state));
    CHECK(MetricValue(metrics, R"(baton_kv_blocks{model="m",role="decode",state="used"})") == 10);
    state.load.blocks_free = 1;
    state.load.blocks_quarantined = 3;
    state.engine.steps = 3;
    CHECK(MetricValue(metrics, R"(baton_kv_blocks{model="m",role="decode",state="quarantined"})") == 3);
    CHECK(MetricValue(metrics, R"(baton_kv_blocks{model="m",role="decode",state="used"})") == 6);
    CHECK(MetricValue(metrics, R"(baton_decode_steps_total{begun="after"})") == 3);
    state.engine.steps = 5;
    state.load.blocks_free = 10;
    state.load.blocks_quarantined = 0;
  }
  CHECK(MetricValue(metrics, R"(baton_decode_steps_total{begun="after"})") == 5);
  CHECK(MetricValue(metrics, R"(baton_kv_blocks{model="m",role="decode",state="used"})") == 0);
  state.engine.steps = 9;
  CHECK(MetricValue(metrics, R"(baton_decode_steps_total{begun="after"})") == 5);
}

TEST_CASE("Components add to a shared counter that never falls") {
  Metrics metrics;
  DecodeSnapshot one, other;
  const Metrics::Reader first = metrics.Attach<DecodeSnapshot>(kDecode, Reads(one));
  const Metrics::Reader second = metrics.Attach<DecodeSnapshot>(kDecode, Reads(other));
  one.engine.preemptions = 2;
  other.engine.preemptions = 3;
  CHECK(MetricValue(metrics, "baton_preemptions_total") == 5);
  one.engine.preemptions = 1;
  CHECK(MetricValue(metrics, "baton_preemptions_total") == 5);
  one.engine.preemptions = 4;
  CHECK(MetricValue(metrics, "baton_preemptions_total") == 7);
}

TEST_CASE("A getter by code shows each of gRPC's codes") {
  Metrics metrics;
  PrefillSnapshot state;
  state.engine.totals.handoffs.ended[absl::StatusCode::kAborted] = 2;
  const Metrics::Reader reader = metrics.Attach<PrefillSnapshot>(kPrefill, Reads(state));
  CHECK(MetricValue(metrics, R"(baton_handoffs_total{code="ABORTED"})") == 2);
  CHECK(MetricValue(metrics, R"(baton_handoffs_total{code="OK"})") == 0);
  CHECK(MetricValue(metrics, R"(baton_handoffs_total{code="UNAUTHENTICATED"})") == 0);
}

TEST_CASE("A worker's metrics with vLLM's names exist only with their labels") {
  Metrics metrics;
  PrefillSnapshot state;
  state.blocks_total = 4;
  const Metrics::Reader reader = metrics.Attach<PrefillSnapshot>(kPrefill, Reads(state));
  CHECK_FALSE(absl::StrContains(metrics.Text(), "vllm:"));
  MetricLabels labels = kPrefill;
  labels.insert({{"model_name", "m"}, {"engine", "prefill"}});
  const Metrics::Reader other = metrics.Attach<PrefillSnapshot>(labels, Reads(state));
  CHECK(MetricValue(metrics, R"(vllm:kv_cache_usage_perc{engine="prefill",model_name="m"})") == 1);
}

TEST_CASE("A reader's removal waits for the scrape that reads its component") {
  Metrics metrics;
  const DecodeSnapshot state;
  std::promise<void> reads, may_end;
  int calls = 0;
  Metrics::Reader reader = metrics.Attach<DecodeSnapshot>(kDecode, [&](auto read) {
    read(state);
    if (++calls > 1) return;
    reads.set_value();
    may_end.get_future().wait();
  });
  std::thread scraper([&] { metrics.Text(); });
  reads.get_future().wait();
  std::atomic<bool> gone = false;
  std::thread owner([&] {
    reader = {};
    gone = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK_FALSE(gone);
  may_end.set_value();
  scraper.join();
  owner.join();
  CHECK(calls == 2);  // the owner made the last call
}

TEST_CASE("Metric names differ, and each help text names all labels") {
  std::set<std::string> names;
  for (const MetricFamily& family : MetricTable()) {
    INFO(family.name);
    CHECK(names.insert(family.name).second);
    CHECK_FALSE(family.series().empty());
    if (absl::StartsWith(family.name, "vllm:")) continue;
    for (const MetricSeries& series : family.series()) {
      for (const absl::string_view label : absl::StrSplit(series.labels, ' ', absl::SkipEmpty())) {
        const std::pair<std::string, std::string> parts = absl::StrSplit(label, absl::MaxSplits('=', 1));
        CHECK(absl::StrContains(family.help, absl::StrCat("`", parts.first, "`")));
      }
    }
  }
}

TEST_CASE("Metrics names the reason and the flag when its port is in use") {
  Metrics first, second;
  const absl::StatusOr<std::string> address = first.Serve("127.0.0.1:0");
  REQUIRE(address.ok());
  const absl::Status refused = second.Serve(*address).status();
  CHECK(absl::IsUnavailable(refused));
  CHECK(refused.message() == absl::StrCat("metrics: cannot listen on '", *address,
                                          "': Address already in use; choose another address with ",
                                          "--metrics HOST:PORT, or disable metrics with --metrics off"));
}

}  // namespace baton
