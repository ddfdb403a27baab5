#include "transport/descriptor_fields.h"

#include <openssl/sha.h>

#include <array>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "base/strings.h"

namespace baton {
namespace {

using Sha = std::array<unsigned char, SHA256_DIGEST_LENGTH>;

Sha ShaOf(std::string_view bytes) {
  Sha sha;
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), sha.data());
  return sha;
}

}  // namespace

void PutField(std::string& out, uint64_t value) {
  for (int shift = 0; shift < 64; shift += 8) out.push_back(static_cast<char>(value >> shift));
}

void PutField(std::string& out, const std::string& value) {
  BATON_CHECK(value.size() <= kLongestField, "a field is longer than peers accept");
  PutField(out, uint64_t{value.size()});
  out += value;
}

std::string Sealed(std::string fields) {
  const Sha sha = ShaOf(fields);
  return fields.append(sha.begin(), sha.end());
}

absl::StatusOr<DescriptorReader> DescriptorReader::Open(std::string_view kind, std::string_view bytes) {
  DescriptorReader reader(kind, bytes);
  if (bytes.size() < sizeof(Sha)) return reader.Malformed(absl::StrCat(bytes.size(), " bytes"));
  reader.left_.remove_suffix(sizeof(Sha));
  const Sha sha = ShaOf(reader.left_);
  if (std::memcmp(sha.data(), bytes.data() + reader.left_.size(), sha.size()) != 0) {
    return reader.Malformed("its SHA-256 differs: it is damaged or not a descriptor");
  }
  return reader;
}

absl::Status DescriptorReader::Get(uint64_t& value) {
  if (left_.size() < 8) return Malformed("truncated");
  value = 0;
  for (size_t i = 0; i < 8; ++i) value |= uint64_t{static_cast<unsigned char>(left_[i])} << (8 * i);
  left_.remove_prefix(8);
  return absl::OkStatus();
}

absl::Status DescriptorReader::Get(std::string& value, uint64_t shortest) {
  uint64_t size = 0;
  RETURN_IF_ERROR(Get(size));
  if (size < shortest || size > kLongestField || size > left_.size()) {
    return Malformed(absl::StrCat("a field of ", size, " bytes, ", left_.size(), " are left"));
  }
  value = left_.substr(0, size);
  left_.remove_prefix(size);
  return absl::OkStatus();
}

absl::Status DescriptorReader::End() const {
  return left_.empty() ? absl::OkStatus() : Malformed("bytes after the last field");
}

absl::Status DescriptorReader::Malformed(std::string_view what) const {
  return absl::InvalidArgumentError(StrCat(kind_, " descriptor: ", what));
}

}  // namespace baton
