// A connection over UCX: an endpoint and the path that its self-test found to be the fastest.
//
// Each connection has its own UCX worker and thread, which end with the connection. UCX 1.13 and
// 1.22 crashed in our tests when a worker connected again to a peer after it had closed a
// connection to that peer with writes in flight.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "transport/transport.h"
#include "transport/ucx/endpoint.h"
#include "transport/ucx/parked_links.h"
#include "transport/ucx/pushes.h"

namespace baton {

// The memory of this worker: the slab is [0, slab_bytes), and the scratch area starts at
// scratch_offset.
struct UcxSource {
  Slab memory;
  bool direct = true;  // UCX can read the memory
  int64_t slab_bytes = 0;
  int64_t scratch_offset = 0;
};

class UcxLink final : public Link {
 public:
  // Connects and runs the self-test. Blocks until its end. Fails with UNAVAILABLE if the peer does
  // not answer, or if no path writes to its memory. `parked` must outlive the link.
  static absl::StatusOr<std::unique_ptr<Link>> Connect(const UcxOptions& options, const UcxSource& source,
                                                       const UcxDescriptor& peer, UcxParkedLinks& parked);
  // Waits up to two seconds for pushes in flight, then aborts them. If they do not end within two
  // more seconds, because UCX does not end them or because the thread hangs, their results are
  // UNAVAILABLE. `parked` then keeps the objects that UCX and the thread may still use.
  ~UcxLink() override;

  void Push(std::span<const BlockCopy> copies, absl::AnyInvocable<void(absl::Status)> done) override;
  bool EndsWithProcess() const override { return ends_with_process_; }
  std::string Description() const override { return description_; }

 private:
  UcxLink(std::unique_ptr<UcxProgress> progress, UcxParkedLinks& parked, int64_t source_bytes, int64_t target_bytes)
      : parked_(parked),
        inbox_(std::make_unique<UcxInbox>(progress->worker())),
        progress_(std::move(progress)),
        source_bytes_(source_bytes),
        target_bytes_(target_bytes) {}
  absl::Status Open(const UcxSource& source, const UcxDescriptor& peer);
  absl::Status ChoosePath(const UcxSource& source, const UcxDescriptor& peer);
  absl::StatusOr<double> Measure(UcxPath path, const UcxSource& source, const UcxDescriptor& peer);
  absl::Status WriteAndWait(UcxPath path, const BlockCopy& copy);
  absl::StatusOr<uint64_t> ProbeAndWait(uint64_t target_offset);

  UcxParkedLinks& parked_;
  std::unique_ptr<UcxInbox> inbox_;  // declared before the thread that uses it
  std::unique_ptr<UcxProgress> progress_;
  std::unique_ptr<UcxEndpoint> endpoint_;
  const std::shared_ptr<UcxPushes> pushes_ = std::make_shared<UcxPushes>();
  const int64_t source_bytes_;
  const int64_t target_bytes_;
  UcxPath path_ = UcxPath::kPut;
  bool ends_with_process_ = false;
  std::string description_;
};

}  // namespace baton
