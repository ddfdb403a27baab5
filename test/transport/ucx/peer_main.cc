// A process with a UCX slab, for tests. It prints its descriptor in hex. Then it answers lines from
// stdin until stdin ends:
//   sha OFFSET BYTES   the SHA-256 of that range of the slab, in hex
//   write DESCRIPTOR   writes to the slab of the peer with this descriptor in hex, until a write
//                      fails. Prints "writes" after the first writes, and then the failure. The
//                      tool tools/ucx_chaos uses it.
#include <openssl/sha.h>

#include <atomic>
#include <cstdlib>
#include <iostream>
#include <semaphore>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "base/check.h"
#include "transport/ucx/transport.h"

namespace baton {
namespace {

std::string Sha(std::span<const std::byte> bytes) {
  std::string sha(SHA256_DIGEST_LENGTH, '\0');
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
         reinterpret_cast<unsigned char*>(sha.data()));
  return absl::BytesToHexString(sha);
}

// Keeps several pushes in flight, as a prefill worker does.
absl::Status WriteUntilItFails(UcxTransport& transport, const std::string& descriptor, int64_t slab_bytes) {
  auto link = transport.Connect(descriptor);
  if (!link.ok()) return link.status();
  constexpr int kInFlight = 8;
  std::counting_semaphore<kInFlight> places(kInFlight);
  std::atomic<bool> failed = false;
  absl::Status failure;  // set before `failed`, by the connection's thread
  bool printed = false;
  for (int64_t pushes = 0; !failed; ++pushes) {
    places.acquire();
    if (!printed && pushes >= kInFlight) {
      std::cout << "writes" << std::endl;
      printed = true;
    }
    (*link)->Push(std::vector<BlockCopy>{{0, 0, slab_bytes}}, [&](absl::Status status) {
      if (!status.ok() && !failed) {
        failure = std::move(status);
        failed = true;
      }
      places.release();
    });
  }
  link->reset();
  return failure;
}

void Serve(int64_t slab_bytes) {
  auto transport = UcxTransport::Create({});
  BATON_CHECK(transport.ok(), transport.status().ToString());
  const auto slab = (*transport)->AllocateSlab(slab_bytes);
  BATON_CHECK(slab.ok(), slab.status().ToString());
  std::cout << absl::BytesToHexString((*transport)->Descriptor()) << std::endl;
  std::string command;
  while (std::cin >> command) {
    if (command == "sha") {
      size_t offset = 0, bytes = 0;
      std::cin >> offset >> bytes;
      std::cout << Sha(slab->subspan(offset, bytes)) << std::endl;
    } else {
      std::string descriptor;
      std::cin >> descriptor;
      std::cout << WriteUntilItFails(**transport, absl::HexStringToBytes(descriptor), slab_bytes).message()
                << std::endl;
    }
  }
}

}  // namespace
}  // namespace baton

int main(int, char** argv) {
  baton::Serve(std::atoll(argv[1]));
  return 0;
}
