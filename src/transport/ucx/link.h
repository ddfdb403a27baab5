// A link over UCX: an endpoint, and the path that its self-test found to be the fastest. It has a UCX worker and thread
// of its own, which end with it: UCX 1.13 and 1.22 were both seen to crash when a worker connects again to a peer from
// which it had broken off with writes under way.
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

namespace baton {

// Ours: the slab [0, slab_bytes) of `memory`, and the scratch area from scratch_offset on.
struct UcxSource {
  Slab memory;
  bool direct = true;  // UCX reads it by itself
  int64_t slab_bytes = 0;
  int64_t scratch_offset = 0;
};

class UcxLink final : public Link {
 public:
  // Blocks until the self-test is over. UNAVAILABLE: the peer did not answer, or no path brings bytes to its memory.
  static absl::StatusOr<std::unique_ptr<Link>> Connect(const UcxOptions& options, const UcxSource& source,
                                                       const UcxDescriptor& peer);
  // Waits some seconds for what is in flight, then breaks it off.
  ~UcxLink() override;

  void Push(std::span<const BlockCopy> copies, absl::AnyInvocable<void(absl::Status)> done) override;
  std::string Description() const override { return description_; }

 private:
  UcxLink(std::unique_ptr<UcxProgress> progress, int64_t source_bytes, int64_t target_bytes)
      : inbox_(std::make_unique<UcxInbox>(progress->worker())),
        progress_(std::move(progress)),
        source_bytes_(source_bytes),
        target_bytes_(target_bytes) {}
  absl::Status Open(const UcxSource& source, const UcxDescriptor& peer);
  absl::Status ChoosePath(const UcxSource& source, const UcxDescriptor& peer);
  absl::StatusOr<double> Measure(UcxPath path, const UcxSource& source, const UcxDescriptor& peer);
  absl::Status WriteAndWait(UcxPath path, const BlockCopy& copy);
  absl::StatusOr<uint64_t> ProbeAndWait(uint64_t target_offset);

  std::unique_ptr<UcxInbox> inbox_;  // outlives the thread that reads it
  std::unique_ptr<UcxProgress> progress_;
  std::unique_ptr<UcxEndpoint> endpoint_;
  const int64_t source_bytes_;
  const int64_t target_bytes_;
  UcxPath path_ = UcxPath::kPut;
  std::string description_;
};

}  // namespace baton
