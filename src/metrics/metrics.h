// The Prometheus metrics of one process: series of the table in metric_table.cc, and their
// exposition.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "metrics/metric_table.h"

namespace prometheus {
class Exposer;
}

namespace baton {

// Thread-safe.
class Metrics {
 public:
  Metrics();
  ~Metrics();

  // Creates the series that events of `Counts` increment. `source`: values of the labels that the
  // table leaves to the source. The same labels name the same series. REQUIRES: `source` has all of
  // these labels.
  template <typename Counts>
  Counts Create(const MetricLabels& source = {});

  // Reads a component as long as it lives. When it is destroyed it reads once more, and the values
  // stay. It waits for a scrape that runs, so the caller holds no lock that `read` takes.
  class Reader {
   public:
    Reader() = default;
    Reader(Reader&&) = default;
    Reader& operator=(Reader&&) = default;

   private:
    friend class Metrics;
    explicit Reader(std::shared_ptr<void> entry) : entry_(std::move(entry)) {}
    std::shared_ptr<void> entry_;
  };
  // Each scrape calls `read` once, on any thread; `read` calls its argument once with the
  // component's state, and all getters of State see that one state. `read` holds whatever lock the
  // state needs. Several components may add to one counter, which never falls. A series is left out
  // if `source` lacks one of its labels.
  template <typename State>
  using Read = std::function<void(absl::FunctionRef<void(const State& state)>)>;
  template <typename State>
  [[nodiscard]] Reader Attach(const MetricLabels& source, Read<State> read);

  // Answers GET /metrics on host:port, and returns the address: port 0 picks a free one.
  // UNAVAILABLE: the port cannot be bound. REQUIRES: called once.
  absl::StatusOr<std::string> Serve(const std::string& listen);
  // What /metrics answers: Prometheus' text format, version 0.0.4.
  std::string Text() const;

 private:
  class Exposition;
  const std::shared_ptr<Exposition> exposition_;
  std::unique_ptr<prometheus::Exposer> exposer_;
};

}  // namespace baton
