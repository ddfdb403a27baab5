// SHA-256, the hash that identifies KV blocks, weights and tokenizers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace baton {

using Digest = std::array<uint8_t, 32>;

Digest Sha256(const void* data, size_t bytes);

}  // namespace baton
