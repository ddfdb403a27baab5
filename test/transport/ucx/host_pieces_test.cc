#include "transport/ucx/host_pieces.h"

#include <array>

#include "catch.h"

namespace baton {
namespace {

TEST_CASE("HostPieces reuses free pieces and keeps no larger ones") {
  std::array<std::byte, 64> slab;
  HostPieces pieces(Slab(slab), 16);
  HostMemory first = pieces.Take(16);
  const std::byte* const at = first.get();
  HostMemory second = pieces.Take(8);
  CHECK(second.get() != at);
  CHECK(pieces.free_pieces() == 0);
  first.reset();
  CHECK(pieces.free_pieces() == 1);
  CHECK(pieces.Take(2).get() == at);
  pieces.Take(17);
  CHECK(pieces.Take(1).get() != at);
  CHECK(pieces.free_pieces() == 1);
}

TEST_CASE("HostPieces lets a piece outlive all other pieces") {
  HostMemory last;
  {
    std::array<std::byte, 64> slab;
    HostPieces pieces(Slab(slab), 16);
    last = pieces.Take(16);
  }
  last[15] = std::byte{1};
  last.reset();
}

}  // namespace
}  // namespace baton
