// The table of all metrics. A row has a name, a kind, a help text and up to seven series. Each
// series has its labels and the source of its value:
// - A getter, for a metric that mirrors a component's state. The getter runs at each scrape.
// - A member of one of the structs below, for a metric of events. The component increments the
//   member.
#pragma once

#include <algorithm>
#include <iterator>
#include <span>
#include <string>
#include <variant>

#include "absl/status/status.h"
#include "prometheus/counter.h"
#include "prometheus/family.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"

namespace baton {

class Dispatcher;
struct WorkerSnapshot;
struct PrefillSnapshot;
struct DecodeSnapshot;

using MetricLabels = prometheus::Labels;  // name -> value

// A counter with one label whose values are not known before run time. Thread-safe.
class LabelCounter {
 public:
  // An empty counter. REQUIRES before any call: assignment from Metrics::Create.
  LabelCounter() = default;
  LabelCounter(prometheus::Family<prometheus::Counter>& family, MetricLabels labels, std::string open_label);
  void Increment(const std::string& value) { Of(value).Increment(); }
  void Increment(absl::StatusCode code) { Increment(absl::StatusCodeToString(code)); }
  // Returns the series of `value`. Creates the series with 0 if it does not exist, because
  // Prometheus sees no increase in a series that begins with 1.
  prometheus::Counter& Of(const std::string& value);
  // Creates a series for each of gRPC's codes.
  void CreateCodes();

 private:
  prometheus::Family<prometheus::Counter>* family_ = nullptr;
  MetricLabels labels_;
  std::string open_label_;
};

// --- Members that events increment. Metrics::Create fills a struct. The members live as long as
// Metrics.

struct RouterCounts {
  LabelCounter requests, prefill_hints, values;  // by gRPC status code
  prometheus::Counter *prompt_tokens = nullptr, *cached_tokens = nullptr, *completion_tokens = nullptr;
  prometheus::Counter *lost_prefill_workers = nullptr, *lost_decode_workers = nullptr;
  prometheus::Counter *resumed = nullptr, *not_resumed = nullptr;
  prometheus::Counter *silent_workers = nullptr, *hung_workers = nullptr;
  prometheus::Counter *hedged = nullptr, *moved = nullptr;
  prometheus::Histogram *queue = nullptr, *router_queue = nullptr, *prefill = nullptr, *handoff = nullptr,
                        *first_token = nullptr, *inter_token = nullptr, *request = nullptr, *session_wait = nullptr;
};

struct TenantCounts {
  LabelCounter quota_refusals;  // by tenant
};

struct HttpCounts {
  prometheus::Gauge *connections = nullptr, *backlog = nullptr;
  prometheus::Counter *refused = nullptr, *closed = nullptr;
  LabelCounter responses;  // by HTTP status code
};

struct ChatCounts {
  LabelCounter parts_left_out;   // by kind
  LabelCounter ignored_headers;  // by header
  prometheus::Counter *matching_calls = nullptr, *mismatching_calls = nullptr;
};

struct WorkerCounts {
  LabelCounter jobs;  // by gRPC status code
  prometheus::Histogram* queue = nullptr;
};

struct TransferCounts {
  prometheus::Histogram* seconds = nullptr;
  prometheus::Counter *descriptors = nullptr, *failures = nullptr;
};

struct EtcdGauges {
  prometheus::Gauge *up = nullptr, *last_answer = nullptr;
};

// Requests of one model, under the names of vLLM's metrics.
struct VllmCounts {
  prometheus::Counter *prompt_tokens = nullptr, *cached_tokens = nullptr, *prefix_queries = nullptr,
                      *prefix_hits = nullptr, *generation_tokens = nullptr;
  prometheus::Counter *stopped = nullptr, *full = nullptr, *aborted = nullptr;
  prometheus::Histogram *first_token = nullptr, *inter_token = nullptr, *per_token = nullptr, *whole = nullptr,
                        *queue = nullptr, *prefill = nullptr, *decode = nullptr, *inference = nullptr;
  prometheus::Histogram *prompt_length = nullptr, *output_length = nullptr;
};

// --- The table. ---

template <typename State>
using Getter = double (*)(const State& state);
// Returns the value of the series with label `code`.
template <typename State>
using CodeGetter = double (*)(const State& state, absl::StatusCode code);
// Pointer to a member of one of the structs above.
template <typename Counts>
using Counted = std::variant<LabelCounter Counts::*, prometheus::Counter * Counts::*, prometheus::Gauge * Counts::*,
                             prometheus::Histogram * Counts::*>;

struct MetricSeries {
  // Labels, separated by spaces, in one of three forms:
  // - `name=value` is a constant.
  // - `name` takes its value from the source.
  // - `name=*` takes its value from each event. With a CodeGetter, there is one series for each of
  //   gRPC's codes.
  const char* labels = nullptr;
  std::variant<Getter<Dispatcher>, Getter<WorkerSnapshot>, Getter<PrefillSnapshot>, Getter<DecodeSnapshot>,
               CodeGetter<PrefillSnapshot>, Counted<RouterCounts>, Counted<TenantCounts>, Counted<HttpCounts>,
               Counted<ChatCounts>, Counted<WorkerCounts>, Counted<TransferCounts>, Counted<EtcdGauges>,
               Counted<VllmCounts>>
      source{};
};

struct MetricFamily {
  // The last two are histograms of that unit.
  enum class Kind { kCounter, kGauge, kSeconds, kTokens };
  const char* name;
  Kind kind;
  const char* help;      // explains the labels
  MetricSeries rows[9];  // unused rows have null labels
  std::span<const MetricSeries> series() const {
    return {std::begin(rows), std::ranges::find(rows, nullptr, &MetricSeries::labels)};
  }
};

std::span<const MetricFamily> MetricTable();

}  // namespace baton
