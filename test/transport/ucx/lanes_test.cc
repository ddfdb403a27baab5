#include "transport/ucx/lanes.h"

#include <cstdlib>

#include "catch.h"
#include "transport/ucx/descriptor.h"
#include "transport/ucx/progress.h"
#include "transport/ucx/transport.h"

namespace baton {
namespace {

using Lanes = std::vector<std::string>;

TEST_CASE("LanesIn reads a lane from each line and skips lines of other forms") {
  CHECK(LanesIn("#\n"
                "# UCP endpoint \n"
                "#               peer: <no debug data>\n"
                "#                 lane[0]:  1:rc_mlx5/mlx5_0:1.0 md[1]     -> md[1]/ib/sysdev[255] am am_bw#0\n"
                "#                 lane[1]:  4:tcp/eth0.0 md[2]             -> md[2]/tcp/sysdev[255] keepalive\n"
                "#                 lane[2]:  cm rdmacm\n"
                "#                 lane[3]:\n"
                "#                 am_send: 0..<egr/short>..8185..<egr/zcopy>..20553..<rndv>..(inf)\n") ==
        Lanes{"rc_mlx5/mlx5_0:1.0", "tcp/eth0.0"});
  CHECK(LanesIn("").empty());
}

TEST_CASE("A connection is RDMA when a lane writes by RDMA and no lane is over TCP") {
  CHECK(IsRdma(Lanes{"rc_mlx5/mlx5_0:1.0"}));
  CHECK(IsRdma(Lanes{"ud_verbs/mlx5_0:1.0", "dc_mlx5/mlx5_0:1.0"}));
  CHECK_FALSE(IsRdma(Lanes{"rc_mlx5/mlx5_0:1.0", "tcp/eth0.0"}));
  CHECK_FALSE(IsRdma(Lanes{"ud_verbs/mlx5_0:1.0"}));
  CHECK_FALSE(IsRdma(Lanes{"tcp/lo.0"}));
  CHECK_FALSE(IsRdma(Lanes{}));
}

TEST_CASE("LanesOf names the transport of a connection over TCP") {
  setenv("UCX_TLS", "tcp", 1);
  const auto target = *UcxTransport::Create({});
  REQUIRE(target->AllocateSlab(1).ok());
  const UcxDescriptor descriptor = *DecodeUcxDescriptor(target->Descriptor());
  const auto progress = *UcxProgress::Start({});
  unsetenv("UCX_TLS");
  const Lanes lanes = progress->Call([&] {
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
    params.address = reinterpret_cast<const ucp_address_t*>(descriptor.worker_address.data());
    ucp_ep_h endpoint = nullptr;
    REQUIRE(ucp_ep_create(progress->worker(), &params, &endpoint) == UCS_OK);
    return LanesOf(endpoint);  // The destructor of `progress` closes the endpoint.
  });
  CHECK(lanes == Lanes{"tcp/lo.0"});
}

}  // namespace
}  // namespace baton
