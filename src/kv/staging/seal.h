// Authentication of bytes that are stored on disk, by tags that stay in memory.
#pragma once

#include <openssl/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace baton {

// GMAC under a random key that only this object has. Write access to the disk is not enough to make
// bytes that fit a tag. On a CPU with AES and carry-less multiplication, GMAC takes a fraction of
// the time of SHA-256. Thread-safe.
class StagingSeal {
 public:
  struct Tag {
    uint64_t number = 0;
    std::array<unsigned char, 16> mac{};
  };

  StagingSeal();
  // Returns a tag of `bytes`, with a new number each time. GMAC is secure only if no number is used
  // twice under one key.
  Tag Make(std::span<const std::byte> bytes) {
    const uint64_t number = ++numbers_;
    return {number, Mac(number, bytes)};
  }
  // Returns true if `tag` was made of these bytes.
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
