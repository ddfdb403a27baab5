#include "transport/ucx/transport.h"

#include <chrono>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/logging.h"
#include "base/status.h"
#include "transport/ucx/description.h"
#include "transport/ucx/descriptor.h"
#include "transport/ucx/link.h"

namespace baton {
namespace {

constexpr int64_t kPage = 4096;
constexpr int64_t kLargestRegion = int64_t{1} << 45;
static_assert(kPage + kScratchBytes <= kSlabMarginBytes);

// Returns SlabDevice::Share of the memory, or an empty string if peers cannot map it by this means.
std::string SharedHandle(const Slab& memory) {
  if (memory.on_host()) return "";  // UCX itself shares memory of the host.
  auto shared = memory.device()->Share(memory.data());
  if (shared.ok()) return *std::move(shared);
  spdlog::info("KV blocks are not shared with other processes: {}", shared.status().ToString());
  return "";
}

int64_t ScratchOffset(int64_t slab_bytes) { return (slab_bytes + kPage - 1) / kPage * kPage; }

}  // namespace

absl::StatusOr<std::unique_ptr<UcxTransport>> UcxTransport::Create(const UcxOptions& options) {
  ASSIGN_OR_RETURN(std::unique_ptr<UcxProgress> progress, UcxProgress::Start(options));
  std::unique_ptr<UcxTransport> transport(new UcxTransport(options, std::move(progress)));
  RETURN_IF_ERROR(transport->progress_->Call([&] { return transport->inbox_->Listen(); }));
  return transport;
}

UcxTransport::UcxTransport(UcxOptions options, std::unique_ptr<UcxProgress> progress)
    : options_(std::move(options)),
      inbox_(std::make_unique<UcxInbox>(progress->worker())),
      progress_(std::move(progress)) {}

UcxTransport::~UcxTransport() {
  if (parked_.Leak()) return;
  static_cast<void>(progress_->StopBy(std::chrono::steady_clock::now() + kStopWithin));
  static_cast<void>(progress_.release());
  static_cast<void>(inbox_.release());
  static_cast<void>(new std::shared_ptr<void>(std::move(owner_)));
}

std::string UcxTransport::Description() const {
  return DescribeUcx({.version = ucp_get_version_string(),
                      .transports = progress_->transports(),
                      .reaches_cuda = progress_->reaches_cuda()});
}

absl::StatusOr<std::span<std::byte>> UcxTransport::AllocateSlab(int64_t bytes) {
  BATON_CHECK(memory_.size() == 0, "a worker has one slab");
  if (bytes <= 0) return absl::InvalidArgumentError(absl::StrCat("KV slab: expected at least 1 byte, got ", bytes));
  if (bytes > kLargestRegion) {
    return absl::ResourceExhaustedError(
        absl::StrCat("KV slab: expected at most ", kLargestRegion, " bytes, got ", bytes));
  }
  RETURN_IF_ERROR(progress_->Call([&] { return AllocateMemory(bytes); }));
  RETURN_IF_ERROR(progress_->Call([&] { return Publish(bytes); }));
  return memory_.host().first(static_cast<size_t>(bytes));
}

absl::Status UcxTransport::AdoptSlab(const Slab& memory, int64_t bytes, std::shared_ptr<void> owner) {
  BATON_CHECK(memory_.size() == 0, "a worker has one slab");
  BATON_CHECK(static_cast<int64_t>(memory.size()) >= bytes + kSlabMarginBytes,
              "the memory has no margin behind the slab");
  owner_ = std::move(owner);
  memory_ = memory.First(static_cast<size_t>(ScratchOffset(bytes) + kScratchBytes));
  if (progress_->reaches_cuda()) RETURN_IF_ERROR(progress_->Call([&] { return RegisterMemory(memory_); }));
  return progress_->Call([&] { return Publish(bytes); });
}

// This function and the next two require that they are called on the progress thread.
absl::Status UcxTransport::AllocateMemory(int64_t bytes) {
  ucp_mem_map_params_t params{};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS;
  params.length = static_cast<size_t>(ScratchOffset(bytes) + kScratchBytes);
  params.flags = UCP_MEM_MAP_ALLOCATE;
  RETURN_IF_ERROR(ToStatus(ucp_mem_map(progress_->context(), &params, &memory_handle_),
                           absl::StrCat("allocating a slab of ", bytes, " bytes")));
  progress_->Keep(memory_handle_);
  ucp_mem_attr_t attributes{};
  attributes.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS | UCP_MEM_ATTR_FIELD_LENGTH;
  RETURN_IF_ERROR(ToStatus(ucp_mem_query(memory_handle_, &attributes), "querying the slab's address"));
  memory_ = std::span(static_cast<std::byte*>(attributes.address), params.length);
  return absl::OkStatus();
}

absl::Status UcxTransport::RegisterMemory(const Slab& memory) {
  ucp_mem_map_params_t params{};
  params.field_mask =
      UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE;
  params.address = memory.data();
  params.length = memory.size();
  params.memory_type = UCS_MEMORY_TYPE_CUDA;
  RETURN_IF_ERROR(ToStatus(ucp_mem_map(progress_->context(), &params, &memory_handle_),
                           absl::StrCat("registering ", memory.size(), " bytes of device memory")));
  progress_->Keep(memory_handle_);
  return absl::OkStatus();
}

// Makes the descriptor and lets peers write.
absl::Status UcxTransport::Publish(int64_t slab_bytes) {
  slab_bytes_ = slab_bytes;
  scratch_offset_ = ScratchOffset(slab_bytes);
  inbox_->SetMemory(memory_, /*direct=*/memory_handle_ != nullptr);
  void* rkey = nullptr;
  size_t rkey_bytes = 0;
  if (memory_handle_ != nullptr) {
    RETURN_IF_ERROR(
        ToStatus(ucp_rkey_pack(progress_->context(), memory_handle_, &rkey, &rkey_bytes), "packing the slab's key"));
  }
  const absl::Cleanup release_rkey = [&] {
    if (rkey != nullptr) ucp_rkey_buffer_release(rkey);
  };
  ucp_address_t* address = nullptr;
  size_t address_bytes = 0;
  RETURN_IF_ERROR(ToStatus(ucp_worker_get_address(progress_->worker(), &address, &address_bytes),
                           "reading the UCX worker's address"));
  const absl::Cleanup release_address = [&] { ucp_worker_release_address(progress_->worker(), address); };
  descriptor_ = Encode({.ucx_version = ucp_get_version_string(),
                        .base = reinterpret_cast<uint64_t>(memory_.data()),
                        .slab_bytes = static_cast<uint64_t>(slab_bytes),
                        .scratch_offset = static_cast<uint64_t>(scratch_offset_),
                        .worker_address = std::string(reinterpret_cast<const char*>(address), address_bytes),
                        .rkey = std::string(static_cast<const char*>(rkey), rkey_bytes),
                        .on_device = !memory_.on_host(),
                        .shared = options_.share_device ? SharedHandle(memory_) : ""});
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Link>> UcxTransport::Connect(std::string_view peer_descriptor) {
  BATON_CHECK(memory_.size() > 0, "connected before the slab was allocated");
  ASSIGN_OR_RETURN(const UcxDescriptor peer, DecodeUcxDescriptor(peer_descriptor));
  // Different versions have different formats of addresses.
  if (peer.ucx_version != ucp_get_version_string()) {
    return absl::FailedPreconditionError(absl::StrCat("UCX version differs: ", ucp_get_version_string(), " here, ",
                                                      absl::CHexEscape(peer.ucx_version), " at the peer"));
  }
  return UcxLink::Connect(options_, {memory_, memory_handle_ != nullptr, slab_bytes_, scratch_offset_}, peer, parked_);
}

}  // namespace baton
