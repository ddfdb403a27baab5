// Tests with real processes and real UCX: KV that a third party wrote, with and without
// --verify-kv.
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "await.h"
#include "base/strings.h"
#include "catch.h"
#include "certificates.h"
#include "kv/block_digest.h"
#include "kv_peer.h"
#include "programs.h"
#include "rpc/tls.h"
#include "scrape.h"
#include "transport/striped_connector.h"
#include "transport/ucx/transport.h"

namespace baton {
namespace {

// A UCX client with a slab of random KV, which can write to another process's slab.
struct UcxWriter {
  std::unique_ptr<UcxTransport> transport;
  std::span<std::byte> slab;
  std::optional<StripedConnector> connector;
  std::unique_ptr<Link> link;

  UcxWriter(const std::string& descriptor, const KvLayout& layout, unsigned seed) {
    transport = UcxTransport::Create({}).value();
    slab = transport->AllocateSlab(kKvBlocks * layout.BlockBytes()).value();
    connector.emplace(layout.PlaneBytes(),
                      std::vector<StripedConnector::Part>{{transport.get(), {0, layout.PlaneBytes()}}});
    FillWithKv(slab, seed);
    link = connector->Connect(descriptor).value();
  }
  void Write(const std::vector<BlockCopy>& copies) {
    std::promise<absl::Status> done;
    link->Push(copies, [&](const absl::Status& status) { done.set_value(status); });
    const absl::Status status = done.get_future().get();
    REQUIRE(status == absl::OkStatus());
  }
};

// A prefill worker whose blocks move over UCX, and a stranger.
class Peer {
 public:
  explicit Peer(const Worker& decode) : peer_(decode) {
    ours_.emplace(peer_.reply().transport_descriptor, peer_.info().layout, 1);
    // The stranger has the descriptor, as an observer of the network may. It has asked the worker
    // for nothing.
    stranger_.emplace(peer_.reply().transport_descriptor, peer_.info().layout, 2);
  }

  enum class Forged { kNot, kBeforeCommit, kBeforeStart };
  struct Result : KvPeer::Result {
    size_t missing = 0;
  };
  // Hands off the KV of the cache domain `salt`, which always has the same bytes, and decodes from
  // it.
  Result Run(const std::string& salt, Forged forged) {
    DecodeJob job = peer_.Job(salt);
    const Reserved reserved = peer_.Reserve(job);
    job.reservation = reserved.reservation;
    std::vector<BlockCopy> copies;
    Commit commit{reserved.reservation, static_cast<int32_t>(reserved.missing.size()), {}};
    std::vector<BlockId> sources;
    for (const MissingBlock& block : reserved.missing) {
      sources.push_back(BlockId(static_cast<uint32_t>(block.index)));
      copies.push_back(peer_.CopyOf(block));
    }
    ours_->Write(copies);
    if (peer_.reply().wants_digests) commit.digests = DigestsOf(ours_->slab, peer_.info().layout, sources).value();
    if (forged == Forged::kBeforeCommit) stranger_->Write({copies.back()});
    peer_.Commit(commit);
    if (forged == Forged::kBeforeStart) stranger_->Write({copies.front()});
    return {peer_.Start(job), reserved.missing.size()};
  }

 private:
  KvPeer peer_;
  std::optional<UcxWriter> ours_, stranger_;
};

// A worker's load report updates the count.
double AwaitFailedChecks(const Worker& decode, double expected) {
  double value = -1;
  Await(absl::StrCat(expected, " failed checks"), [&] {
    value = Scrape(decode.metrics, "baton_kv_checks_failed_total").value_or(-1);
    return value >= expected;
  });
  return value;
}

TEST_CASE("A verifying worker fails a request with forged KV and serves the next one") {
  Worker plain("decode", Small({"--listen", "127.0.0.1:0"}));
  std::vector<int32_t> right;
  {
    Peer peer(plain);
    const Peer::Result honest = peer.Run("a", Peer::Forged::kNot);
    REQUIRE(honest.tokens.size() == 12);
    right = honest.tokens;
    // The difference shows that the stranger can write to the blocks, which the rest of the test
    // relies on.
    CHECK(peer.Run("b", Peer::Forged::kBeforeStart).tokens != right);
    CHECK(AwaitFailedChecks(plain, 0) == 0);
  }

  Worker verifying("decode", Small({"--listen", "127.0.0.1:0", "--verify-kv"}));
  Peer peer(verifying);
  CHECK(peer.Run("a", Peer::Forged::kNot).tokens == right);
  for (const auto forged : {Peer::Forged::kBeforeCommit, Peer::Forged::kBeforeStart}) {
    const Peer::Result refused = peer.Run("b", forged);
    INFO(Message(refused.status));
    CHECK(refused.missing == kKvBlocks);  // no block of the previous hand-off was kept
    CHECK(refused.tokens.empty());
    CHECK(absl::IsDataLoss(refused.status));
    const int block = forged == Peer::Forged::kBeforeCommit ? kKvBlocks - 1 : 0;
    CHECK(
        absl::StrContains(refused.status.message(), absl::StrCat("KV block ", block, " of 3 differs from the block")));
  }
  CHECK(AwaitFailedChecks(verifying, 2) == 2);
  const Peer::Result again = peer.Run("b", Peer::Forged::kNot);
  CHECK(again.missing == kKvBlocks);
  CHECK(again.tokens == right);
  const Peer::Result held = peer.Run("b", Peer::Forged::kNot);
  CHECK(held.missing == 1);
  CHECK(held.tokens == right);
  verifying.AwaitBlocksFree();
}

TEST_CASE("A peer without the authority's certificate does not receive the descriptor") {
  Authority ours("ours"), others("others");
  const TlsFiles own = ours.Issue("decode");
  Worker decode("decode", Small({"--listen", "127.0.0.1:0", "--peer-cert", own.certificate, "--peer-key", own.key,
                                 "--peer-ca", own.authority}));
  const auto link = [&](const std::shared_ptr<grpc::Channel>& channel) {
    grpc::ClientContext context;
    kv::v1::LinkReply reply;
    const absl::Status status = FromGrpc(kv::v1::KvTransfer::NewStub(channel)->Link(&context, {}, &reply));
    CHECK(reply.transport_descriptor().empty());
    return status.code();
  };
  CHECK(link(DialTcp(decode.address)) == absl::StatusCode::kUnavailable);
  CHECK(link(DialBy(others.Issue("prefill"))(decode.address)) == absl::StatusCode::kUnavailable);
  // The worker reads this request.
  CHECK(link(DialBy(ours.Issue("prefill"))(decode.address)) == absl::StatusCode::kFailedPrecondition);
}

TEST_CASE("Option --verify-kv changes no bit of tokens and logprobs") {
  const auto look = [](const Worker& decode) { CHECK(AwaitFailedChecks(decode, 0) == 0); };
  const std::vector<Turn> plain = RunTurns({}, {}, look);
  const std::vector<Turn> verified = RunTurns({}, {"--verify-kv"}, look);
  for (size_t turn = 0; turn < plain.size(); ++turn) {
    CHECK(plain[turn].ids.size() == 16);
    CHECK(verified[turn].ids == plain[turn].ids);
    CHECK_FALSE(plain[turn].logprobs.empty());
    CHECK(verified[turn].logprobs == plain[turn].logprobs);
  }
}

}  // namespace
}  // namespace baton
