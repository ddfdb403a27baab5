#include "transport/striped_connector.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "transport/descriptor_fields.h"

namespace baton {
namespace {

constexpr uint64_t kStripeMagic = 0x0001'5453'4e54'4142;  // "BATNST" and the format's version
// Upper bound on the stripes of a peer. Each needs a connection with its own thread.
constexpr uint64_t kMostParts = 64;

struct PeerPart {
  std::string descriptor;
  StripeRange range;
};

bool Overlap(const StripeRange& a, const StripeRange& b) { return a.begin < b.end && b.begin < a.end; }

absl::StatusOr<std::vector<PeerPart>> Decode(std::string_view bytes, int64_t plane_bytes) {
  ASSIGN_OR_RETURN(DescriptorReader reader, DescriptorReader::Open("KV", bytes));
  uint64_t magic = 0, plane = 0, count = 0;
  RETURN_IF_ERROR(reader.Get(magic));
  if (magic != kStripeMagic)
    return reader.Malformed(absl::StrCat("magic and version ", magic, ", expected ", kStripeMagic));
  RETURN_IF_ERROR(reader.Get(plane));
  if (plane != static_cast<uint64_t>(plane_bytes)) {
    return absl::FailedPreconditionError(
        absl::StrCat("K and V of a layer take ", plane_bytes, " bytes of a block here, ", plane, " at the peer"));
  }
  RETURN_IF_ERROR(reader.Get(count));
  if (count < 1 || count > kMostParts) return reader.Malformed(absl::StrCat(count, " parts"));
  std::vector<PeerPart> parts(count);
  uint64_t covered = 0;
  for (PeerPart& part : parts) {
    uint64_t width = 0;
    RETURN_IF_ERROR(reader.Get(width));
    if (width < 1 || width > plane - covered) return reader.Malformed(absl::StrCat("a part of ", width, " bytes"));
    part.range = {static_cast<int64_t>(covered), static_cast<int64_t>(covered + width)};
    covered += width;
    RETURN_IF_ERROR(reader.Get(part.descriptor, 1));
  }
  RETURN_IF_ERROR(reader.End());
  if (covered != plane) return reader.Malformed(absl::StrCat("parts of ", covered, " bytes in all, of ", plane));
  return parts;
}

// Joins the results of several pushes and reports them once.
class Joined {
 public:
  Joined(size_t parts, absl::AnyInvocable<void(absl::Status)> done) : parts_(parts), done_(std::move(done)) {}
  void Ended(const absl::Status& status) {
    {
      const std::lock_guard lock(mutex_);
      const bool refused = absl::IsInvalidArgument(status);
      refused_ += refused;
      (refused ? refusal_ : failure_).Update(status);
      if (++ended_ < parts_) return;
    }
    done_(Result());
  }

 private:
  // INVALID_ARGUMENT means that nothing was written. It is the result only if every part returned
  // it.
  absl::Status Result() const {
    if (!failure_.ok() || refused_ == 0) return failure_;
    if (refused_ == parts_) return refusal_;
    return absl::UnavailableError(
        absl::StrCat("some ranks refused a push that other ranks accepted: ", refusal_.message()));
  }

  const size_t parts_;
  std::mutex mutex_;  // guards the members below
  size_t ended_ = 0, refused_ = 0;
  absl::Status failure_, refusal_;
  absl::AnyInvocable<void(absl::Status)> done_;
};

class StripedLink final : public Link {
 public:
  struct Part {
    StripeRange source, target;
    std::unique_ptr<Link> link;
  };
  StripedLink(int64_t plane_bytes, std::vector<Part> parts) : plane_bytes_(plane_bytes), parts_(std::move(parts)) {}

  void Push(std::span<const BlockCopy> copies, absl::AnyInvocable<void(absl::Status)> done) override {
    const auto joined = std::make_shared<Joined>(parts_.size(), std::move(done));
    for (const Part& part : parts_) {
      part.link->Push(CopiesBetween(plane_bytes_, part.source, part.target, copies),
                      [joined](const absl::Status& status) { joined->Ended(status); });
    }
  }

  bool EndsWithProcess() const override {
    return std::ranges::all_of(parts_, [](const Part& part) { return part.link->EndsWithProcess(); });
  }
  std::string Description() const override {
    return absl::StrCat(parts_.size(), " links, the first: ", parts_[0].link->Description());
  }

 private:
  const int64_t plane_bytes_;
  const std::vector<Part> parts_;
};

}  // namespace

std::vector<BlockCopy> CopiesBetween(int64_t plane_bytes, const StripeRange& source, const StripeRange& target,
                                     std::span<const BlockCopy> copies) {
  const int64_t begin = std::max(source.begin, target.begin);
  const int64_t bytes = std::min(source.end, target.end) - begin;
  const bool all = bytes == source.width() && bytes == target.width();
  std::vector<BlockCopy> out;
  for (const BlockCopy& copy : copies) {
    const int64_t planes = copy.bytes / plane_bytes;
    BATON_CHECK(copy.source_offset % plane_bytes == 0 && copy.target_offset % plane_bytes == 0 &&
                    planes * plane_bytes == copy.bytes,
                "whole planes are copied");
    const BlockCopy first{.source_offset = copy.source_offset / plane_bytes * source.width() + begin - source.begin,
                          .target_offset = copy.target_offset / plane_bytes * target.width() + begin - target.begin,
                          .bytes = bytes};
    if (all) {
      out.push_back({first.source_offset, first.target_offset, planes * bytes});
      continue;
    }
    for (int64_t plane = 0; plane < planes; ++plane) {
      out.push_back(
          {first.source_offset + plane * source.width(), first.target_offset + plane * target.width(), bytes});
    }
  }
  return out;
}

StripedConnector::StripedConnector(int64_t plane_bytes, std::vector<Part> parts)
    : plane_bytes_(plane_bytes), parts_(std::move(parts)) {
  BATON_CHECK(!parts_.empty() && parts_.size() <= kMostParts, "a worker has at least one part");
}

std::string StripedConnector::Descriptor() const {
  std::string out;
  PutField(out, kStripeMagic);
  PutField(out, static_cast<uint64_t>(plane_bytes_));
  PutField(out, uint64_t{parts_.size()});
  for (const Part& part : parts_) {
    PutField(out, static_cast<uint64_t>(part.range.width()));
    PutField(out, part.connector->Descriptor());
  }
  return Sealed(std::move(out));
}

absl::StatusOr<std::unique_ptr<Link>> StripedConnector::Connect(std::string_view peer_descriptor) {
  ASSIGN_OR_RETURN(const std::vector<PeerPart> peers, Decode(peer_descriptor, plane_bytes_));
  std::vector<StripedLink::Part> links;
  for (const Part& part : parts_) {
    for (const PeerPart& peer : peers) {
      if (!Overlap(part.range, peer.range)) continue;
      ASSIGN_OR_RETURN(auto link, part.connector->Connect(peer.descriptor));
      links.push_back({part.range, peer.range, std::move(link)});
    }
  }
  // Planes are whole on both sides, so no translation of copies is needed.
  if (parts_.size() == 1 && peers.size() == 1) return std::move(links[0].link);
  return std::make_unique<StripedLink>(plane_bytes_, std::move(links));
}

}  // namespace baton
