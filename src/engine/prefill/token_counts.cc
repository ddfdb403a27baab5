#include "engine/prefill/token_counts.h"

#include <algorithm>

namespace baton {

PrefillTokens& PrefillTokens::operator+=(const PrefillTokens& other) {
  computed += other.computed;
  dropped += other.dropped;
  cached += other.cached;
  shared += other.shared;
  host += other.host;
  disk += other.disk;
  held += other.held;
  not_reached += other.not_reached;
  return *this;
}

PrefillTokens TokensOf(const PrefillPrompt& prompt) {
  const PrefillCounters& counters = prompt.counters;
  const int64_t with_kv = std::max<int64_t>(std::ssize(prompt.spec.tokens) - 1, 0);
  // Only a decode worker that holds the rest of the KV makes the prompt want less than all of it.
  const int64_t wanted = std::max(prompt.wanted, prompt.planned);
  return {.computed = counters.computed,
          .dropped = counters.dropped,
          .cached = counters.cached,
          .shared = counters.shared,
          .host = counters.from_host,
          .disk = counters.from_disk,
          .held = prompt.kv_tokens - wanted,
          .not_reached = wanted - prompt.planned + with_kv - prompt.kv_tokens};
}

}  // namespace baton
