#include "router/prefill_hint.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/scoped_id.h"
#include "request/priority.h"

namespace baton {

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
