#include "router/shadow_prefill.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/scoped_id.h"
#include "request/priority.h"

namespace baton {

RequestId ShadowId(const RequestRecord& record) { return absl::StrCat(record.id, "~", record.number); }

ClientRequest ShadowOf(RequestRecord& record) {
  const ClientRequest& request = record.request;
  const std::vector<TokenId> made = std::exchange(record.unshadowed, {});
  ClientRequest shadow;
  shadow.id = NameOf(ShadowId(record));
  shadow.served = request.served;
  shadow.session = request.session;
  shadow.spec = request.spec;
  shadow.spec.sampling = {};  // it generates nothing
  shadow.spec.tokens.Append(made);
  shadow.context.holder = record.prefilled_by;
  shadow.context.tokens = static_cast<int32_t>(request.spec.tokens.size());
  shadow.spec.priority = kBackgroundPriority;
  shadow.prefill_only = true;
  return shadow;
}

std::vector<BlockKey> GrownKeys(const RequestRecord& record, std::vector<BlockKey> first) {
  if (first.empty()) return ToRoute(record.request).keys;
  const std::span<const TokenId> tokens(record.request.spec.tokens);
  const std::vector<BlockKey> rest = BlockKeys(first.back(), tokens.subspan(first.size() * kBlockTokens));
  first.insert(first.end(), rest.begin(), rest.end());
  return first;
}

}  // namespace baton
