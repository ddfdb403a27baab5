// The connector of slabs that ranks share (kv/striped_slab.h). It makes a connection from each rank
// to each of the peer's ranks that has some of the same heads. The numbers of ranks on the two
// sides may differ.
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
  // The connector and the stripe of one rank. The connector must outlive this object.
  struct Part {
    Connector* connector;
    StripeRange range;
  };
  // A worker without ranks has one stripe. REQUIRES: there is at least one stripe, and the ranges
  // are valid for StripedSlab.
  StripedConnector(int64_t plane_bytes, std::vector<Part> parts);

  std::string Descriptor() const override;
  // Fails as the connectors of the stripes do. Also fails with INVALID_ARGUMENT if the descriptor
  // is of another kind, and with FAILED_PRECONDITION if the peer's planes have another size. The
  // connection's copies must be whole planes.
  absl::StatusOr<std::unique_ptr<Link>> Connect(std::string_view peer_descriptor) override;

 private:
  const int64_t plane_bytes_;
  const std::vector<Part> parts_;
};

// Translates copies of whole planes to copies between the stripes `source` and `target`. The result
// has the bytes of each plane that are in both stripes, with offsets in the slabs of the stripes.
// REQUIRES: the copies are whole planes.
std::vector<BlockCopy> CopiesBetween(int64_t plane_bytes, const StripeRange& source, const StripeRange& target,
                                     std::span<const BlockCopy> copies);

}  // namespace baton
