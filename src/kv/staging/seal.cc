#include "kv/staging/seal.h"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <openssl/rand.h>

#include <cstring>

#include "base/check.h"

namespace baton {

void StagingSeal::Free::operator()(EVP_MAC* mac) const { EVP_MAC_free(mac); }
void StagingSeal::Free::operator()(EVP_MAC_CTX* context) const { EVP_MAC_CTX_free(context); }

StagingSeal::StagingSeal() : gmac_(EVP_MAC_fetch(nullptr, "GMAC", nullptr)) {
  BATON_CHECK(gmac_ != nullptr, "OpenSSL has no GMAC");
  BATON_CHECK(RAND_bytes(key_.data(), static_cast<int>(key_.size())) == 1, "OpenSSL has no random bytes");
}

std::array<unsigned char, 16> StagingSeal::Mac(uint64_t number, std::span<const std::byte> bytes) const {
  std::array<unsigned char, 12> nonce{};
  std::memcpy(nonce.data(), &number, sizeof number);
  char cipher[] = "AES-128-GCM";
  const OSSL_PARAM options[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_CIPHER, cipher, 0),
                                OSSL_PARAM_construct_octet_string(OSSL_MAC_PARAM_IV, nonce.data(), nonce.size()),
                                OSSL_PARAM_construct_end()};
  const std::unique_ptr<EVP_MAC_CTX, Free> context(EVP_MAC_CTX_new(gmac_.get()));
  std::array<unsigned char, 16> mac;
  size_t length = 0;
  const bool done =
      context != nullptr && EVP_MAC_init(context.get(), key_.data(), key_.size(), options) == 1 &&
      EVP_MAC_update(context.get(), reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()) == 1 &&
      EVP_MAC_final(context.get(), mac.data(), &length, mac.size()) == 1 && length == mac.size();
  BATON_CHECK(done, "GMAC failed");
  return mac;
}

}  // namespace baton
