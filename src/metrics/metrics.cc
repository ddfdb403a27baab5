#include "metrics/metrics.h"

#include <algorithm>
#include <exception>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "base/listen_error.h"
#include "metrics/worker_snapshot.h"
#include "prometheus/exposer.h"
#include "prometheus/registry.h"
#include "prometheus/text_serializer.h"
#include "router/dispatcher.h"

namespace baton {
namespace {

using Buckets = prometheus::Histogram::BucketBoundaries;

// Bucket bounds from 10 us to 5,000 s, three per decade.
const Buckets& SecondBuckets() {
  static const Buckets buckets{1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1, 0.2,
                               0.5,  1,    2,    5,    10,   20,   50,   100,  200,  500,  1000, 2000, 5000};
  return buckets;
}

// Bucket bounds from 1 to 1,000,000 tokens, three per decade.
const Buckets& TokenBuckets() {
  static const Buckets buckets{1,     2,     5,      10,     20,     50,      100,     200,     500,      1'000,
                               2'000, 5'000, 10'000, 20'000, 50'000, 100'000, 200'000, 500'000, 1'000'000};
  return buckets;
}

struct Labels {
  MetricLabels fixed;
  std::string variable;  // empty if all labels are fixed
};

// Returns the labels of a series of this source. Returns nullopt if the source lacks one.
std::optional<Labels> LabelsOf(const MetricSeries& series, const MetricLabels& source) {
  Labels labels;
  for (const absl::string_view label : absl::StrSplit(series.labels, ' ', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(label, absl::MaxSplits('=', 1));
    if (parts.second == "*") {
      labels.variable = parts.first;
    } else if (!parts.second.empty()) {
      labels.fixed.insert(parts);
    } else if (const auto value = source.find(parts.first); value != source.end()) {
      labels.fixed.insert(*value);
    } else {
      return std::nullopt;
    }
  }
  return labels;
}

template <typename Visit>
void ForEachCode(Visit visit) {
  for (int code = 0; code <= static_cast<int>(absl::StatusCode::kUnauthenticated); ++code) {
    visit(static_cast<absl::StatusCode>(code));
  }
}

// One family of the registry. Exactly one of the pointers is not null.
struct Family {
  const MetricFamily* row = nullptr;
  prometheus::Family<prometheus::Counter>* counters = nullptr;
  prometheus::Family<prometheus::Gauge>* gauges = nullptr;
  prometheus::Family<prometheus::Histogram>* histograms = nullptr;

  void Assign(LabelCounter& member, Labels labels) const {
    member = LabelCounter(*counters, std::move(labels.fixed), std::move(labels.variable));
  }
  void Assign(prometheus::Counter*& member, const Labels& labels) const { member = &counters->Add(labels.fixed); }
  void Assign(prometheus::Gauge*& member, const Labels& labels) const { member = &gauges->Add(labels.fixed); }
  void Assign(prometheus::Histogram*& member, const Labels& labels) const {
    const bool tokens = row->kind == MetricFamily::Kind::kTokens;
    member = &histograms->Add(labels.fixed, tokens ? TokenBuckets() : SecondBuckets());
  }
};

Family Register(const MetricFamily& row, prometheus::Registry& registry) {
  switch (row.kind) {
    case MetricFamily::Kind::kCounter:
      return {&row, &prometheus::BuildCounter().Name(row.name).Help(row.help).Register(registry), nullptr, nullptr};
    case MetricFamily::Kind::kGauge:
      return {&row, nullptr, &prometheus::BuildGauge().Name(row.name).Help(row.help).Register(registry), nullptr};
    default:
      return {&row, nullptr, nullptr, &prometheus::BuildHistogram().Name(row.name).Help(row.help).Register(registry)};
  }
}

// A series whose value comes from a getter.
class Mirror {
 public:
  Mirror(const Family& family, const MetricLabels& labels) {
    if (family.counters != nullptr) counter_ = &family.counters->Add(labels);
    if (family.gauges != nullptr) gauge_ = &family.gauges->Add(labels);
    BATON_CHECK((counter_ != nullptr) != (gauge_ != nullptr), "a getter is for a counter or a gauge");
  }
  void Set(double value) {
    if (gauge_ != nullptr) return gauge_->Set(value);
    // Add the difference, because other components of this process may add to the same counter.
    if (value > last_value_) counter_->Increment(value - last_value_);
    last_value_ = std::max(last_value_, value);
  }

 private:
  prometheus::Counter* counter_ = nullptr;
  prometheus::Gauge* gauge_ = nullptr;
  double last_value_ = 0;
};

// All series that mirror one component.
template <typename State>
struct Mirrors {
  std::vector<std::pair<Mirror, std::function<double(const State&)>>> all;

  void Add(const Family& family, const MetricSeries& series, const MetricLabels& source) {
    std::visit(
        [&](const auto& getter) {
          using Source = std::decay_t<decltype(getter)>;
          if constexpr (std::is_invocable_v<Source, const State&>) {
            if (const auto labels = LabelsOf(series, source)) all.emplace_back(Mirror(family, labels->fixed), getter);
          } else if constexpr (std::is_invocable_v<Source, const State&, absl::StatusCode>) {
            const auto labels = LabelsOf(series, source);
            if (!labels) return;
            ForEachCode([&](absl::StatusCode code) {
              MetricLabels of_code = labels->fixed;
              of_code[labels->variable] = absl::StatusCodeToString(code);
              all.emplace_back(Mirror(family, of_code), [getter, code](const State& s) { return getter(s, code); });
            });
          }
        },
        series.source);
  }
};

}  // namespace

LabelCounter::LabelCounter(prometheus::Family<prometheus::Counter>& family, MetricLabels labels, std::string open_label)
    : family_(&family), labels_(std::move(labels)), open_label_(std::move(open_label)) {}

prometheus::Counter& LabelCounter::Of(const std::string& value) {
  MetricLabels labels = labels_;
  labels[open_label_] = value;
  return family_->Add(labels);
}

void LabelCounter::CreateCodes() {
  ForEachCode([this](absl::StatusCode code) { Of(absl::StatusCodeToString(code)); });
}

// Refreshes the values of all mirrored series before each collection.
class Metrics::Exposition final : public prometheus::Collectable {
 public:
  Exposition() {
    for (const MetricFamily& row : MetricTable()) families_.push_back(Register(row, registry_));
  }
  const std::vector<Family>& families() const { return families_; }

  using Refreshes = std::list<std::function<void()>>;
  Refreshes::iterator Add(std::function<void()> refresh) {
    const std::lock_guard lock(mutex_);
    return refreshes_.insert(refreshes_.end(), std::move(refresh));
  }
  void Remove(Refreshes::iterator refresh) {
    const std::lock_guard lock(mutex_);
    (*refresh)();
    refreshes_.erase(refresh);
  }

  std::vector<prometheus::MetricFamily> Collect() const override {
    const std::lock_guard lock(mutex_);
    for (const auto& refresh : refreshes_) refresh();
    return registry_.Collect();
  }

 private:
  prometheus::Registry registry_;
  std::vector<Family> families_;
  mutable std::mutex mutex_;  // serialises scrapes; guards the member below
  Refreshes refreshes_;
};

Metrics::Metrics() : exposition_(std::make_shared<Exposition>()) {}

Metrics::~Metrics() = default;

template <typename Counts>
Counts Metrics::Create(const MetricLabels& source) {
  Counts counts;
  for (const Family& family : exposition_->families()) {
    for (const MetricSeries& series : family.row->series()) {
      const auto* counted = std::get_if<Counted<Counts>>(&series.source);
      if (counted == nullptr) continue;
      const std::optional<Labels> labels = LabelsOf(series, source);
      BATON_CHECK(labels.has_value(), "a source gives every label of its metrics");
      std::visit([&](auto member) { family.Assign(counts.*member, *labels); }, *counted);
    }
  }
  return counts;
}

template RouterCounts Metrics::Create(const MetricLabels&);
template TenantCounts Metrics::Create(const MetricLabels&);
template HttpCounts Metrics::Create(const MetricLabels&);
template ChatCounts Metrics::Create(const MetricLabels&);
template WorkerCounts Metrics::Create(const MetricLabels&);
template TransferCounts Metrics::Create(const MetricLabels&);
template EtcdGauges Metrics::Create(const MetricLabels&);
template VllmCounts Metrics::Create(const MetricLabels&);

template <typename State>
Metrics::Reader Metrics::Attach(const MetricLabels& source, Read<State> read) {
  Mirrors<State> mirrors;
  for (const Family& family : exposition_->families()) {
    for (const MetricSeries& series : family.row->series()) mirrors.Add(family, series, source);
  }
  const auto entry = exposition_->Add([read = std::move(read), mirrors = std::move(mirrors)]() mutable {
    read([&](const State& state) {
      for (auto& [mirror, get] : mirrors.all) mirror.Set(get(state));
    });
  });
  return Reader({nullptr, [exposition = exposition_, entry](void*) { exposition->Remove(entry); }});
}

template Metrics::Reader Metrics::Attach(const MetricLabels&, Read<Dispatcher>);
template Metrics::Reader Metrics::Attach(const MetricLabels&, Read<PrefillSnapshot>);
template Metrics::Reader Metrics::Attach(const MetricLabels&, Read<DecodeSnapshot>);

absl::StatusOr<std::string> Metrics::Serve(const std::string& listen) {
  BATON_CHECK(exposer_ == nullptr, "metrics are served once");
  try {
    exposer_ = std::make_unique<prometheus::Exposer>(listen, 1);
    exposer_->RegisterCollectable(exposition_);
    return absl::StrCat(listen.substr(0, listen.rfind(':')), ":", exposer_->GetListeningPorts().at(0));
  } catch (const std::exception& error) {
    const std::string reason = ListenError(listen);
    return absl::UnavailableError(
        absl::StrCat("metrics: cannot listen on '", listen, "': ", reason.empty() ? error.what() : reason,
                     "; choose another address with --metrics HOST:PORT, or disable metrics with --metrics off"));
  }
}

std::string Metrics::Text() const { return prometheus::TextSerializer().Serialize(exposition_->Collect()); }

}  // namespace baton
