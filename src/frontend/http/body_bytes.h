// A budget of memory for the bodies of requests, shared fairly between accounts.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>

#include "absl/container/flat_hash_map.h"

namespace baton {

// The bytes that an account holds may not exceed the bytes that then remain free. One account alone
// can hold a half, and two accounts a third each. A new account therefore finds as many free bytes
// as any account holds. Bytes without an account may fill the whole budget. Thread-safe.
class BodyBytes {
 public:
  explicit BodyBytes(size_t most) : most_(most) {}

  // Returns false, and takes nothing, if too few bytes are free. An empty `account` means that the
  // bytes belong to no account.
  bool Take(const std::string& account, size_t bytes);
  // Returns bytes to the budget. REQUIRES: they were taken for this account.
  void Give(const std::string& account, size_t bytes);

 private:
  const size_t most_;
  std::mutex mutex_;  // guards the members below
  size_t taken_ = 0;
  absl::flat_hash_map<std::string, size_t> held_;  // by account; only accounts that hold bytes
};

// One request's share of the budget. The destructor returns it.
class BodyCharge {
 public:
  BodyCharge(std::shared_ptr<BodyBytes> all, std::string account)
      : all_(std::move(all)), account_(std::move(account)) {}
  ~BodyCharge() { all_->Give(account_, bytes_); }
  BodyCharge(const BodyCharge&) = delete;
  BodyCharge& operator=(const BodyCharge&) = delete;

  // Takes more bytes. Returns false, and takes none, if too few are free.
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
