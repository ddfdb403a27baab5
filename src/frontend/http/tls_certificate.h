// The certificate that a server shows, which may be renewed while it runs.
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
  // PEM files: the chain, the server's own first, and its key.
  struct Files {
    std::string certificate;
    std::string key;
  };
  // INVALID_ARGUMENT: a file cannot be read or is not PEM, or the key is not the certificate's. FAILED_PRECONDITION:
  // OpenSSL lacks what we speak.
  static absl::StatusOr<std::shared_ptr<TlsCertificate>> Load(Files files);

  // Looks whether the files have changed: true if they have, and what they hold is shown to those who come from now on.
  // INVALID_ARGUMENT: they have, to what cannot be used, and all stays as it was. Told once of each such change.
  absl::StatusOr<bool> Renew();
  // For a new connection, and as long as that lasts. TLS 1.2 or newer, with keys by X25519 or P-256, for
  // HTTP/1.1.
  std::shared_ptr<SSL_CTX> context() const;

 private:
  explicit TlsCertificate(Files files) : files_(std::move(files)) {}

  const Files files_;
  std::mutex renewal_mutex_;     // guards what follows; held while files are read, which may take long
  std::string shown_, refused_;  // digests of the files as they are used, and as they last could not be
  mutable std::mutex mutex_;     // guards what follows
  std::shared_ptr<SSL_CTX> context_;
};

}  // namespace baton
