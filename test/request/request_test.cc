#include "request/request.h"

#include "catch.h"

namespace baton {

TEST_CASE("only what is prefilled in the background lies below every priority that a client can give") {
  CHECK(IsBackground(kBackgroundPriority));
  CHECK(IsBackground(kBackgroundPriority - 1));
  for (const int32_t of_clients : {-1000, 0, 1000}) CHECK_FALSE(IsBackground(of_clients));
}

}  // namespace baton
