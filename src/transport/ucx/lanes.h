// The transports that UCX has selected. UCX 1.13 provides their names only as text.
#pragma once

#include <ucp/api/ucp.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace baton {

// Returns the transports of a context, for example "tcp/lo" or "rc_mlx5/mlx5_0:1".
std::vector<std::string> TransportsOf(ucp_context_h context);

// Returns the transport of each lane of an endpoint, for example "tcp/lo.0". A lane is a connection
// by one transport. REQUIRES: called on the thread of the endpoint's worker.
std::vector<std::string> LanesOf(ucp_ep_h endpoint);
// Returns the lanes in the text of ucp_ep_print_info. Skips lines of an unknown form.
std::vector<std::string> LanesIn(std::string_view text);

// Returns true if a lane writes to the peer's memory by RDMA, and no lane is over TCP.
bool IsRdma(std::span<const std::string> lanes);

}  // namespace baton
