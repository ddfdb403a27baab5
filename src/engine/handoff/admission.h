// The policy that decides whether a decode worker has room for a reservation.
#pragma once

#include <cstdint>
#include <variant>

#include "absl/functional/any_invocable.h"
#include "engine/handoff/messages.h"

namespace baton {

struct Admit {};
using Admission = std::variant<Admit, Wait, NeverFits>;
// Decides whether the request fits beside running sequences, outstanding reservations
// (HandoffReceiver::outstanding) and their expected growth. The reservation would take `blocks_now`
// of RadixTree::Available(): its missing blocks, and the cached blocks that it would hold. A policy
// reads only kv_tokens and expected_new_tokens of the request, because the other fields may be
// unset.
using AdmissionPolicy = absl::AnyInvocable<Admission(const ReserveRequest&, int64_t blocks_now)>;

}  // namespace baton
