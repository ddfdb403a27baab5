// Bytes of memory that the bodies of requests may take, and whose they are.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>

#include "absl/container/flat_hash_map.h"

namespace baton {

// An account may hold as much as is then left free: one alone a half, two that want all a third each. So whoever comes
// finds as much room as anyone has. What is of no account may fill it. Thread-safe.
class BodyBytes {
 public:
  explicit BodyBytes(size_t most) : most_(most) {}

  // False if there is no room for them; nothing is taken then. `account` may be empty: none.
  bool Take(const std::string& account, size_t bytes);
  void Give(const std::string& account, size_t bytes);  // back. REQUIRES: they were taken

 private:
  const size_t most_;
  std::mutex mutex_;  // guards what follows
  size_t taken_ = 0;
  absl::flat_hash_map<std::string, size_t> held_;  // by account, those that hold some
};

// One request's share, which it gives back when it is gone.
class BodyCharge {
 public:
  BodyCharge(std::shared_ptr<BodyBytes> all, std::string account)
      : all_(std::move(all)), account_(std::move(account)) {}
  ~BodyCharge() { all_->Give(account_, bytes_); }
  BodyCharge(const BodyCharge&) = delete;
  BodyCharge& operator=(const BodyCharge&) = delete;

  // False: there is no room, and it has what it had.
  bool Add(size_t bytes) {
    if (!all_->Take(account_, bytes)) return false;
    bytes_ += bytes;
    return true;
  }
  size_t bytes() const { return bytes_; }

 private:
  const std::shared_ptr<BodyBytes> all_;
  const std::string account_;
  size_t bytes_ = 0;
};

}  // namespace baton
