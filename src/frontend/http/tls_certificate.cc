#include "frontend/http/tls_certificate.h"

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>

#include <fstream>
#include <iterator>
#include <new>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace baton {
namespace {

constexpr std::string_view kProtocol("\x08http/1.1", 9);  // in the format of ALPN

absl::StatusOr<std::string> ContentOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string content{std::istreambuf_iterator<char>(file), {}};
  if (!file.is_open() || file.bad()) return absl::InvalidArgumentError(absl::StrCat(path, ": cannot be read"));
  return content;
}

// Files are compared by their digests, so that no copy of the key stays in memory.
std::string DigestOf(const std::string& text) {
  std::string digest(EVP_MAX_MD_SIZE, '\0');
  EVP_Digest(text.data(), text.size(), reinterpret_cast<unsigned char*>(digest.data()), nullptr, EVP_sha256(), nullptr);
  return digest;
}

// Makes an error from OpenSSL's last error.
absl::Status Wrong(const std::string& path, const char* expected) {
  const char* reason = ERR_reason_error_string(ERR_peek_last_error());
  ERR_clear_error();
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": ", expected, reason == nullptr ? "" : absl::StrCat(" (", reason, ")")));
}

// Refuses a client that offers only other protocols. A client that offers none is assumed to use
// HTTP/1.1.
int ChooseProtocol(SSL*, const unsigned char** chosen, unsigned char* length, const unsigned char* offered,
                   unsigned offered_length, void*) {
  unsigned char* found = nullptr;
  const auto* ours = reinterpret_cast<const unsigned char*>(kProtocol.data());
  if (SSL_select_next_proto(&found, length, ours, kProtocol.size(), offered, offered_length) !=
      OPENSSL_NPN_NEGOTIATED) {
    return SSL_TLSEXT_ERR_ALERT_FATAL;
  }
  *chosen = found;
  return SSL_TLSEXT_ERR_OK;
}

// Bounds the computation for a client's first message to well under a millisecond. OpenSSL's
// default includes groups of finite fields, which take 145 ms.
bool ChooseKeyExchange(SSL_CTX* context) {
  return SSL_CTX_set1_groups_list(context, "X25519:P-256") == 1 &&
         // For TLS 1.2.
         SSL_CTX_set_cipher_list(context, "ECDHE+AESGCM:ECDHE+CHACHA20") == 1;
}

std::shared_ptr<SSL_CTX> NewContext() {
  std::shared_ptr<SSL_CTX> context(SSL_CTX_new(TLS_server_method()), SSL_CTX_free);
  if (context == nullptr) throw std::bad_alloc();
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_options(context.get(), SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET);
  SSL_CTX_set_mode(context.get(), SSL_MODE_RELEASE_BUFFERS);  // for idle connections
  // Sessions are not resumed. A key of session tickets would live as long as the context, and with
  // it the secrets that it can decrypt.
  SSL_CTX_set_num_tickets(context.get(), 0);
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  // Without this callback, OpenSSL asks for a password on the terminal.
  const auto no_password = [](char*, int, int, void*) { return -1; };
  SSL_CTX_set_default_passwd_cb(context.get(), no_password);
  SSL_CTX_set_alpn_select_cb(context.get(), ChooseProtocol, nullptr);
  return context;
}

absl::StatusOr<std::shared_ptr<SSL_CTX>> ContextOf(const TlsCertificate::Files& files) {
  ERR_clear_error();
  std::shared_ptr<SSL_CTX> context = NewContext();
  if (!ChooseKeyExchange(context.get())) return absl::FailedPreconditionError("OpenSSL: expected X25519 and P-256");
  if (SSL_CTX_use_certificate_chain_file(context.get(), files.certificate.c_str()) != 1) {
    return Wrong(files.certificate, "expected certificates in PEM");
  }
  if (SSL_CTX_use_PrivateKey_file(context.get(), files.key.c_str(), SSL_FILETYPE_PEM) != 1) {
    return Wrong(files.key, "expected the certificate's private key in PEM, without a password");
  }
  // Keys of another type (EC for an RSA certificate) are not compared above.
  if (SSL_CTX_check_private_key(context.get()) != 1) return Wrong(files.key, "expected the certificate's private key");
  return context;
}

}  // namespace

absl::StatusOr<std::shared_ptr<TlsCertificate>> TlsCertificate::Load(Files files) {
  std::shared_ptr<TlsCertificate> certificate(new TlsCertificate(std::move(files)));
  RETURN_IF_ERROR(certificate->Renew().status());
  return certificate;
}

absl::StatusOr<bool> TlsCertificate::Renew() {
  const std::lock_guard renewing(renewal_mutex_);
  const auto certificate = ContentOf(files_.certificate), key = ContentOf(files_.key);
  std::string now = DigestOf(absl::StrCat(certificate.value_or(""), "\n", key.value_or("")));
  if (now == shown_) return false;
  absl::Status status = certificate.status();
  if (status.ok()) status = key.status();
  auto context = status.ok() ? ContextOf(files_) : status;
  // Tried again at the next call, because the error may have a cause outside the files.
  if (!context.ok()) {
    if (now == refused_) return false;
    refused_ = std::move(now);
    return context.status();
  }
  shown_ = std::move(now);
  const std::lock_guard lock(mutex_);
  context_ = *std::move(context);
  return true;
}

std::shared_ptr<SSL_CTX> TlsCertificate::context() const {
  const std::lock_guard lock(mutex_);
  return context_;
}

}  // namespace baton
