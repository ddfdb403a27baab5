#include "frontend/api_keys.h"

#include "absl/strings/match.h"
#include "base/strings.h"
#include "catch.h"
#include "frontend/key_refusal.h"
#include "temp_dir.h"

namespace baton {
namespace {

class KeyFile {
 public:
  explicit KeyFile(const std::string& text) { Write(text); }
  void Write(const std::string& text) { directory_.Write("keys.toml", text); }
  std::string path() const { return directory_ / "keys.toml"; }

 private:
  TempDir directory_;
};

std::string Entry(const std::string& tenant, const NewKey& key, const std::string& more = "") {
  return "[" + tenant + "]\nkeys = [\"" + key.hash + "\"]\n" + more;
}

std::string NameOf(const KeyRing& ring, const std::string& authorization) {
  const auto tenant = ring.Authenticate(authorization);
  return tenant.ok() ? (*tenant)->name : std::string(tenant.status().message());
}

TEST_CASE("A drawn key authenticates its tenant, and its hash does not") {
  const NewKey a = DrawKey(), b = DrawKey(), unknown = DrawKey();
  CHECK(a.key != b.key);
  const KeyFile file(Entry("alpha", a, "max_requests = 4\ntokens_per_minute = 1000\n") + Entry("beta", b));
  const auto ring = KeyRing::Load(file.path());
  REQUIRE(ring.ok());
  CHECK((*ring)->asks());
  CHECK(NameOf(**ring, "Bearer " + a.key) == "alpha");
  CHECK(NameOf(**ring, "bearer " + b.key) == "beta");
  const auto tenant = (*ring)->Authenticate("Bearer " + a.key);
  REQUIRE(tenant.ok());
  CHECK((*tenant)->quota.max_requests == 4);
  CHECK((*tenant)->quota.max_sessions == 0);
  CHECK((*tenant)->quota.tokens_per_minute == 1000);
  for (const std::string& wrong :
       {std::string(), std::string("Bearer "), std::string("Bearer"), a.key, "Basic " + a.key, "Bearer " + a.hash,
        "Bearer " + unknown.key, "Bearer " + a.key + " ", "Bearer " + std::string(100'000, 'x'),
        "Bearer " + a.hash.substr(7)}) {
    INFO(wrong.substr(0, 80));
    CHECK(NameOf(**ring, wrong) == kKeyRefusal);
  }
  CHECK(absl::IsUnauthenticated((*ring)->Authenticate("").status()));
}

TEST_CASE("A router without keys accepts every call") {
  const KeyRing ring;
  CHECK_FALSE(ring.asks());
  CHECK(NameOf(ring, "") == "");
  CHECK(NameOf(ring, "Bearer whatever") == "");
}

TEST_CASE("Reload replaces the keys, and keeps them when the file is wrong") {
  const NewKey first = DrawKey(), second = DrawKey();
  KeyFile file(Entry("t", first));
  const auto ring = KeyRing::Load(file.path());
  REQUIRE(ring.ok());
  file.Write(Entry("t", second));
  CHECK(NameOf(**ring, "Bearer " + first.key) == "t");
  REQUIRE((*ring)->Reload().ok());
  CHECK(NameOf(**ring, "Bearer " + first.key) == kKeyRefusal);
  CHECK(NameOf(**ring, "Bearer " + second.key) == "t");
  file.Write("[t\n");
  CHECK_FALSE((*ring)->Reload().ok());
  CHECK(NameOf(**ring, "Bearer " + second.key) == "t");
}

TEST_CASE("ApiKeys refuses a malformed file and names the line") {
  const NewKey key = DrawKey();
  const auto refusal = [](const std::string& text) {
    const KeyFile file(text);
    const absl::Status status = ApiKeys::Load(file.path()).status();
    const std::string message(Message(status));
    return message.substr(std::min(message.size(), file.path().size()));
  };
  CHECK(refusal("") == ": expected at least one tenant, got none");
  CHECK(absl::StrContains(refusal("[t]\n"), ":1: tenant 't' has no keys"));
  CHECK(absl::StrContains(refusal("keys = []\n"), ":1: expected a table for each tenant, got 'keys'"));
  CHECK(absl::StrContains(refusal("[t]\nkeys = [\"secret\"]\n"), ":2: keys: expected \"sha256:\""));
  CHECK(absl::StrContains(refusal("[t]\nkeys = [\"sha256:" + std::string(63, 'a') + "g\"]\n"), ":2: keys: expected"));
  CHECK(absl::StrContains(refusal("[\"a/b\"]\nkeys = []\n"), ":1: 'a/b': expected a tenant of"));
  CHECK(absl::StrContains(refusal(Entry("t", key, "max_request = 3\n")), ":3: 'max_request': expected keys"));
  CHECK(absl::StrContains(refusal(Entry("t", key, "max_requests = 0\n")), ":3: max_requests: expected 1 to"));
  CHECK(absl::StrContains(refusal(Entry("t", key, "max_requests = \"3\"\n")), ":3: max_requests: expected 1 to"));
  const std::string shared = refusal(Entry("t", key) + Entry("u", key));
  CHECK(absl::StrContains(shared, ":4: keys: tenant 'u' has a key that tenant 't' has at "));
  CHECK(absl::StrContains(shared, "keys.toml:2. Remove one of the two lines"));
  CHECK_FALSE(absl::StrContains(shared, key.hash.substr(7, 8)));
  // Error messages go to logs, so they must not contain a key.
  CHECK_FALSE(absl::StrContains(refusal("[t]\nkeys = [\"secret\"]\n"), "secret"));
}

}  // namespace
}  // namespace baton
