#include "transport/in_process/transport.h"

#include <cstring>
#include <random>
#include <vector>

#include "catch.h"
#include "transport/block_pushes.h"

namespace baton {
namespace {

TEST_CASE("InProcessTransport writes blocks bit for bit and nowhere else") {
  const auto network = std::make_shared<InProcessNetwork>();
  InProcessTransport prefill(network);
  InProcessTransport decode(network);
  const auto source = prefill.AllocateSlab(4096);
  const auto target = decode.AllocateSlab(8192);
  REQUIRE(source.ok());
  REQUIRE(target.ok());
  std::mt19937 random(1);
  for (std::byte& byte : *source) byte = static_cast<std::byte>(random());
  std::vector<std::byte> expected(8192);
  const std::vector<BlockCopy> copies = {{0, 4096, 512}, {512, 4608, 512}, {3072, 0, 1024}};
  for (const BlockCopy& copy : copies) {
    std::memcpy(expected.data() + copy.target_offset, source->data() + copy.source_offset, copy.bytes);
  }

  const auto link = prefill.Connect(decode.Descriptor());
  REQUIRE(link.ok());
  REQUIRE(PushAndWait(**link, copies).ok());
  CHECK(std::memcmp(expected.data(), target->data(), expected.size()) == 0);
}

TEST_CASE("InProcessTransport returns UNAVAILABLE when the peer is gone") {
  const auto network = std::make_shared<InProcessNetwork>();
  InProcessTransport prefill(network);
  REQUIRE(prefill.AllocateSlab(4096).ok());
  auto decode = std::make_unique<InProcessTransport>(network);
  REQUIRE(decode->AllocateSlab(4096).ok());
  const std::string descriptor = decode->Descriptor();
  const auto link = prefill.Connect(descriptor);
  REQUIRE(link.ok());

  decode.reset();
  CHECK(PushAndWait(**link, {{0, 0, 512}}).code() == absl::StatusCode::kUnavailable);
  CHECK(prefill.Connect(descriptor).status().code() == absl::StatusCode::kUnavailable);
  CHECK(prefill.Connect("garbage").status().code() == absl::StatusCode::kUnavailable);
}

TEST_CASE("InProcessTransport refuses a copy beyond the peer's slab and moves nothing") {
  const auto network = std::make_shared<InProcessNetwork>();
  InProcessTransport prefill(network);
  InProcessTransport decode(network);
  const auto source = prefill.AllocateSlab(4096);
  const auto target = decode.AllocateSlab(1024);
  std::memset(source->data(), 1, source->size());
  const auto link = prefill.Connect(decode.Descriptor());
  CHECK(PushAndWait(**link, {{0, 0, 512}, {0, 600, 512}}).code() == absl::StatusCode::kInvalidArgument);
  CHECK((*target)[0] == std::byte{0});
}

TEST_CASE("InProcessTransport finishes all pushes when a connection is destroyed") {
  const auto network = std::make_shared<InProcessNetwork>();
  InProcessTransport prefill(network);
  InProcessTransport decode(network);
  REQUIRE(prefill.AllocateSlab(4096).ok());
  REQUIRE(decode.AllocateSlab(4096).ok());
  auto link = prefill.Connect(decode.Descriptor());
  // The link's thread writes it. The test reads it after that thread has ended.
  int finished = 0;
  for (int i = 0; i < 100; ++i) {
    (*link)->Push(std::vector<BlockCopy>{{0, 0, 4096}}, [&](absl::Status status) { finished += status.ok(); });
  }
  link->reset();
  CHECK(finished == 100);
}

TEST_CASE("InProcessTransport returns an error when a slab cannot be mapped") {
  InProcessTransport transport(std::make_shared<InProcessNetwork>());
  CHECK(transport.AllocateSlab(0).status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(transport.AllocateSlab(int64_t{1} << 62).status().code() == absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace baton
