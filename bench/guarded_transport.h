// A measurement of block transfers to a decode worker that guards its KV (`--guard-kv`).
#pragma once

#include "nlohmann/json.hpp"

namespace baton {

// Measures transfers over gRPC between two child processes. With `tls`, both present certificates.
// REQUIRES: this process has only one thread, because the function forks.
nlohmann::ordered_json RunGuarded(bool tls);

}  // namespace baton
