#include "frontend/http/tls_session.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace baton {
namespace {

// Upper bound on the bytes that a client sends without plaintext. It exceeds one record (16 KiB),
// because plaintext appears only when a record is complete. Without the bound, a client could
// request new keys forever, at no cost to itself.
constexpr size_t kMostIdleBytes = 64u << 10;
constexpr size_t kMostSent = 64u << 10;  // sent bytes that are still kept
// The alert that OpenSSL sends for a message that is too long: fatal, "illegal parameter".
constexpr std::string_view kTooLong("\x15\x03\x03\x00\x02\x02\x2f", 7);

}  // namespace

// A BIO that reads and writes the session's strings. OpenSSL's memory BIOs never return memory.
struct TlsBytes {
  static TlsSession& SessionOf(BIO* bio) { return *static_cast<TlsSession*>(BIO_get_data(bio)); }

  static int Read(BIO* bio, char* to, int size) {
    std::string_view& from = SessionOf(bio).incoming_;
    BIO_clear_retry_flags(bio);
    if (from.empty()) {
      BIO_set_retry_read(bio);
      return -1;
    }
    const size_t bytes = std::min(from.size(), static_cast<size_t>(size));
    std::memcpy(to, from.data(), bytes);
    from.remove_prefix(bytes);
    return static_cast<int>(bytes);
  }

  static int Write(BIO* bio, const char* from, int size) {
    BIO_clear_retry_flags(bio);
    try {
      SessionOf(bio).outgoing_.append(from, static_cast<size_t>(size));
    } catch (const std::exception&) {  // C code cannot pass exceptions on
      return -1;
    }
    return size;
  }

  static long Control(BIO*, int command, long, void*) {  // NOLINT(google-runtime-int): OpenSSL's
    return command == BIO_CTRL_FLUSH ? 1 : 0;
  }

  static const BIO_METHOD* Method() {
    static BIO_METHOD* const kMethod = [] {
      BIO_METHOD* method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "bytes");
      if (method == nullptr) throw std::bad_alloc();
      BIO_meth_set_read(method, Read);
      BIO_meth_set_write(method, Write);
      BIO_meth_set_ctrl(method, Control);
      return method;
    }();
    return kMethod;
  }
};

TlsSession::TlsSession(SSL_CTX* context) : ssl_(SSL_new(context), SSL_free) {
  BIO* const bio = ssl_ == nullptr ? nullptr : BIO_new(TlsBytes::Method());
  if (bio == nullptr) throw std::bad_alloc();
  BIO_set_data(bio, this);
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl_.get(), bio, bio);  // takes ownership of `bio`
  SSL_set_accept_state(ssl_.get());
}

TlsSession::~TlsSession() = default;

bool TlsSession::ended() const { return (SSL_get_shutdown(ssl_.get()) & SSL_RECEIVED_SHUTDOWN) != 0; }

bool TlsSession::can_send() const { return established_ && SSL_is_init_finished(ssl_.get()) == 1; }

absl::Status TlsSession::Receive(std::string_view bytes, std::string& plaintext) {
  incoming_ = bytes;
  begun_ = begun_ || !bytes.empty();
  if (established_) idle_bytes_ += bytes.size();
  // Only TLS 1.3 needs the check. A TLS 1.2 client has no second hello, and the data after its
  // first is encrypted under the same type of record.
  if (!established_ && SSL_version(ssl_.get()) == TLS1_3_VERSION && !hello_.Take(bytes)) {
    failed_ = true;
    outgoing_ += kTooLong;
    return absl::InvalidArgumentError(absl::StrCat("TLS: a message of more than ", TlsHello::kMost, " bytes"));
  }
  std::array<char, 16u << 10> part;  // the size of a record
  while (true) {
    // Without this, an error of another connection would count for this one.
    ERR_clear_error();
    const int got = SSL_read(ssl_.get(), part.data(), static_cast<int>(part.size()));
    if (got > 0) {
      plaintext.append(part.data(), static_cast<size_t>(got));
      idle_bytes_ = incoming_.size();
      continue;
    }
    incoming_ = {};
    established_ = established_ || SSL_is_init_finished(ssl_.get()) == 1;
    const int error = SSL_get_error(ssl_.get(), got);
    const bool fine = error == SSL_ERROR_WANT_READ || error == SSL_ERROR_ZERO_RETURN;
    if (fine && idle_bytes_ <= kMostIdleBytes) return absl::OkStatus();
    failed_ = true;
    if (fine) {
      return absl::InvalidArgumentError(
          absl::StrCat("TLS: more than ", kMostIdleBytes, " bytes of messages without data"));
    }
    const char* reason = ERR_reason_error_string(ERR_peek_error());
    ERR_clear_error();
    return absl::InvalidArgumentError(absl::StrCat("TLS: ", reason == nullptr ? "out of memory" : reason));
  }
}

void TlsSession::Send(std::string_view plaintext) {
  if (plaintext.empty()) return;
  ERR_clear_error();
  const int sent = SSL_write(ssl_.get(), plaintext.data(), static_cast<int>(plaintext.size()));
  if (sent == static_cast<int>(plaintext.size())) return;
  failed_ = true;
  ERR_clear_error();
  throw std::bad_alloc();  // SSL_write takes everything unless memory is short
}

bool TlsSession::Close() {
  if (failed_ || !established_ || (SSL_get_shutdown(ssl_.get()) & SSL_SENT_SHUTDOWN) != 0) return false;
  ERR_clear_error();
  SSL_shutdown(ssl_.get());
  ERR_clear_error();
  return !outgoing().empty();
}

void TlsSession::Sent(size_t bytes) {
  BATON_CHECK(bytes <= outgoing_.size() - sent_, "more bytes were sent than were pending");
  sent_ += bytes;
  if (sent_ < outgoing_.size()) {
    // Under a steady load, outgoing_ is never empty, so sent bytes are erased here.
    if (sent_ > kMostSent) outgoing_.erase(0, std::exchange(sent_, 0));
    return;
  }
  sent_ = 0;
  outgoing_.clear();
  constexpr size_t kKept = 4u << 10;  // bytes; enough for one token
  if (outgoing_.capacity() > kKept) std::string().swap(outgoing_);
}

}  // namespace baton
