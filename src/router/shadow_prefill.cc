#include "router/shadow_prefill.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/scoped_id.h"

namespace baton {

RequestId ShadowId(const RequestRecord& record) { return absl::StrCat(record.id, "~", record.number); }

ClientRequest ShadowOf(RequestRecord& record) {
  const ClientRequest& request = record.request;
  const std::vector<TokenId> made = std::exchange(record.unshadowed, {});
  ClientRequest shadow;
  shadow.id = NameOf(ShadowId(record));
  shadow.served = request.served;
  shadow.session = request.session;
  shadow.tenant = request.tenant;
  shadow.span = request.span;
  shadow.cache_salt = request.cache_salt;
  shadow.tokens.reserve(request.tokens.size() + made.size());
  shadow.tokens.assign(request.tokens.begin(), request.tokens.end());
  shadow.tokens.insert(shadow.tokens.end(), made.begin(), made.end());
  shadow.context.holder = record.prefilled_by;
  shadow.context.tokens = static_cast<int32_t>(request.tokens.size());
  shadow.priority = kBackgroundPriority;
  shadow.prefill_only = true;
  return shadow;
}

std::vector<BlockKey> GrownKeys(const RequestRecord& record, std::vector<BlockKey> first) {
  if (first.empty()) return ToRoute(record.request).keys;
  const std::span<const TokenId> tokens(record.request.tokens);
  const std::vector<BlockKey> rest = BlockKeys(first.back(), tokens.subspan(first.size() * kBlockTokens));
  first.insert(first.end(), rest.begin(), rest.end());
  return first;
}

}  // namespace baton
