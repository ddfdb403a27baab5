// Tests of pushes between groups of ranks that divide the heads of every block in different ways.
#include "transport/striped_connector.h"

#include <cstring>
#include <random>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "catch.h"
#include "transport/block_pushes.h"
#include "transport/descriptor_fields.h"
#include "transport/in_process/transport.h"

namespace baton {
namespace {

constexpr int64_t kWholePlane = 60;
constexpr int64_t kPlanes = 32;

// The ranks of a group, on one network.
class Group {
 public:
  Group(const std::shared_ptr<InProcessNetwork>& network, const std::vector<int64_t>& widths,
        int64_t plane = kWholePlane) {
    std::vector<StripedConnector::Part> parts;
    int64_t begin = 0;
    for (const int64_t width : widths) {
      transports_.push_back(std::make_unique<InProcessTransport>(network));
      const auto slab = transports_.back()->AllocateSlab(width * kPlanes);
      REQUIRE(slab.ok());
      slabs_.push_back(*slab);
      ranges_.push_back({begin, begin + width});
      parts.push_back({transports_.back().get(), ranges_.back()});
      begin += width;
    }
    connector_ = std::make_unique<StripedConnector>(plane, std::move(parts));
  }

  StripedConnector& connector() { return *connector_; }

  // The memory that a single rank would have.
  std::vector<std::byte> Whole() const {
    std::vector<std::byte> whole(kWholePlane * kPlanes);
    ForAllRuns([&](std::byte* here, int64_t at, int64_t bytes) { std::memcpy(whole.data() + at, here, bytes); });
    return whole;
  }
  void Fill(const std::vector<std::byte>& whole) {
    ForAllRuns([&](std::byte* here, int64_t at, int64_t bytes) { std::memcpy(here, whole.data() + at, bytes); });
  }

 private:
  template <class Run>
  void ForAllRuns(Run run) const {
    for (size_t rank = 0; rank < slabs_.size(); ++rank) {
      const int64_t width = ranges_[rank].width();
      for (int64_t plane = 0; plane < kPlanes; ++plane) {
        run(slabs_[rank].data() + plane * width, plane * kWholePlane + ranges_[rank].begin, width);
      }
    }
  }

  std::vector<std::unique_ptr<InProcessTransport>> transports_;
  std::vector<std::span<std::byte>> slabs_;
  std::vector<StripeRange> ranges_;
  std::unique_ptr<StripedConnector> connector_;
};

const std::vector<std::vector<int64_t>> kSplits = {{60}, {30, 30}, {20, 40}, {10, 20, 30}, {15, 15, 15, 15}};

}  // namespace

TEST_CASE("StripedConnector moves whole blocks between any numbers of ranks") {
  std::mt19937 random(5);
  for (const auto& from : kSplits) {
    for (const auto& to : kSplits) {
      INFO(from.size() << " ranks to " << to.size());
      const auto network = std::make_shared<InProcessNetwork>();
      Group prefill(network, from), decode(network, to);
      std::vector<std::byte> whole(kWholePlane * kPlanes);
      for (std::byte& byte : whole) byte = static_cast<std::byte>(random());
      prefill.Fill(whole);
      const auto link = prefill.connector().Connect(decode.connector().Descriptor());
      REQUIRE(link.ok());
      // Pushes a whole block of eight planes, and a block's first two layers.
      const std::vector<BlockCopy> copies = {{8 * kWholePlane, 24 * kWholePlane, 8 * kWholePlane},
                                             {0, 16 * kWholePlane, 4 * kWholePlane}};
      REQUIRE(PushAndWait(**link, copies).ok());
      std::vector<std::byte> expected(kWholePlane * kPlanes);
      for (const BlockCopy& copy : copies) {
        std::memcpy(expected.data() + copy.target_offset, whole.data() + copy.source_offset, copy.bytes);
      }
      CHECK(decode.Whole() == expected);
      if (from.size() > 1) CHECK(absl::StrContains((*link)->Description(), " links, the first: "));
    }
  }
}

TEST_CASE("StripedConnector moves a block in one piece per rank when groups are equal") {
  const std::vector<BlockCopy> copies = {{8 * kWholePlane, 24 * kWholePlane, 8 * kWholePlane}};
  const auto same = CopiesBetween(kWholePlane, {20, 40}, {20, 40}, copies);
  REQUIRE(same.size() == 1);
  CHECK(same[0].bytes == 8 * 20);
  CHECK(CopiesBetween(kWholePlane, {0, 60}, {20, 40}, copies).size() == 8);
}

TEST_CASE("StripedConnector fails a push when one of the peer's ranks is gone") {
  const auto network = std::make_shared<InProcessNetwork>();
  Group prefill(network, {30, 30});
  auto decode = std::make_unique<Group>(network, std::vector<int64_t>{30, 30});
  const std::string descriptor = decode->connector().Descriptor();
  const auto link = prefill.connector().Connect(descriptor);
  REQUIRE(link.ok());
  decode.reset();
  CHECK(PushAndWait(**link, {{0, 0, kWholePlane}}).code() == absl::StatusCode::kUnavailable);
  CHECK(prefill.connector().Connect(descriptor).status().code() == absl::StatusCode::kUnavailable);
}

TEST_CASE("StripedConnector returns UNAVAILABLE when one rank refuses and another writes") {
  const auto network = std::make_shared<InProcessNetwork>();
  Group prefill(network, {30, 30});
  // The peer's second rank has fewer planes than its first. Only such a peer makes the ranks'
  // results differ.
  InProcessTransport whole(network), half(network);
  REQUIRE(whole.AllocateSlab(30 * kPlanes).ok());
  REQUIRE(half.AllocateSlab(30 * kPlanes / 2).ok());
  StripedConnector uneven(kWholePlane, {{&whole, {0, 30}}, {&half, {30, 60}}});
  const auto link = prefill.connector().Connect(uneven.Descriptor());
  REQUIRE(link.ok());
  CHECK(absl::IsUnavailable(PushAndWait(**link, {{0, (kPlanes - 1) * kWholePlane, kWholePlane}})));
}

TEST_CASE("StripedConnector refuses a copy beyond the slab on all ranks") {
  const auto network = std::make_shared<InProcessNetwork>();
  Group prefill(network, {30, 30}), decode(network, {20, 40});
  const auto link = prefill.connector().Connect(decode.connector().Descriptor());
  REQUIRE(link.ok());
  const std::vector<std::byte> before = decode.Whole();
  const absl::Status status = PushAndWait(**link, {{0, 0, kWholePlane}, {0, kPlanes * kWholePlane, kWholePlane}});
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK(decode.Whole() == before);
}

TEST_CASE("StripedConnector refuses a peer with another plane size, naming both sizes") {
  const auto network = std::make_shared<InProcessNetwork>();
  Group prefill(network, {60}), decode(network, {20, 44}, 64);
  const absl::Status status = prefill.connector().Connect(decode.connector().Descriptor()).status();
  CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(status.message() == "K and V of a layer take 60 bytes of a block here, 64 at the peer");
}

TEST_CASE("StripedConnector refuses a cut, damaged or forged descriptor") {
  const auto network = std::make_shared<InProcessNetwork>();
  Group prefill(network, {30, 30}), decode(network, {20, 40});
  const std::string good = decode.connector().Descriptor();
  const auto refused = [&](const std::string& bytes) {
    return absl::IsInvalidArgument(prefill.connector().Connect(bytes).status());
  };
  for (size_t size = 0; size < good.size(); ++size) REQUIRE(refused(good.substr(0, size)));
  std::mt19937 random(3);
  for (int i = 0; i < 200; ++i) {
    std::string bad = good;
    bad[random() % bad.size()] ^= static_cast<char>(1 << random() % 8);
    REQUIRE(refused(bad));
  }
  CHECK(refused(good + "x"));
  // The digest is right, but no group has so many parts.
  for (const uint64_t count : {uint64_t{0}, uint64_t{65}, uint64_t{1} << 60}) {
    std::string forged = good.substr(0, 16);  // magic and plane
    PutField(forged, count);
    const absl::Status status = prefill.connector().Connect(Sealed(std::move(forged))).status();
    CHECK(absl::StrContains(status.message(), absl::StrCat(count, " parts")));
  }
  // The digest is right, but the parts do not make up a plane.
  Group less(network, {20, 20}), more(network, {40, 40});
  CHECK(refused(less.connector().Descriptor()));
  CHECK(refused(more.connector().Descriptor()));
}

}  // namespace baton
