// The question whether a decode worker has room for a reservation, and its answers.
#pragma once

#include <cstdint>
#include <variant>

#include "absl/functional/any_invocable.h"
#include "engine/handoff/messages.h"

namespace baton {

struct Admit {};
using Admission = std::variant<Admit, Wait, NeverFits>;
// Running + reserved + expected growth must fit. What is reserved already: HandoffReceiver::outstanding(). The
// reservation would take `blocks_now` of RadixTree::Available(): missing blocks, and cached ones that it would hold. A
// policy does not read the request's keys.
using AdmissionPolicy = absl::AnyInvocable<Admission(const ReserveRequest&, int64_t blocks_now)>;

}  // namespace baton
