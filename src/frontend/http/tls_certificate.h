// The certificate that a server presents. It can be renewed while the server runs.
#pragma once

#include <openssl/types.h>

#include <memory>
#include <mutex>
#include <string>

#include "absl/status/statusor.h"

namespace baton {

// Thread-safe.
class TlsCertificate {
 public:
  // PEM files. The certificate file has the chain, with the server's own certificate first.
  struct Files {
    std::string certificate;
    std::string key;
  };
  // Returns INVALID_ARGUMENT if a file cannot be read or is not PEM, or if the key does not match
  // the certificate. Returns FAILED_PRECONDITION if OpenSSL lacks the key exchange or ciphers that
  // Baton uses.
  static absl::StatusOr<std::shared_ptr<TlsCertificate>> Load(Files files);

  // Reads the files if they have changed, and returns whether they have. New connections then use
  // the new certificate. Returns INVALID_ARGUMENT if the new files cannot be used. The old
  // certificate then stays. The same change returns the error only once.
  absl::StatusOr<bool> Renew();
  // Returns the context for a new connection, which may keep it. It allows TLS 1.2 or newer, key
  // exchange by X25519 or P-256, and HTTP/1.1.
  std::shared_ptr<SSL_CTX> context() const;

 private:
  explicit TlsCertificate(Files files) : files_(std::move(files)) {}

  const Files files_;
  // Guards the two strings. It is held while files are read, which may take long.
  std::mutex renewal_mutex_;
  // Digests of the files in use, and of the last files that could not be used.
  std::string shown_, refused_;
  mutable std::mutex mutex_;  // guards context_
  std::shared_ptr<SSL_CTX> context_;
};

}  // namespace baton
