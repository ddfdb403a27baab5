#include "request/priority.h"

#include "catch.h"

namespace baton {

TEST_CASE("No client's priority is that of low-priority jobs") {
  CHECK(IsLowPriority(kLowPriority));
  CHECK(IsLowPriority(kLowPriority - 1));
  for (const int32_t of_clients : {-kMaxPriority, 0, kMaxPriority}) CHECK_FALSE(IsLowPriority(of_clients));
}

}  // namespace baton
