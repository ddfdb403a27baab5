#include "request/priority.h"

#include "catch.h"

namespace baton {

TEST_CASE("No client's priority is that of low-priority jobs") {
  CHECK(IsBackground(kBackgroundPriority));
  CHECK(IsBackground(kBackgroundPriority - 1));
  for (const int32_t of_clients : {-kMaxPriority, 0, kMaxPriority}) CHECK_FALSE(IsBackground(of_clients));
}

}  // namespace baton
