// API keys. Each key belongs to a tenant.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tenants/tenant_quotas.h"

namespace baton {

// A file of API keys. Tenants share no KV, names, sessions or contexts.
//   [research]                  # the tenant's name
//   keys = ["sha256:9f86d0..."] # 64 hexadecimal digits, as `baton key` prints them
//   operator = true             # may see workers, loads and metrics; optional, like all below
//   max_requests = 64
//   max_sessions = 16
//   tokens_per_minute = 200000
class ApiKeys {
 public:
  // The message of INVALID_ARGUMENT names the file and line, the expected value and the found
  // value. A tenant without a key is an error. So is a key that appears twice; the message names
  // both places.
  static absl::StatusOr<ApiKeys> Load(const std::string& path);

  // Returns the key's tenant, or null if the key is unknown. Takes the same time for every key, so
  // that the time does not reveal a similar key or the key's tenant.
  std::shared_ptr<const Tenant> Find(std::string_view key) const;

 private:
  struct Entry {
    std::array<uint8_t, 32> sha256;
    std::shared_ptr<const Tenant> tenant;
  };
  std::vector<Entry> entries_;
};

// The API keys of a running router. Thread-safe.
class KeyRing {
 public:
  // A ring without a file accepts every call, as one tenant without a name.
  KeyRing() = default;
  // An empty path means no file. Errors are those of ApiKeys::Load.
  static absl::StatusOr<std::unique_ptr<KeyRing>> Load(const std::string& path);

  bool asks() const { return !path_.empty(); }
  // Returns the tenant of the key in a call's "authorization" header: "Bearer KEY". UNAUTHENTICATED
  // has the same message for a missing and for a wrong key.
  absl::StatusOr<std::shared_ptr<const Tenant>> Authenticate(std::string_view authorization) const;
  // Reads the file again. If the file is wrong, the keys do not change. Running requests continue.
  absl::Status Reload();

 private:
  std::string path_;          // empty if no keys are required
  mutable std::mutex mutex_;  // guards the members below
  std::shared_ptr<const ApiKeys> keys_;
};

// A new API key, and its hash as the file of API keys has it.
struct NewKey {
  std::string key;
  std::string hash;  // "sha256:..."
};
NewKey DrawKey();

}  // namespace baton
