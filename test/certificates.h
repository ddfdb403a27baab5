// Certificates that tests make while they run.
#pragma once

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string>

#include "base/check.h"
#include "rpc/tls_files.h"
#include "temp_dir.h"

namespace baton {

// A certificate authority. It signs certificates for 127.0.0.1.
class Authority {
 public:
  explicit Authority(const std::string& name) : name_(name), key_(NewKey()) {
    certificate_ = Sign(name_, key_.get(), /*is_authority=*/true);
    Write("ca.pem", [&](BIO* file) { return PEM_write_bio_X509(file, certificate_.get()); });
  }

  std::string path() const { return directory_ / "ca.pem"; }

  // The context of a client that accepts only servers with a certificate of this authority.
  std::shared_ptr<SSL_CTX> ClientContext() const {
    std::shared_ptr<SSL_CTX> context(SSL_CTX_new(TLS_client_method()), SSL_CTX_free);
    BATON_CHECK(SSL_CTX_load_verify_file(context.get(), path().c_str()) == 1, "reading an authority");
    SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
    return context;
  }

  // Returns the key and certificate of a process that trusts this authority.
  TlsFiles Issue(const std::string& process, bool rsa = false) {
    const Key key = rsa ? Key(EVP_RSA_gen(2048)) : NewKey();
    const Certificate certificate = Sign(process, key.get(), /*is_authority=*/false);
    Write(process + ".pem", [&](BIO* file) { return PEM_write_bio_X509(file, certificate.get()); });
    Write(process + ".key",
          [&](BIO* file) { return PEM_write_bio_PrivateKey(file, key.get(), nullptr, nullptr, 0, nullptr, nullptr); });
    return {directory_ / (process + ".pem"), directory_ / (process + ".key"), path()};
  }

 private:
  struct FreeKey {
    void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  };
  struct FreeCertificate {
    void operator()(X509* certificate) const { X509_free(certificate); }
  };
  using Key = std::unique_ptr<EVP_PKEY, FreeKey>;
  using Certificate = std::unique_ptr<X509, FreeCertificate>;

  static Key NewKey() { return Key(EVP_EC_gen("P-256")); }

  Certificate Sign(const std::string& subject, EVP_PKEY* key, bool is_authority) {
    Certificate certificate(X509_new());
    X509_set_version(certificate.get(), 2);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), ++serial_);
    X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -3600);
    X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 24 * 3600);
    X509_set_pubkey(certificate.get(), key);
    SetName(X509_get_subject_name(certificate.get()), subject);
    SetName(X509_get_issuer_name(certificate.get()), name_);
    X509V3_CTX context;
    X509V3_set_ctx(&context, is_authority ? certificate.get() : certificate_.get(), certificate.get(), nullptr, nullptr,
                   0);
    Extend(certificate.get(), context, NID_basic_constraints, is_authority ? "critical,CA:TRUE" : "CA:FALSE");
    if (!is_authority) Extend(certificate.get(), context, NID_subject_alt_name, "IP:127.0.0.1,DNS:localhost");
    BATON_CHECK(X509_sign(certificate.get(), key_.get(), EVP_sha256()) > 0, "signing a certificate");
    return certificate;
  }
  static void SetName(X509_NAME* name, const std::string& text) {
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>(text.c_str()), -1, -1,
                               0);
  }
  static void Extend(X509* certificate, X509V3_CTX& context, int id, const char* value) {
    X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, id, value);
    BATON_CHECK(extension != nullptr, value);
    X509_add_ext(certificate, extension, -1);
    X509_EXTENSION_free(extension);
  }
  template <class WriteTo>
  void Write(const std::string& name, WriteTo write) {
    BIO* file = BIO_new_file((directory_ / name).c_str(), "w");
    BATON_CHECK(file != nullptr && write(file) == 1, name);
    BIO_free(file);
  }

  const std::string name_;
  TempDir directory_;
  long serial_ = 0;  // NOLINT(google-runtime-int): OpenSSL's
  Key key_;
  Certificate certificate_;
};

}  // namespace baton
