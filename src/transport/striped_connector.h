// Moves blocks between slabs that ranks share (kv/striped_slab.h): a link from each rank to each of the peer's ranks
// that has some of the same heads. The two need not have equally many ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kv/striped_slab.h"
#include "transport/transport.h"

namespace baton {

class StripedConnector final : public Connector {
 public:
  // One rank's slab, and the way from and to it. The connector must outlive this.
  struct Part {
    Connector* connector;
    StripeRange range;
  };
  // REQUIRES: at least one part, and as for StripedSlab. A worker without ranks is one part.
  StripedConnector(int64_t plane_bytes, std::vector<Part> parts);

  std::string Descriptor() const override;
  // As the parts' connectors; besides INVALID_ARGUMENT: not a descriptor of this kind, FAILED_PRECONDITION: planes of
  // another size. Copies are of whole planes.
  absl::StatusOr<std::unique_ptr<Link>> Connect(std::string_view peer_descriptor) override;

 private:
  const int64_t plane_bytes_;
  const std::vector<Part> parts_;
};

// Which copies move planes of one slab to another, as far as `source` and `target` share bytes of a plane; offsets are
// then within their slabs. REQUIRES: whole planes.
std::vector<BlockCopy> CopiesBetween(int64_t plane_bytes, const StripeRange& source, const StripeRange& target,
                                     std::span<const BlockCopy> copies);

}  // namespace baton
