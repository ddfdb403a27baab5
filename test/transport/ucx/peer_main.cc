// A process with a UCX slab, for tests. It prints its descriptor in hex. Then it answers lines from
// stdin until stdin ends:
//   sha OFFSET BYTES   the SHA-256 of that range of the slab, in hex
#include <openssl/sha.h>

#include <cstdlib>
#include <iostream>
#include <string>

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

void Serve(int64_t slab_bytes) {
  auto transport = UcxTransport::Create({});
  BATON_CHECK(transport.ok(), transport.status().ToString());
  const auto slab = (*transport)->AllocateSlab(slab_bytes);
  BATON_CHECK(slab.ok(), slab.status().ToString());
  std::cout << absl::BytesToHexString((*transport)->Descriptor()) << std::endl;
  std::string command;
  size_t offset = 0;
  size_t bytes = 0;
  while (std::cin >> command >> offset >> bytes) std::cout << Sha(slab->subspan(offset, bytes)) << std::endl;
}

}  // namespace
}  // namespace baton

int main(int, char** argv) {
  baton::Serve(std::atoll(argv[1]));
  return 0;
}
