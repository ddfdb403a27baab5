#include "request/priority.h"

#include "catch.h"

namespace baton {

TEST_CASE("no priority that a client can give is the background's") {
  CHECK(IsBackground(kBackgroundPriority));
  CHECK(IsBackground(kBackgroundPriority - 1));
  for (const int32_t of_clients : {-kMaxPriority, 0, kMaxPriority}) CHECK_FALSE(IsBackground(of_clients));
}

}  // namespace baton
