// Pushes of blocks for the tests of transports.
#pragma once

#include <cstdint>
#include <future>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "transport/transport.h"

namespace baton {

// The bytes of one block of SmolLM2-135M's KV.
inline constexpr int64_t kModelBlock = 368'640;

// Pushes the copies and returns the final status of the push.
inline absl::Status PushAndWait(Link& link, const std::vector<BlockCopy>& copies) {
  std::promise<absl::Status> result;
  link.Push(copies, [&](absl::Status status) { result.set_value(std::move(status)); });
  return result.get_future().get();
}

}  // namespace baton
