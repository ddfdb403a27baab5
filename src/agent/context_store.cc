#include "agent/context_store.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "agent/scoped_id.h"
#include "base/check.h"
#include "base/status.h"

namespace baton {

namespace {

std::string OwnerOf(const ContextKey& key) { return baton::OwnerOf(ScopedId(key.cache_domain, key.id)); }

}  // namespace

absl::Status ContextStore::Check(const ContextKey& key, const Context& context, const std::string& model) const {
  if (context.model == model) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("model: context '", key.id, "' is of model '", context.model, "', got '", model, "'"));
}

absl::Status ContextStore::NotFound(const ContextKey& key) const {
  return absl::NotFoundError(absl::StrCat("context_id: no context '", key.id,
                                          "' at this router; a context is kept for ",
                                          absl::FormatDuration(limits_.lease), " after its last use"));
}

void ContextStore::Begin(const ContextKey& key, Context& context) {
  if (context.calls++ == 0) expiries_.erase({context.expires, key});
}

absl::StatusOr<ContextStore::View> ContextStore::BeginAppend(const ContextKey& key, const std::string& model,
                                                             std::optional<int64_t> length, absl::Time now) {
  Tick(now);
  auto found = contexts_.find(key);
  if (found == contexts_.end()) {
    if (length.value_or(0) > 0) return NotFound(key);
    if (!owned_.HasRoom(OwnerOf(key), 1)) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "context_id: this router keeps ", size(), " contexts, ", owned_.Of(OwnerOf(key)),
          " of them of this tenant, limit ", limits_.contexts, "; a tenant may have as many as remain for others"));
    }
    owned_.Add(OwnerOf(key), 1);
    found = contexts_.try_emplace(key).first;
    found->second.model = model;
  } else {
    RETURN_IF_ERROR(Check(key, found->second, model));
  }
  Context& context = found->second;
  if (context.appending) {
    return absl::AbortedError(absl::StrCat("context_id: another call is appending to context '", key.id, "'"));
  }
  const int64_t there = std::ssize(context.tokens);
  if (length.value_or(there) > there) {
    return absl::FailedPreconditionError(
        absl::StrCat("context_length: expected ", there, " (the length of context '", key.id, "'), got ", *length));
  }
  Begin(key, context);
  context.appending = true;
  context.begin = static_cast<size_t>(length.value_or(there));
  const auto end = context.tokens.begin() + static_cast<std::ptrdiff_t>(context.begin);
  return View{.tokens = {context.tokens.begin(), end}, .holder = context.holder};
}

absl::Status ContextStore::Complete(const ContextKey& key, std::span<const TokenId> prompt) {
  Context& context = contexts_.at(key);
  BATON_CHECK(context.appending && prompt.size() >= context.begin, "the prompt does not begin with its context");
  const std::span<const TokenId> fresh = prompt.subspan(context.begin);
  if (context.begin < context.tokens.size()) {
    const auto there = std::span<const TokenId>(context.tokens).subspan(context.begin);
    if (fresh.size() <= there.size() && std::ranges::equal(fresh, there.first(fresh.size()))) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat(
        "context_length: expected ", context.tokens.size(), " (the length of context '", key.id, "'), got ",
        context.begin, "; the context continues there with other tokens than this call appends"));
  }
  if (!tokens_.HasRoom(OwnerOf(key), std::ssize(fresh))) {
    return absl::ResourceExhaustedError(
        absl::StrCat("context_id: the contexts of this router have ", tokens(), " tokens, ", tokens_.Of(OwnerOf(key)),
                     " of them of this tenant, limit ", limits_.tokens, "; this call adds ", fresh.size(),
                     ", and a tenant may have as many as remain for others"));
  }
  tokens_.Add(OwnerOf(key), std::ssize(fresh));
  context.added.assign(fresh.begin(), fresh.end());
  return absl::OkStatus();
}

void ContextStore::EndAppend(const ContextKey& key, const WorkerAddress& holder, absl::Time now) {
  Context& context = contexts_.at(key);
  BATON_CHECK(context.appending, "EndAppend without BeginAppend");
  context.appending = false;
  const std::vector<TokenId> added = std::exchange(context.added, {});
  if (holder.empty()) {
    tokens_.Add(OwnerOf(key), -std::ssize(added));
  } else {
    context.tokens.reserve(context.tokens.size() + added.size());
    context.tokens.insert(context.tokens.end(), added.begin(), added.end());
  }
  End(key, holder, now);
}

absl::StatusOr<ContextStore::View> ContextStore::BeginRead(const ContextKey& key, const std::string& model,
                                                           std::optional<int64_t> length, absl::Time now) {
  Tick(now);
  const auto found = contexts_.find(key);
  if (found == contexts_.end() || found->second.tokens.empty()) return NotFound(key);
  Context& context = found->second;
  RETURN_IF_ERROR(Check(key, context, model));
  const int64_t there = std::ssize(context.tokens);
  if (length.value_or(there) != there) {
    return absl::FailedPreconditionError(
        absl::StrCat("context_length: expected ", there, " (the length of context '", key.id, "'), got ", *length));
  }
  Begin(key, context);
  return View{.tokens = context.tokens, .holder = context.holder};
}

void ContextStore::EndRead(const ContextKey& key, const WorkerAddress& holder, absl::Time now) {
  End(key, holder, now);
}

void ContextStore::End(const ContextKey& key, const WorkerAddress& holder, absl::Time now) {
  Context& context = contexts_.at(key);
  BATON_CHECK(context.calls > 0, "a call ended twice");
  if (!holder.empty()) context.holder = holder;
  if (--context.calls > 0) return;
  if (context.tokens.empty()) return Forget(key);  // the first call failed
  context.expires = now + limits_.lease;
  expiries_.insert({context.expires, key});
}

void ContextStore::Forget(const ContextKey& key) {
  const auto found = contexts_.find(key);
  tokens_.Add(OwnerOf(key), -std::ssize(found->second.tokens));
  owned_.Add(OwnerOf(key), -1);
  contexts_.erase(found);
}

void ContextStore::WorkerLost(const WorkerAddress& link) {
  for (auto& [key, context] : contexts_) {
    if (context.holder == link) context.holder.clear();
  }
}

void ContextStore::Tick(absl::Time now) {
  while (!expiries_.empty() && expiries_.begin()->first <= now) {
    Forget(expiries_.extract(expiries_.begin()).value().second);
  }
}

void ContextStore::CheckInvariants() const {
  Shares owned(limits_.contexts), tokens(limits_.tokens);
  size_t unused = 0;
  for (const auto& [key, context] : contexts_) {
    owned.Add(OwnerOf(key), 1);
    tokens.Add(OwnerOf(key), std::ssize(context.tokens) + std::ssize(context.added));
    unused += context.calls == 0;
    BATON_CHECK((context.calls == 0) == expiries_.contains({context.expires, key}), key.id);
    BATON_CHECK(context.appending || context.added.empty(), key.id);
    BATON_CHECK(!context.appending || context.calls > 0, key.id);
    BATON_CHECK(context.calls > 0 || !context.tokens.empty(), key.id);
  }
  BATON_CHECK(owned == owned_ && tokens == tokens_ && unused == expiries_.size(), "the counts of contexts are wrong");
  BATON_CHECK(tokens_.total() <= limits_.tokens && size() <= limits_.contexts, "too many contexts");
}

}  // namespace baton
