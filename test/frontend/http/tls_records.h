// TLS 1.3 records that a test seals one by one. OpenSSL's own client does not split a TLS message.
#pragma once

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/ssl.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace baton {

// The secret on which a client's context has agreed with its server. REQUIRES: the context is used
// for one connection.
class TrafficSecret {
 public:
  explicit TrafficSecret(SSL_CTX* context) {
    BATON_CHECK(SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256") == 1, "choosing a cipher");
    SSL_CTX_set_app_data(context, this);
    SSL_CTX_set_keylog_callback(context, [](const SSL* tls, const char* line) {
      static_cast<TrafficSecret*>(SSL_CTX_get_app_data(SSL_get_SSL_CTX(tls)))->Note(line);
    });
  }
  const std::string& client() const { return client_; }

 private:
  // A line is "NAME RANDOM SECRET", in hexadecimal digits.
  void Note(std::string_view line) {
    if (line.starts_with("CLIENT_TRAFFIC_SECRET_0 ")) {
      client_ = absl::HexStringToBytes(std::string(line.substr(line.rfind(' ') + 1)));
    }
  }
  std::string client_;
};

// Records of TLS_AES_128_GCM_SHA256.
class TlsRecords {
 public:
  static constexpr char kHandshake = 22, kData = 23;

  explicit TlsRecords(std::string secret) : secret_(std::move(secret)) {}

  std::string Seal(char type, std::string_view content) {
    const std::string plaintext = absl::StrCat(std::string(content), std::string(1, type));
    const size_t size = plaintext.size() + kTag;
    const std::string header{23, 3, 3, static_cast<char>(size >> 8), static_cast<char>(size)};
    std::string sealed(plaintext.size(), '\0'), tag(kTag, '\0');
    const std::unique_ptr<EVP_CIPHER_CTX, void (*)(EVP_CIPHER_CTX*)> cipher(EVP_CIPHER_CTX_new(), EVP_CIPHER_CTX_free);
    int done = 0;
    EVP_EncryptInit_ex(cipher.get(), EVP_aes_128_gcm(), nullptr, Bytes(Derive("key", 16)), Bytes(Nonce()));
    EVP_EncryptUpdate(cipher.get(), nullptr, &done, Bytes(header), static_cast<int>(header.size()));
    EVP_EncryptUpdate(cipher.get(), Bytes(sealed), &done, Bytes(plaintext), static_cast<int>(plaintext.size()));
    EVP_EncryptFinal_ex(cipher.get(), nullptr, &done);
    EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_GCM_GET_TAG, kTag, tag.data());
    ++sealed_;
    return header + sealed + tag;
  }
  // Records after a KeyUpdate have new keys.
  void UpdateKeys() {
    secret_ = Derive("traffic upd", 32);
    sealed_ = 0;
  }

 private:
  static constexpr int kTag = 16;  // bytes

  static const unsigned char* Bytes(const std::string& text) {
    return reinterpret_cast<const unsigned char*>(text.data());
  }
  static unsigned char* Bytes(std::string& text) { return reinterpret_cast<unsigned char*>(text.data()); }

  // HKDF-Expand-Label (RFC 8446, 7.1), for at most one hash.
  std::string Derive(std::string_view label, size_t size) const {
    const std::string name = absl::StrCat("tls13 ", std::string(label));
    const std::string info = std::string{0, static_cast<char>(size), static_cast<char>(name.size())} + name +
                             std::string{0, 1};  // no context; the first block
    std::string hash(EVP_MAX_MD_SIZE, '\0');
    HMAC(EVP_sha256(), secret_.data(), static_cast<int>(secret_.size()), Bytes(info), info.size(), Bytes(hash),
         nullptr);
    return hash.substr(0, size);
  }
  std::string Nonce() const {
    std::string nonce = Derive("iv", 12);
    for (int i = 0; i < 8; ++i) nonce[11 - i] ^= static_cast<char>(sealed_ >> (8 * i));
    return nonce;
  }

  std::string secret_;
  uint64_t sealed_ = 0;  // records sealed with these keys
};

}  // namespace baton
