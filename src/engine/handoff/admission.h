// The question whether a decode worker has room for a reservation, and its answers.
#pragma once

#include <cstdint>
#include <variant>

#include "absl/functional/any_invocable.h"
#include "engine/handoff/messages.h"

namespace baton {

// What a reservation would take.
struct AdmissionQuery {
  int32_t kv_tokens = 0;
  int32_t max_new_tokens = 0;
  int64_t blocks_now = 0;  // of RadixTree::Available(): missing blocks, and cached ones that it would hold
};
struct Admit {};
using Admission = std::variant<Admit, Wait, NeverFits>;
// Running + reserved + expected growth must fit. What is reserved already: HandoffReceiver::outstanding().
using AdmissionPolicy = absl::AnyInvocable<Admission(const AdmissionQuery&)>;

}  // namespace baton
