#include "transport/ucx/endpoint.h"

#include <algorithm>
#include <cstdlib>
#include <future>
#include <random>
#include <vector>

#include "catch.h"
#include "transport/ucx/peer.h"

namespace baton {
namespace {

constexpr int64_t kPathBytes = 3'000'001;

TEST_CASE("UcxEndpoint writes all bytes and nothing else on each path over TCP") {
  setenv("UCX_TLS", "tcp", 1);
  UcxPeer peer(4 * kPathBytes);
  auto progress = UcxProgress::Start({});
  REQUIRE(progress.ok());
  UcxInbox inbox((*progress)->worker());
  REQUIRE((*progress)->Call([&] { return inbox.Listen(); }).ok());
  std::vector<std::byte> source(kPathBytes);
  std::mt19937 random(3);
  for (std::byte& byte : source) byte = static_cast<std::byte>(random());
  const UcxDescriptor descriptor = *DecodeUcxDescriptor(peer.descriptor());
  auto endpoint =
      (*progress)->Call([&] { return UcxEndpoint::Open(**progress, inbox, std::span(source), true, descriptor); });
  REQUIRE(endpoint.ok());

  int64_t target = 0;
  for (UcxPath path : {UcxPath::kPut, UcxPath::kRendezvous, UcxPath::kEager}) {
    CAPTURE(NameOf(path));
    std::promise<absl::Status> result;
    (*progress)->Post([&] {
      (*endpoint)->Write(path, {{1, target, 1'000'000}, {1'000'001, target + 1'000'000, 1}, {5, target + 2'000'000, 7}},
                         [&](absl::Status status) { result.set_value(std::move(status)); });
    });
    CHECK(result.get_future().get().ok());
    std::vector<std::byte> expected(2'000'100);
    std::copy_n(source.begin() + 1, 1'000'001, expected.begin());
    std::copy_n(source.begin() + 5, 7, expected.begin() + 2'000'000);
    CHECK(peer.Sha(target, 2'000'100) == ShaOf(expected));
    target += kPathBytes;
  }

  // UCX itself checks only put. The peer checks messages, and the link survives.
  for (UcxPath path : {UcxPath::kRendezvous, UcxPath::kEager}) {
    std::promise<absl::Status> result;
    (*progress)->Post([&] {
      (*endpoint)->Write(path, {{0, int64_t{1} << 40, 100'000}},
                         [&](absl::Status status) { result.set_value(std::move(status)); });
    });
    CHECK(result.get_future().get().code() == absl::StatusCode::kInternal);
  }

  std::promise<void> closed;
  (*progress)->Post([&] { (*endpoint)->Close([&] { closed.set_value(); }); });
  closed.get_future().get();
  (*progress)->Call([&] {
    endpoint->reset();
    return true;
  });
  unsetenv("UCX_TLS");
}

}  // namespace
}  // namespace baton
