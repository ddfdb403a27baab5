#include "rpc/grpc_status.h"

#include "base/root_cause.h"
#include "catch.h"
#include "inference.pb.h"

namespace baton {
namespace {

v1::RootCause RootIn(const grpc::Status& status) {
  v1::StatusDetails details;
  REQUIRE(details.ParseFromString(status.error_details()));
  REQUIRE(details.code() == status.error_code());
  REQUIRE(details.details_size() == 1);
  REQUIRE(details.details(0).type_url() == "type.googleapis.com/baton.v1.RootCause");
  v1::RootCause root;
  REQUIRE(root.ParseFromString(details.details(0).value()));
  return root;
}

TEST_CASE("A gRPC status has the root cause in its details") {
  const absl::Status cause = AsRootCause(absl::InternalError("broken"), "up", "writer");
  const v1::RootCause root = RootIn(ToGrpc(WithRootCause(absl::AbortedError("down"), *RootCauseOf(cause))));
  CHECK(root.request_id() == "up");
  CHECK(root.agent() == "writer");
  CHECK(root.code() == grpc::StatusCode::INTERNAL);
  CHECK(root.message() == "broken");
  CHECK(ToGrpc(absl::AbortedError("alone")).error_details().empty());
}

TEST_CASE("A root cause is short and valid UTF-8 whatever the error contains") {
  const std::string message = "\xff" + std::string(kMaxCauseBytes - 2, 'a') + "\u00e9\u00e9";
  const absl::Status cause = AsRootCause(absl::InternalError(message), "up", "");
  CHECK(RootIn(ToGrpc(cause)).message() == "?" + std::string(kMaxCauseBytes - 2, 'a'));
}

}  // namespace
}  // namespace baton
