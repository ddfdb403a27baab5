#include "transport/ucx/log.h"

#include <ucs/debug/log_def.h>

#include <optional>

#include "catch.h"
#include "log_capture.h"

namespace baton {
namespace {

TEST_CASE("UcxLog logs UCX's messages while it exists") {
  const unsigned before = ucs_log_num_handlers();
  const LogCapture log;
  std::optional<UcxLog> first(std::in_place);
  {
    const UcxLog second;
    ucs_error("the device %s has failed %d times", "mlx5_0", 7);
  }
  ucs_warn("still logged");
  CHECK(log.Count("UCX: the device mlx5_0 has failed 7 times") == 1);
  CHECK(log.Count("UCX: still logged") == 1);
  CHECK(ucs_log_num_handlers() == before + 1);
  first.reset();
  CHECK(ucs_log_num_handlers() == before);
}

}  // namespace
}  // namespace baton
