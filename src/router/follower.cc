#include "router/follower.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/scoped_id.h"

namespace baton {

ClientRequest FollowerOf(const RequestRecord& call, ClientRequest prompt, uint64_t number) {
  const ClientRequest& request = call.request;
  prompt.id = absl::StrCat(NameOf(call.id), "~", number);  // as no client may name a request
  prompt.session = request.session;
  prompt.tenant = request.tenant;
  prompt.cache_salt = request.cache_salt;
  prompt.workflow = request.workflow;
  prompt.span = request.span;
  prompt.deadline = request.deadline;
  prompt.priority = kBackgroundPriority;
  prompt.prefill_only = true;
  return prompt;
}

}  // namespace baton
