// The one table of metrics: a row has name, kind, help and, for each series, its labels and what it
// shows. A metric that mirrors a component's state is a row with a getter, which runs at each
// scrape. A metric of events is a row and a member of one of the structs below, which the component
// increments.
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

// A counter with one label whose values are known at run time only. Thread-safe.
class LabelCounter {
 public:
  LabelCounter() = default;  // REQUIRES for all calls: assigned from Metrics::Create
  LabelCounter(prometheus::Family<prometheus::Counter>& family, MetricLabels labels, std::string open_label);
  void Increment(const std::string& value) { Of(value).Increment(); }
  void Increment(absl::StatusCode code) { Increment(absl::StatusCodeToString(code)); }
  // Creates the series with 0 if it does not exist: Prometheus sees no increase in a series that
  // begins with 1.
  prometheus::Counter& Of(const std::string& value);
  // Creates a series for each of gRPC's codes.
  void CreateCodes();

 private:
  prometheus::Family<prometheus::Counter>* family_ = nullptr;
  MetricLabels labels_;
  std::string open_label_;
};

// --- Members that events increment. Metrics::Create fills a struct. They live as long as Metrics.

struct RouterCounts {
  LabelCounter requests, followers;  // by gRPC status code
  prometheus::Counter *prompt_tokens = nullptr, *cached_tokens = nullptr, *completion_tokens = nullptr;
  prometheus::Counter *lost_prefill_workers = nullptr, *lost_decode_workers = nullptr;
  prometheus::Histogram *queue = nullptr, *router_queue = nullptr, *prefill = nullptr, *handoff = nullptr,
                        *first_token = nullptr, *inter_token = nullptr, *request = nullptr, *session_wait = nullptr;
};

struct TenantCounts {
  LabelCounter quota_refusals;  // by name of the tenant
};

struct HttpCounts {
  prometheus::Gauge* connections = nullptr;
  prometheus::Counter *refused = nullptr, *closed = nullptr;
  LabelCounter responses;  // by HTTP status code
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

// Requests of one model under vLLM's names.
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
// The value of the series with label `code`.
template <typename State>
using CodeGetter = double (*)(const State& state, absl::StatusCode code);
// A member of one of the structs above.
template <typename Counts>
using Counted = std::variant<LabelCounter Counts::*, prometheus::Counter * Counts::*, prometheus::Gauge * Counts::*,
                             prometheus::Histogram * Counts::*>;

struct MetricSeries {
  // Labels, separated by spaces: `name=value`; `name`, whose value comes from the source; `name=*`,
  // whose value comes with each event or, for a CodeGetter, is each of gRPC's codes.
  const char* labels = nullptr;
  std::variant<Getter<Dispatcher>, Getter<WorkerSnapshot>, Getter<PrefillSnapshot>, Getter<DecodeSnapshot>,
               CodeGetter<PrefillSnapshot>, Counted<RouterCounts>, Counted<TenantCounts>, Counted<HttpCounts>,
               Counted<WorkerCounts>, Counted<TransferCounts>, Counted<EtcdGauges>, Counted<VllmCounts>>
      source{};
};

struct MetricFamily {
  enum class Kind { kCounter, kGauge, kSeconds, kTokens };  // the last two are histograms of that unit
  const char* name;
  Kind kind;
  const char* help;      // names the labels
  MetricSeries rows[6];  // those after the last have null labels
  std::span<const MetricSeries> series() const {
    return {std::begin(rows), std::ranges::find(rows, nullptr, &MetricSeries::labels)};
  }
};

std::span<const MetricFamily> MetricTable();

}  // namespace baton
