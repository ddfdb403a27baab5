#include "transport/ucx/link.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <future>
#include <random>
#include <semaphore>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/logging.h"
#include "base/status.h"
#include "transport/block_copies.h"

namespace baton {
namespace {

// Timeout of one step of the self-test. A loaded machine is slow to connect.
constexpr std::chrono::seconds kAnswerWithin(10);
constexpr std::chrono::seconds kDrainWithin(2);
// The scratch area begins with kMeasuredBytes bytes, whose transfer the self-test measures. Behind
// them are kWords words. The self-test writes one word to check that writes arrive. Several peers
// may test at the same time, so each connection uses another word, with a high probability.
constexpr int64_t kWords = int64_t{8} << 10;
constexpr int64_t kWordsBytes = kWords * 8;
constexpr int64_t kMeasuredBytes = kScratchBytes - kWordsBytes;

// The result of a task on the progress thread. The task may set it after the waiting thread has
// given up.
template <typename T>
class Answer {
 public:
  void Give(T value) { promise_.set_value(std::move(value)); }
  T Wait() {
    std::future<T> future = promise_.get_future();
    if (future.wait_for(kAnswerWithin) == std::future_status::ready) return future.get();
    return absl::UnavailableError("the peer does not answer");
  }

 private:
  std::promise<T> promise_;
};

uint64_t Random() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

// Returns the word of the next connection. Connections of this process that test at the same time
// have different words. Other processes start at another random word.
int64_t NextWord() {
  static std::atomic<uint64_t> next = Random();
  return static_cast<int64_t>(next++ % kWords);
}

// Excludes concurrent measurements, which would disturb each other. The constructor waits for at
// most 100 ms, because the peer of the other measurement may hang. It uses a semaphore because the
// ThreadSanitizer of gcc 12 does not track std::timed_mutex.
class MeasuringAlone {
 public:
  MeasuringAlone() : held_(free_.try_acquire_for(std::chrono::milliseconds(100))) {}
  ~MeasuringAlone() {
    if (held_) free_.release();
  }
  MeasuringAlone(const MeasuringAlone&) = delete;
  MeasuringAlone& operator=(const MeasuringAlone&) = delete;

 private:
  inline static std::binary_semaphore free_{1};
  const bool held_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Link>> UcxLink::Connect(const UcxOptions& options, const UcxSource& source,
                                                       const UcxDescriptor& peer, UcxParkedLinks& parked) {
  parked.DestroyClosed();
  ASSIGN_OR_RETURN(std::unique_ptr<UcxProgress> progress, UcxProgress::Start(options));
  std::unique_ptr<UcxLink> link(
      new UcxLink(std::move(progress), parked, source.slab_bytes, static_cast<int64_t>(peer.slab_bytes)));
  RETURN_IF_ERROR(link->progress_->Call([&] { return link->Open(source, peer); }));
  RETURN_IF_ERROR(link->ChoosePath(source, peer));
  return link;
}

// REQUIRES: called on the progress thread.
absl::Status UcxLink::Open(const UcxSource& source, const UcxDescriptor& peer) {
  RETURN_IF_ERROR(inbox_->Listen());
  ASSIGN_OR_RETURN(endpoint_, UcxEndpoint::Open(*progress_, *inbox_, source.memory, source.direct, peer));
  return absl::OkStatus();
}

absl::Status UcxLink::ChoosePath(const UcxSource& source, const UcxDescriptor& peer) {
  const std::vector<UcxPath> paths = progress_->Call([this] { return endpoint_->Paths(); });
  double best = 0;
  std::string rates;
  for (UcxPath path : paths) {
    ASSIGN_OR_RETURN(const double rate, Measure(path, source, peer));
    absl::StrAppendFormat(&rates, "%s%s %.2f GB/s", rates.empty() ? "" : ", ", NameOf(path), rate);
    if (rate > best) {
      best = rate;
      path_ = path;
    }
  }
  if (best == 0) return absl::UnavailableError("no path can write to the peer's memory");
  // The progress thread copies from host memory itself. A device may go on with a copy for a while
  // after the end of its process.
  ends_with_process_ = path_ == UcxPath::kSharedMemory && source.memory.on_host();
  description_ = absl::StrFormat("ucx %s, %s, %.2f GB/s", ucp_get_version_string(), NameOf(path_), best);
  spdlog::info("link by {} (measured: {})", description_, rates);
  return absl::OkStatus();
}

// Returns the rate of a path in GB/s, or 0 if the written word does not arrive.
absl::StatusOr<double> UcxLink::Measure(UcxPath path, const UcxSource& source, const UcxDescriptor& peer) {
  const int64_t source_scratch = source.scratch_offset;
  const auto target_scratch = static_cast<int64_t>(peer.scratch_offset);
  const uint64_t word = Random();
  const int64_t slot = kMeasuredBytes + NextWord() * 8;
  RETURN_IF_ERROR(source.memory.Copy(source.memory.data() + source_scratch + slot, &word, sizeof word));
  RETURN_IF_ERROR(WriteAndWait(path, {source_scratch + slot, target_scratch + slot, sizeof word}));
  ASSIGN_OR_RETURN(const uint64_t arrived, ProbeAndWait(static_cast<uint64_t>(target_scratch + slot)));
  if (arrived != word) return 0;
  const BlockCopy bulk{source_scratch, target_scratch, kMeasuredBytes};
  const MeasuringAlone alone;
  // The best of three runs. The first run maps pages and allocates buffers, and other work may
  // disturb any run.
  double best = 0;
  for (int i = 0; i < 3; ++i) {
    const auto start = std::chrono::steady_clock::now();
    RETURN_IF_ERROR(WriteAndWait(path, bulk));
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    best = std::max(best, static_cast<double>(kMeasuredBytes) / seconds.count() / 1e9);
  }
  return best;
}

absl::Status UcxLink::WriteAndWait(UcxPath path, const BlockCopy& copy) {
  auto answer = std::make_shared<Answer<absl::Status>>();
  progress_->Post([endpoint = endpoint_.get(), path, copy, answer] {
    endpoint->Write(path, {copy}, [answer](absl::Status status) { answer->Give(std::move(status)); });
  });
  return answer->Wait();
}

absl::StatusOr<uint64_t> UcxLink::ProbeAndWait(uint64_t target_offset) {
  auto answer = std::make_shared<Answer<absl::StatusOr<uint64_t>>>();
  progress_->Post([endpoint = endpoint_.get(), target_offset, answer] {
    endpoint->Probe(target_offset, [answer](absl::StatusOr<uint64_t> word) { answer->Give(std::move(word)); });
  });
  return answer->Wait();
}

void UcxLink::Push(std::span<const BlockCopy> copies, absl::AnyInvocable<void(absl::Status)> done) {
  absl::Status valid = CheckCopies(copies, source_bytes_, target_bytes_);
  if (!valid.ok()) return done(std::move(valid));
  const uint64_t push = pushes_->Begin(std::move(done));
  progress_->Post(
      [endpoint = endpoint_.get(), path = path_, pushes = pushes_, push, runs = Coalesce(copies)]() mutable {
        if (!pushes->IsWaiting(push)) return;  // the link has ended, so the push must not begin
        endpoint->Write(path, std::move(runs),
                        [pushes, push](absl::Status status) { pushes->End(push, std::move(status)); });
      });
}

// The progress thread may hang, for example in a copy by a device. So the destructor waits for no
// task without a limit, and tasks do not refer to the link.
UcxLink::~UcxLink() {
  if (endpoint_ == nullptr) return;
  const auto promise = std::make_shared<std::promise<void>>();
  const std::shared_future<void> closed = promise->get_future().share();
  const auto await = [&closed] { return closed.wait_for(kDrainWithin) == std::future_status::ready; };
  UcxEndpoint* const endpoint = endpoint_.get();
  progress_->Post([endpoint, promise] { endpoint->Close([promise] { promise->set_value(); }); });
  bool ended = await();
  if (!ended) {
    progress_->Post([endpoint] { endpoint->Break(absl::UnavailableError("the connection was closed")); });
    ended = await();
  }
  if (!ended) pushes_->EndAll(absl::UnavailableError("the connection was closed"));
  UcxConnection connection{std::move(inbox_), std::move(progress_), std::move(endpoint_), closed};
  if (ended) {
    UcxParkedLinks::Destroy(std::move(connection));
  } else {
    parked_.Keep(std::move(connection));
  }
}

}  // namespace baton
