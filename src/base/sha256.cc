#include "base/sha256.h"

#include <openssl/evp.h>

#include "base/check.h"

namespace baton {

Digest Sha256(const void* data, size_t bytes) {
  // Fetched once. EVP_sha256() looks up its implementation for every digest, and the lookup takes
  // longer than hashing a block key.
  static const EVP_MD* const kSha256 = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  Digest digest;
  unsigned int written = 0;
  const int ok = EVP_Digest(data, bytes, digest.data(), &written, kSha256, nullptr);
  BATON_CHECK(ok == 1 && written == digest.size(), "OpenSSL gave no SHA-256");
  return digest;
}

}  // namespace baton
