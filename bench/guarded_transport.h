// How fast blocks move to a decode worker that guards them (`--guard-kv`).
#pragma once

#include "nlohmann/json.hpp"

namespace baton {

// Between this process and a child of it, by gRPC; with `tls` both show certificates. Forks: before any thread.
nlohmann::ordered_json RunGuarded(bool tls);

}  // namespace baton
