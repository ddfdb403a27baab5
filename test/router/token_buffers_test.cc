// Tests of token buffers: a router holds a request's tokens once, and all jobs of the request share
// the buffer.
#include "world/dispatcher_world.h"

namespace baton {

TEST_CASE("Request shares one token buffer among its jobs") {
  Driven d;
  ClientRequest request = d.Request("r", "ab");
  const TokenId* tokens = request.spec.tokens.data();
  const auto sent = [&] {
    const auto actions = (*d).TakeActions();
    REQUIRE(actions.size() == 1);
    return std::get<WorkerCommand>(actions[0]).what;
  };
  REQUIRE(d.Submit(std::move(request)).ok());
  const auto prefill = std::get<PrefillJob>(sent());
  CHECK(prefill.spec.tokens.data() == tokens);
  PrefillDone done;
  done.request_id = prefill.request_id;
  done.decode_incarnation = Incarnation(22);
  (*d).OnPrefillDone(kP, done, d.now);
  CHECK(std::get<DecodeJob>(sent()).spec.tokens.data() == tokens);
}

}  // namespace baton
