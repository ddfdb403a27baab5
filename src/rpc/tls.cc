#include "rpc/tls.h"

#include <openssl/bio.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "grpcpp/security/tls_certificate_provider.h"
#include "grpcpp/security/tls_credentials_options.h"

namespace baton {
namespace {

namespace tls = grpc::experimental;

constexpr unsigned kRefreshSeconds = 10;

template <auto Function>
struct Free {
  template <class T>
  void operator()(T* object) const {
    Function(object);
  }
};
using Bio = std::unique_ptr<BIO, Free<BIO_free>>;
using Certificate = std::unique_ptr<X509, Free<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Free<EVP_PKEY_free>>;

absl::Status Wrong(const std::string& flag, const std::string& path, const char* expected) {
  return absl::InvalidArgumentError(absl::StrCat(flag, ": ", path, ": ", expected));
}

absl::StatusOr<Bio> Open(const std::string& flag, const std::string& path) {
  Bio file(BIO_new_file(path.c_str(), "r"));
  if (file == nullptr) return Wrong(flag, path, "cannot be read");
  return file;
}

absl::StatusOr<Certificate> ReadCertificate(const std::string& flag, const std::string& path) {
  ASSIGN_OR_RETURN(const Bio file, Open(flag, path));
  Certificate certificate(PEM_read_bio_X509(file.get(), nullptr, nullptr, nullptr));
  if (certificate == nullptr) return Wrong(flag, path, "expected a certificate in PEM");
  return certificate;
}

std::shared_ptr<tls::CertificateProviderInterface> ProviderOf(const TlsFiles& files) {
  return std::make_shared<tls::FileWatcherCertificateProvider>(files.key, files.certificate, files.authority,
                                                               kRefreshSeconds);
}

}  // namespace

absl::Status Check(const TlsFiles& files, const std::string& flags) {
  if (files.empty()) return absl::OkStatus();
  const std::string certificate_flag = flags + "-cert", key_flag = flags + "-key", authority_flag = flags + "-ca";
  if (files.certificate.empty() || files.key.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(certificate_flag, ", ", key_flag, ": expected both"));
  }
  ASSIGN_OR_RETURN(const Certificate certificate, ReadCertificate(certificate_flag, files.certificate));
  ASSIGN_OR_RETURN(const Bio key_file, Open(key_flag, files.key));
  // Without this callback, OpenSSL asks for a password on the terminal.
  const auto no_password = [](char*, int, int, void*) { return -1; };
  const Key key(PEM_read_bio_PrivateKey(key_file.get(), nullptr, no_password, nullptr));
  if (key == nullptr) return Wrong(key_flag, files.key, "expected a private key in PEM, without a password");
  if (X509_check_private_key(certificate.get(), key.get()) != 1) {
    return Wrong(key_flag, files.key, "expected the private key of the certificate");
  }
  if (files.authority.empty()) return absl::OkStatus();
  return ReadCertificate(authority_flag, files.authority).status();
}

absl::Status CheckForClient(const TlsFiles& files, const std::string& flags) {
  if (files.empty()) return absl::OkStatus();
  const std::string flag = flags + "-ca";
  if (files.authority.empty())
    return absl::InvalidArgumentError(absl::StrCat(flag, ": required with ", flags, "-cert"));
  if (files.certificate.empty() && files.key.empty()) return ReadCertificate(flag, files.authority).status();
  return Check(files, flags);
}

std::shared_ptr<grpc::ServerCredentials> ServerCredentials(const TlsFiles& files) {
  if (files.empty()) return grpc::InsecureServerCredentials();
  tls::TlsServerCredentialsOptions options(ProviderOf(files));
  options.watch_identity_key_cert_pairs();
  if (!files.authority.empty()) {
    options.watch_root_certs();
    options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  }
  return tls::TlsServerCredentials(options);
}

ChannelFactory DialServer(const std::string& authority) { return DialBy({.authority = authority}); }

ChannelFactory DialBy(const TlsFiles& files, const grpc::ChannelArguments& arguments) {
  if (files.empty()) {
    return [arguments](const WorkerAddress& address) {
      return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
    };
  }
  tls::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(ProviderOf(files));
  if (!files.certificate.empty()) options.watch_identity_key_cert_pairs();
  options.watch_root_certs();
  options.set_verify_server_certs(true);
  return [credentials = tls::TlsCredentials(options), arguments](const WorkerAddress& address) {
    return grpc::CreateCustomChannel(address, credentials, arguments);
  };
}

}  // namespace baton
