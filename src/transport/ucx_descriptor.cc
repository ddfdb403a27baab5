#include "transport/ucx_descriptor.h"

#include <openssl/sha.h>

#include <array>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace baton {
namespace {

constexpr uint64_t kMagic = 0x0001'5855'4e54'4142;  // "BATNUX" and the format's version
constexpr uint64_t kLongestField = 64 << 10;        // a worker address has some hundred bytes, an rkey fewer
constexpr uint64_t kLargestSlab = uint64_t{1} << 46;
using Sha = std::array<unsigned char, SHA256_DIGEST_LENGTH>;

Sha ShaOf(std::string_view bytes) {
  Sha sha;
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), sha.data());
  return sha;
}

void Put(std::string& out, uint64_t value) {
  for (int shift = 0; shift < 64; shift += 8) out.push_back(static_cast<char>(value >> shift));
}

void Put(std::string& out, const std::string& value) {
  Put(out, uint64_t{value.size()});
  out += value;
}

absl::Status Malformed(std::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("UCX descriptor: ", std::string(what)));
}

// Takes fields off the front of what is left.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : left_(bytes) {}

  absl::Status Get(uint64_t& value) {
    if (left_.size() < 8) return Malformed("cut short");
    value = 0;
    for (size_t i = 0; i < 8; ++i) value |= uint64_t{static_cast<unsigned char>(left_[i])} << (8 * i);
    left_.remove_prefix(8);
    return absl::OkStatus();
  }
  absl::Status Get(std::string& value, uint64_t shortest) {
    uint64_t size = 0;
    RETURN_IF_ERROR(Get(size));
    if (size < shortest || size > kLongestField || size > left_.size()) {
      return Malformed(absl::StrCat("a field of ", size, " bytes, ", left_.size(), " are left"));
    }
    value = left_.substr(0, size);
    left_.remove_prefix(size);
    return absl::OkStatus();
  }
  bool empty() const { return left_.empty(); }

 private:
  std::string_view left_;
};

}  // namespace

std::string Encode(const UcxDescriptor& descriptor) {
  std::string out;
  Put(out, kMagic);
  Put(out, descriptor.ucx_version);
  Put(out, descriptor.base);
  Put(out, descriptor.slab_bytes);
  Put(out, descriptor.scratch_offset);
  Put(out, descriptor.worker_address);
  Put(out, descriptor.rkey);
  Put(out, descriptor.on_device);
  Put(out, descriptor.shared);
  const Sha sha = ShaOf(out);
  out.append(sha.begin(), sha.end());
  return out;
}

absl::StatusOr<UcxDescriptor> DecodeUcxDescriptor(std::string_view bytes) {
  if (bytes.size() < sizeof(Sha)) return Malformed(absl::StrCat(bytes.size(), " bytes"));
  const std::string_view body = bytes.substr(0, bytes.size() - sizeof(Sha));
  const Sha sha = ShaOf(body);
  if (std::memcmp(sha.data(), bytes.data() + body.size(), sha.size()) != 0) {
    return Malformed("its SHA-256 differs: damaged, or not from a UCX transport");
  }
  Reader reader(body);
  uint64_t magic = 0;
  RETURN_IF_ERROR(reader.Get(magic));
  if (magic != kMagic) return Malformed(absl::StrCat("magic and version ", magic, ", expected ", kMagic));
  UcxDescriptor descriptor;
  RETURN_IF_ERROR(reader.Get(descriptor.ucx_version, 1));
  RETURN_IF_ERROR(reader.Get(descriptor.base));
  RETURN_IF_ERROR(reader.Get(descriptor.slab_bytes));
  RETURN_IF_ERROR(reader.Get(descriptor.scratch_offset));
  RETURN_IF_ERROR(reader.Get(descriptor.worker_address, 1));
  RETURN_IF_ERROR(reader.Get(descriptor.rkey, 0));
  RETURN_IF_ERROR(reader.Get(descriptor.on_device));
  RETURN_IF_ERROR(reader.Get(descriptor.shared, 0));
  if (!reader.empty()) return Malformed("bytes after its end");
  if (descriptor.slab_bytes == 0 || descriptor.slab_bytes > kLargestSlab ||
      descriptor.scratch_offset < descriptor.slab_bytes || descriptor.scratch_offset > kLargestSlab ||
      descriptor.base > UINT64_MAX - 2 * kLargestSlab) {
    return Malformed(absl::StrCat("slab of ", descriptor.slab_bytes, " bytes at ", descriptor.base, ", scratch at ",
                                  descriptor.scratch_offset));
  }
  return descriptor;
}

}  // namespace baton
