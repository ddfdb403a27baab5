// The Prometheus metrics of one process. They consist of the series of the table in metric_table.cc
// and their exposition over HTTP.
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

  // Creates the series that events of `Counts` increment. `source` holds the values of the labels
  // that the table leaves to the source. Two calls with equal labels return the same series.
  // REQUIRES: `source` has all of these labels.
  template <typename Counts>
  Counts Create(const MetricLabels& source = {});

  // Keeps the series of a component up to date until its destructor. The destructor reads the
  // component once more, and the series keep these values. The destructor waits for a running
  // scrape. REQUIRES: a thread that destroys a Reader holds no lock that `read` takes.
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
  // Reads a component's state. Each scrape calls this function once, on any thread. The function
  // calls its argument once with the state, so all getters of State see the same state. It takes
  // any lock that the state needs.
  template <typename State>
  using Read = std::function<void(absl::FunctionRef<void(const State& state)>)>;
  // Creates the series that mirror a component's state. Omits a series if `source` lacks one of its
  // labels. Several components may add to the same counter, which never decreases.
  template <typename State>
  [[nodiscard]] Reader Attach(const MetricLabels& source, Read<State> read);

  // Answers GET /metrics on host:port. Port 0 selects a free port. Returns the address with the
  // selected port. Returns UNAVAILABLE if the port cannot be bound. REQUIRES: called at most once.
  absl::StatusOr<std::string> Serve(const std::string& listen);
  // Returns the body of /metrics in Prometheus' text format, version 0.0.4.
  std::string Text() const;

 private:
  class Exposition;
  const std::shared_ptr<Exposition> exposition_;
  std::unique_ptr<prometheus::Exposer> exposer_;
};

}  // namespace baton
