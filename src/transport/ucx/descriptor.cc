#include "transport/ucx/descriptor.h"

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "transport/descriptor_fields.h"

namespace baton {
namespace {

constexpr uint64_t kMagic = 0x0001'5855'4e54'4142;  // "BATNUX" and the format's version
constexpr uint64_t kLargestSlab = uint64_t{1} << 46;

}  // namespace

std::string Encode(const UcxDescriptor& descriptor) {
  std::string out;
  PutField(out, kMagic);
  PutField(out, descriptor.ucx_version);
  PutField(out, descriptor.base);
  PutField(out, descriptor.slab_bytes);
  PutField(out, descriptor.scratch_offset);
  PutField(out, descriptor.worker_address);
  PutField(out, descriptor.rkey);
  PutField(out, descriptor.on_device);
  PutField(out, descriptor.shared);
  return Sealed(std::move(out));
}

absl::StatusOr<UcxDescriptor> DecodeUcxDescriptor(std::string_view bytes) {
  ASSIGN_OR_RETURN(DescriptorReader reader, DescriptorReader::Open("UCX", bytes));
  uint64_t magic = 0;
  RETURN_IF_ERROR(reader.Get(magic));
  if (magic != kMagic) return reader.Malformed(absl::StrCat("magic and version ", magic, ", expected ", kMagic));
  UcxDescriptor descriptor;
  RETURN_IF_ERROR(reader.Get(descriptor.ucx_version, 1));
  RETURN_IF_ERROR(reader.Get(descriptor.base));
  RETURN_IF_ERROR(reader.Get(descriptor.slab_bytes));
  RETURN_IF_ERROR(reader.Get(descriptor.scratch_offset));
  RETURN_IF_ERROR(reader.Get(descriptor.worker_address, 1));
  RETURN_IF_ERROR(reader.Get(descriptor.rkey, 0));
  RETURN_IF_ERROR(reader.Get(descriptor.on_device));
  RETURN_IF_ERROR(reader.Get(descriptor.shared, 0));
  RETURN_IF_ERROR(reader.End());
  if (descriptor.slab_bytes == 0 || descriptor.slab_bytes > kLargestSlab ||
      descriptor.scratch_offset < descriptor.slab_bytes || descriptor.scratch_offset > kLargestSlab ||
      descriptor.base > UINT64_MAX - 2 * kLargestSlab) {
    return reader.Malformed(absl::StrCat("slab of ", descriptor.slab_bytes, " bytes at ", descriptor.base,
                                         ", scratch at ", descriptor.scratch_offset));
  }
  return descriptor;
}

}  // namespace baton
