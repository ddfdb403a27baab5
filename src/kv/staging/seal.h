// Bytes that come back from disk are known again by a tag in memory.
#pragma once

#include <openssl/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace baton {

// GMAC under a key that only this object has: who can change the disk cannot make bytes that fit, and where the CPU has
// AES and carry-less multiplication it takes a fraction of SHA-256's time. Thread-safe.
class StagingSeal {
 public:
  struct Tag {
    uint64_t number = 0;
    std::array<unsigned char, 16> mac{};
  };

  StagingSeal();
  // Of these bytes, and another each time: GMAC is safe as long as no number is used twice under a key.
  Tag Make(std::span<const std::byte> bytes) {
    const uint64_t number = ++numbers_;
    return {number, Mac(number, bytes)};
  }
  bool Fits(const Tag& tag, std::span<const std::byte> bytes) const { return Mac(tag.number, bytes) == tag.mac; }

 private:
  struct Free {
    void operator()(EVP_MAC* mac) const;
    void operator()(EVP_MAC_CTX* context) const;
  };
  std::array<unsigned char, 16> Mac(uint64_t number, std::span<const std::byte> bytes) const;

  std::unique_ptr<EVP_MAC, Free> gmac_;
  std::array<unsigned char, 16> key_;
  std::atomic<uint64_t> numbers_ = 0;
};

}  // namespace baton
