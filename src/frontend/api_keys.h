// Who may call the router: API keys, each of which belongs to a tenant.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "router/tenant_quotas.h"

namespace baton {

// A file of keys:
//   [research]                  # a tenant; its requests share KV, names, sessions and contexts with no other tenant's
//   keys = ["sha256:9f86d0..."] # 64 hexadecimal digits, as `baton key` prints them
//   operator = true             # may see workers, loads and metrics; this and what follows is optional
//   max_requests = 64
//   max_sessions = 16
//   tokens_per_minute = 200000
class ApiKeys {
 public:
  // INVALID_ARGUMENT: file, line, what was expected and got. No key, or one that two tenants have, is an error.
  static absl::StatusOr<ApiKeys> Load(const std::string& path);

  // Null: nobody's. Takes as long for any key: whether one is nearly right, or which tenant's it is, does not show.
  std::shared_ptr<const Tenant> Find(std::string_view key) const;

 private:
  struct Entry {
    std::array<uint8_t, 32> sha256;
    std::shared_ptr<const Tenant> tenant;
  };
  std::vector<Entry> entries_;
};

// The keys of a router that runs. Thread-safe.
class KeyRing {
 public:
  // Without a file: whoever reaches the router may call it, as one tenant without a name.
  KeyRing() = default;
  // An empty path: no file. Errors are those of ApiKeys::Load.
  static absl::StatusOr<std::unique_ptr<KeyRing>> Load(const std::string& path);

  bool asks() const { return !path_.empty(); }
  // What a call's "authorization" says: "Bearer KEY". UNAUTHENTICATED, in the same words for a missing and a wrong key.
  absl::StatusOr<std::shared_ptr<const Tenant>> Authenticate(std::string_view authorization) const;
  // Reads the file again; where it is wrong, the keys stay as they were. Requests that run go on.
  absl::Status Reload();

 private:
  std::string path_;          // empty: asks nobody
  mutable std::mutex mutex_;  // guards what follows
  std::shared_ptr<const ApiKeys> keys_;
};

// A new key, and the line of the file that lets it in.
struct NewKey {
  std::string key;
  std::string hash;  // "sha256:..."
};
NewKey DrawKey();

}  // namespace baton
