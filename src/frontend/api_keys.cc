#include "frontend/api_keys.h"

#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <openssl/sha.h>

#include <algorithm>
#include <limits>
#include <map>
#include <span>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "base/check.h"
#include "base/status.h"
#include "base/strings.h"
#include "base/toml_file.h"

namespace baton {
namespace {

using Sha = std::array<uint8_t, 32>;

constexpr char kHashPrefix[] = "sha256:";
constexpr size_t kMaxTenantBytes = 64;
constexpr size_t kMaxKeyBytes = 1024;  // longer keys are always unknown

Sha ShaOf(std::string_view key) {
  Sha sha;
  SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(), sha.data());
  return sha;
}

std::string Hex(std::span<const uint8_t> bytes) {
  return absl::BytesToHexString({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

bool IsTenantName(std::string_view name) {
  return !name.empty() && name.size() <= kMaxTenantBytes &&
         std::ranges::all_of(name, [](char c) { return IsPlain(c, "-_."); });
}

absl::StatusOr<Sha> ReadHash(const std::string& where, const toml::node& node) {
  const std::string text = node.value_or(std::string());
  absl::string_view hex = text;
  const bool digits = absl::ConsumePrefix(&hex, kHashPrefix) && hex.size() == 64 &&
                      std::ranges::all_of(hex, [](unsigned char c) { return absl::ascii_isxdigit(c); });
  if (!digits) {
    return absl::InvalidArgumentError(
        StrCat(where, ": keys: expected \"sha256:\" and 64 hexadecimal digits (`baton key` prints them)"));
  }
  const std::string bytes = absl::HexStringToBytes(hex);
  Sha sha;
  std::copy(bytes.begin(), bytes.end(), sha.begin());
  return sha;
}

absl::Status ReadLimit(const std::string& where, std::string_view name, const toml::node& node, int64_t most,
                       int64_t& out) {
  const auto value = node.value_exact<int64_t>();
  if (!value || *value < 1 || *value > most) {
    return absl::InvalidArgumentError(
        StrCat(where, ": ", name, ": expected 1 to ", most, " (leave it out for no limit)"));
  }
  out = *value;
  return absl::OkStatus();
}

struct KeyEntry {
  Sha sha;
  std::string place;  // "FILE:LINE"
};

struct TenantEntry {
  Tenant tenant;
  std::vector<KeyEntry> keys;
};

absl::StatusOr<TenantEntry> ReadTenant(const std::string& path, const std::string& name, const toml::node& node) {
  const std::string where = PlaceOf(path, node);
  const toml::table* table = node.as_table();
  if (table == nullptr) {
    return absl::InvalidArgumentError(StrCat(where, ": expected a table for each tenant, got '", name, "'"));
  }
  if (!IsTenantName(name)) {
    return absl::InvalidArgumentError(
        StrCat(where, ": '", name, "': expected a tenant of 1 to ", kMaxTenantBytes, " letters, digits and \"-_.\""));
  }
  TenantEntry entry;
  entry.tenant.name = name;
  TenantQuota& quota = entry.tenant.quota;
  for (const auto& [key, value] : *table) {
    const std::string line = PlaceOf(path, value);
    constexpr int64_t kMost32 = std::numeric_limits<int32_t>::max();
    int64_t limit = 0;
    if (key == "keys" && value.is_array()) {
      for (const toml::node& hash : *value.as_array()) {
        const std::string place = PlaceOf(path, hash);
        ASSIGN_OR_RETURN(const Sha sha, ReadHash(place, hash));
        entry.keys.push_back({sha, place});
      }
    } else if (key == "operator" && value.is_boolean()) {
      entry.tenant.is_operator = value.value_or(false);
    } else if (key == "max_requests") {
      RETURN_IF_ERROR(ReadLimit(line, key.str(), value, kMost32, limit));
      quota.max_requests = static_cast<int32_t>(limit);
    } else if (key == "max_sessions") {
      RETURN_IF_ERROR(ReadLimit(line, key.str(), value, kMost32, limit));
      quota.max_sessions = static_cast<int32_t>(limit);
    } else if (key == "tokens_per_minute") {
      RETURN_IF_ERROR(ReadLimit(line, key.str(), value, int64_t{1} << 50, quota.tokens_per_minute));
    } else {
      return absl::InvalidArgumentError(StrCat(line, ": '", key.str(),
                                               "': expected keys (a list), operator (true or false), ",
                                               "max_requests, max_sessions or tokens_per_minute"));
    }
  }
  if (entry.keys.empty()) return absl::InvalidArgumentError(StrCat(where, ": tenant '", name, "' has no keys"));
  return entry;
}

}  // namespace

absl::StatusOr<ApiKeys> ApiKeys::Load(const std::string& path) {
  ASSIGN_OR_RETURN(const toml::table table, ReadTomlFile(path));
  ApiKeys keys;
  struct Use {
    std::string place;
    std::string tenant;
  };
  std::map<Sha, Use> uses;
  for (const auto& [name, node] : table) {
    ASSIGN_OR_RETURN(TenantEntry entry, ReadTenant(path, std::string(name.str()), node));
    const auto tenant = std::make_shared<const Tenant>(std::move(entry.tenant));
    for (const auto& [sha, place] : entry.keys) {
      const auto [use, is_new] = uses.try_emplace(sha, Use{place, tenant->name});
      if (!is_new) {
        return absl::InvalidArgumentError(StrCat(
            place, ": keys: tenant '", tenant->name, "' has a key that tenant '", use->second.tenant, "' has at ",
            use->second.place, ". Remove one of the two lines, or generate another key with `baton key`"));
      }
      keys.entries_.push_back({sha, tenant});
    }
  }
  if (keys.entries_.empty()) return absl::InvalidArgumentError(path + ": expected at least one tenant, got none");
  return keys;
}

std::shared_ptr<const Tenant> ApiKeys::Find(std::string_view key) const {
  const Sha sha = ShaOf(key.substr(0, kMaxKeyBytes));
  const Entry* found = nullptr;
  for (const Entry& entry : entries_) {
    if (CRYPTO_memcmp(entry.sha256.data(), sha.data(), sha.size()) == 0) found = &entry;
  }
  return found == nullptr || key.size() > kMaxKeyBytes ? nullptr : found->tenant;
}

absl::StatusOr<std::unique_ptr<KeyRing>> KeyRing::Load(const std::string& path) {
  auto ring = std::make_unique<KeyRing>();
  ring->path_ = path;
  if (!path.empty()) RETURN_IF_ERROR(ring->Reload());
  return ring;
}

absl::StatusOr<std::shared_ptr<const Tenant>> KeyRing::Authenticate(std::string_view authorization) const {
  static const auto unnamed = std::make_shared<const Tenant>();
  if (!asks()) return unnamed;
  std::shared_ptr<const ApiKeys> keys;
  {
    const std::lock_guard lock(mutex_);
    keys = keys_;
  }
  constexpr std::string_view kScheme = "bearer ";
  const bool bearer = absl::StartsWithIgnoreCase(ToAbsl(authorization), ToAbsl(kScheme));
  std::shared_ptr<const Tenant> tenant = keys->Find(bearer ? authorization.substr(kScheme.size()) : "");
  if (tenant != nullptr) return tenant;
  return absl::UnauthenticatedError(
      "expected an API key of this router: \"authorization: Bearer KEY\", or over HTTP \"x-api-key: KEY\"");
}

absl::Status KeyRing::Reload() {
  BATON_CHECK(asks(), "Reload needs a file of keys");
  ASSIGN_OR_RETURN(ApiKeys keys, ApiKeys::Load(path_));
  auto shared = std::make_shared<const ApiKeys>(std::move(keys));
  const std::lock_guard lock(mutex_);
  keys_ = std::move(shared);
  return absl::OkStatus();
}

NewKey DrawKey() {
  std::array<uint8_t, 32> bytes;
  BATON_CHECK(RAND_bytes(bytes.data(), bytes.size()) == 1, "OpenSSL returned no random bytes");
  const std::string key = "baton-" + Hex(bytes);
  return {key, kHashPrefix + Hex(ShaOf(key))};
}

}  // namespace baton
