#include "transport/write_guard.h"

#include <openssl/crypto.h>
#include <sys/random.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/logging.h"
#include "base/status.h"
#include "kv/plane_copy.h"
#include "transport/block_copies.h"

namespace baton {
namespace {

// Upper bound on recently revoked write keys. Far fewer have messages in flight at a time.
constexpr int64_t kMostEnded = 1024;

}  // namespace

WriteKey WriteGuard::Grant(std::span<const BlockId> blocks) {
  WriteKey write_key;
  const ssize_t drawn = getrandom(write_key.bits.data(), write_key.bits.size(), 0);
  BATON_CHECK(drawn == std::ssize(write_key.bits), "the system returned no random bytes");
  auto granted = std::make_shared<ValidKey>(ValidKey{.bits = write_key.bits, .blocks = {blocks.begin(), blocks.end()}});
  for (const BlockId block : blocks) {
    BATON_CHECK((block.value() + 1) * layout_.BlockBytes() <= static_cast<int64_t>(slab_.size()),
                "a block beyond the slab");
  }
  const std::lock_guard lock(mutex_);
  write_key.id = ++granted_;
  valid_keys_.emplace(write_key.id, std::move(granted));
  return write_key;
}

void WriteGuard::Revoke(uint64_t write_key) {
  std::unique_lock lock(mutex_);
  const auto revoked = valid_keys_.extract(write_key);
  if (revoked.empty()) return;
  recently_revoked_.push_back({write_key, revoked.mapped()->bits});
  if (std::ssize(recently_revoked_) > kMostEnded) recently_revoked_.pop_front();
  written_.wait(lock, [&] { return revoked.mapped()->writing == 0; });
}

bool WriteGuard::EndedRecently(const WriteKey& write_key) const {
  return std::ranges::any_of(recently_revoked_,
                             [&](const WriteKey& e) { return e.id == write_key.id && Same(e.bits, write_key.bits); });
}

absl::Status WriteGuard::CheckPlace(const ValidKey& write_key, const BlockCopy& copy) const {
  const int64_t block_bytes = layout_.BlockBytes(), plane_bytes = layout_.PlaneBytes();
  if (copy.target_offset % plane_bytes != 0 || copy.bytes % plane_bytes != 0) {
    return absl::InvalidArgumentError(absl::StrCat(copy.bytes, " bytes to ", copy.target_offset,
                                                   ": expected whole planes of ", plane_bytes, " bytes"));
  }
  const int64_t last = (copy.target_offset + copy.bytes - 1) / block_bytes;
  for (int64_t block = copy.target_offset / block_bytes; block <= last; ++block) {
    if (write_key.blocks.contains(BlockId(static_cast<uint32_t>(block)))) continue;
    return absl::PermissionDeniedError(absl::StrCat("block ", block, " is not reserved for its writer"));
  }
  return absl::OkStatus();
}

absl::Status WriteGuard::Check(const WriteKey& write_key, std::span<const BlockCopy> copies,
                               std::string_view bytes) const {
  RETURN_IF_ERROR(CheckCopies(copies, std::ssize(bytes), static_cast<int64_t>(slab_.size())));
  const auto granted = valid_keys_.find(write_key.id);
  // The write keys are compared even if none has this id, so that the time is the same.
  const WriteKeyBits key = granted == valid_keys_.end() ? WriteKeyBits{} : granted->second->bits;
  const bool same = Same(key, write_key.bits);
  if (!same || granted == valid_keys_.end()) {
    return absl::PermissionDeniedError(
        "the write has no write key of a current reservation (--guard-kv): the reservation ended long ago, or was "
        "never granted to the writer");
  }
  for (const BlockCopy& copy : copies) RETURN_IF_ERROR(CheckPlace(*granted->second, copy));
  return absl::OkStatus();
}

absl::Status WriteGuard::Refuse(const absl::Status& why) {
  const std::lock_guard lock(mutex_);
  return CountRefused(why);
}

absl::Status WriteGuard::CountRefused(const absl::Status& why) {
  ++refused_;
  if (const auto kept_back = log_limit_.Pass()) {
    spdlog::warn("refused a KV write or its commit: {} ({} more since the last such line)", why.ToString(), *kept_back);
  }
  return why;
}

absl::Status WriteGuard::Copy(std::span<const BlockCopy> copies, std::string_view bytes) const {
  const auto* source = reinterpret_cast<const std::byte*>(bytes.data());
  std::vector<MemoryCopy> planes;
  for (const BlockCopy& copy : copies) {
    AddPlanes(slab_, layout_.PlaneBytes(), slab_.data() + copy.target_offset, source + copy.source_offset, copy.bytes,
              planes);
  }
  return slab_.Copy(planes);
}

absl::Status WriteGuard::Write(const WriteKey& write_key, std::span<const BlockCopy> copies, std::string_view bytes) {
  std::shared_ptr<ValidKey> granted;
  {
    const std::lock_guard lock(mutex_);
    if (const absl::Status status = Check(write_key, copies, bytes); !status.ok()) {
      return EndedRecently(write_key) ? absl::PermissionDeniedError("the reservation of the write key has ended")
                                      : CountRefused(status);
    }
    granted = valid_keys_.at(write_key.id);
    ++granted->writing;
  }
  absl::Status copied = Copy(copies, bytes);
  {
    const std::lock_guard lock(mutex_);
    --granted->writing;
    written_.notify_all();
  }
  return copied;
}

bool WriteGuard::Same(const WriteKeyBits& a, const WriteKeyBits& b) {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

int64_t WriteGuard::refused() const {
  const std::lock_guard lock(mutex_);
  return refused_;
}

int64_t WriteGuard::valid_keys() const {
  const std::lock_guard lock(mutex_);
  return std::ssize(valid_keys_);
}

void WriteGuard::CheckInvariants() const {
  const std::lock_guard lock(mutex_);
  BATON_CHECK(std::ssize(recently_revoked_) <= kMostEnded, "too many ended write keys");
  absl::flat_hash_set<BlockId> blocks;
  for (const auto& [id, write_key] : valid_keys_) {
    BATON_CHECK(id > 0 && id <= granted_, "a write key that was never granted");
    BATON_CHECK(write_key->writing >= 0, "writes miscounted");
    for (const BlockId block : write_key->blocks) {
      BATON_CHECK(blocks.insert(block).second, "two write keys for one block");
    }
  }
}

}  // namespace baton
