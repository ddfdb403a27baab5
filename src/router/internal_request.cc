#include "router/internal_request.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/scoped_id.h"
#include "request/priority.h"

namespace baton {

RequestId ShadowId(const Request& request) { return absl::StrCat(request.id, "~", request.number); }

ClientRequest ShadowOf(Request& request) {
  const ClientRequest& asked = request.asked;
  const std::vector<TokenId> made = std::exchange(request.unshadowed, {});
  ClientRequest shadow;
  shadow.id = NameOf(ShadowId(request));
  shadow.served = asked.served;
  shadow.session = asked.session;
  shadow.spec = asked.spec;
  shadow.spec.sampling = {};  // a shadow prefill generates nothing
  shadow.spec.expected_tokens = 0;
  shadow.spec.tokens.Append(made);
  shadow.context.holder = request.prefilled_by;
  shadow.context.tokens = static_cast<int32_t>(asked.spec.tokens.size());
  shadow.spec.priority = kLowPriority;
  shadow.prefill_only = true;
  return shadow;
}

ClientRequest PrefillHintOf(const Request& call, ClientRequest prompt, uint64_t number) {
  const ClientRequest& request = call.asked;
  prompt.id = absl::StrCat(NameOf(call.id), "~", number);  // no client can choose this name
  prompt.session = request.session;
  prompt.spec.tenant = request.spec.tenant;
  prompt.spec.cache_domain = request.spec.cache_domain;
  prompt.workflow = request.workflow;
  prompt.spec.traceparent = request.spec.traceparent;
  prompt.deadline = request.deadline;
  prompt.spec.priority = kLowPriority;
  prompt.prefill_only = true;
  return prompt;
}

}  // namespace baton
