// Tests with real processes: a third party tries to write KV to a decode worker that guards its
// blocks.
#include <fstream>
#include <future>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "await.h"
#include "base/strings.h"
#include "catch.h"
#include "certificates.h"
#include "kv_peer.h"
#include "listening.h"
#include "programs.h"
#include "rpc/tls.h"
#include "scrape.h"
#include "transport/guarded/connector.h"
#include "transport/in_process/transport.h"
#include "transport/striped_connector.h"
#include "transport/ucx/transport.h"

namespace baton {
namespace {

std::vector<std::string> Guarding() { return Small({"--listen", "127.0.0.1:0", "--guard-kv"}); }

// Number of writes and commits that the worker has refused. The function makes one more refused
// write, because the count of that write includes all earlier ones.
double Refused(const Worker& decode, double expected, const ChannelFactory& dial = DialTcp) {
  grpc::ClientContext context;
  kv::v1::WriteReply reply;
  const auto stub = kv::v1::KvTransfer::NewStub(dial(decode.address));
  CHECK(stub->Write(&context, kv::v1::WriteRequest(), &reply).error_code() != grpc::StatusCode::OK);
  ++expected;
  double value = -1;
  Await(absl::StrCat(expected, " refused writes"), [&] {
    value = Scrape(decode.metrics, "baton_kv_writes_refused_total").value_or(-1);
    return value >= expected;
  });
  return value - 1;
}

std::string ReadAll(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// A prefill worker's side with the right KV, which can also forge writes.
class GuardedPeer {
 public:
  explicit GuardedPeer(const Worker& decode)
      : peer(decode), slab_(static_cast<size_t>(kKvBlocks * peer.info().layout.BlockBytes())) {
    FillWithKv(slab_, 1);
    GuardedConnector connector(others_, {.source = Slab(slab_), .layout = peer.info().layout, .reach = DialTcp});
    link_ = connector.Connect(peer.reply().transport_descriptor).value();
  }

  void Push(const Reserved& reserved) {
    std::vector<BlockCopy> copies;
    for (const MissingBlock& block : reserved.missing) copies.push_back(peer.CopyOf(block));
    std::promise<absl::Status> done;
    link_->PushUnder(reserved.write_key.value(), copies, [&](const absl::Status& s) { done.set_value(s); });
    const absl::Status status = done.get_future().get();
    REQUIRE(status == absl::OkStatus());
  }
  // Writes other bytes, in the form of a real message.
  absl::StatusCode Forge(const std::optional<WriteKey>& write_key, BlockId block, size_t key_bytes = 16) {
    const auto bytes = static_cast<size_t>(peer.info().layout.BlockBytes());
    kv::v1::WriteRequest request;
    if (write_key.has_value()) {
      *request.mutable_right() = ToProto(*write_key);
      request.mutable_right()->mutable_key()->resize(key_bytes);
    }
    request.mutable_data()->resize(bytes);
    FillWithKv(std::as_writable_bytes(std::span(*request.mutable_data())), 2);
    request.add_target(static_cast<int64_t>(block.value() * bytes));
    request.add_bytes(static_cast<int64_t>(bytes));
    kv::v1::WriteReply reply;
    return peer.Try(&kv::v1::KvTransfer::Stub::Write, request, reply).code();
  }

  KvPeer peer;

 private:
  std::vector<std::byte> slab_;
  InProcessTransport others_{std::make_shared<InProcessNetwork>()};
  std::unique_ptr<Link> link_;
};

TEST_CASE("A guarding worker refuses a KV write without the key, changing no token") {
  constexpr auto kRefused = absl::StatusCode::kPermissionDenied;
  Worker decode("decode", Guarding());
  GuardedPeer peer(decode);
  const auto run = [&](const std::string& salt, bool forged) {
    DecodeJob job = peer.peer.Job(salt);
    DecodeJob other_job = peer.peer.Job(salt + " other");
    const Reserved ours = peer.peer.Reserve(job);
    const Reserved other = peer.peer.Reserve(other_job);
    REQUIRE(ours.missing.size() == kKvBlocks);
    job.reservation = ours.reservation;
    peer.Push(ours);
    const auto forge = [&](const std::optional<WriteKey>& write_key) {
      if (!forged) return;
      for (const MissingBlock& block : ours.missing) CHECK(peer.Forge(write_key, block.target) == kRefused);
    };
    WriteKey wrong = *ours.write_key;
    wrong.bits.back() ^= 1;
    forge(std::nullopt);
    forge(wrong);
    forge(other.write_key);
    forge(WriteKey{ours.write_key->id, other.write_key->bits});
    if (forged) {
      // The block is beyond the slab.
      CHECK(peer.Forge(ours.write_key, BlockId(1 << 30)) != absl::StatusCode::kOk);
      kv::v1::CommitReply reply;
      const Commit commit{ours.reservation, kKvBlocks, {}, other.write_key};
      CHECK(absl::IsFailedPrecondition(peer.peer.Try(&kv::v1::KvTransfer::Stub::Commit, ToProto(commit), reply)));
      CHECK(peer.Forge(ours.write_key, ours.missing[0].target, 15) == absl::StatusCode::kInvalidArgument);
    }
    peer.peer.Commit({ours.reservation, kKvBlocks, {}, ours.write_key});
    forge(ours.write_key);  // committed, so other requests may read its blocks
    peer.peer.Release(other);
    forge(other.write_key);
    // The reservation is released, so its blocks may belong to another request.
    if (forged) CHECK(peer.Forge(other.write_key, other.missing[0].target) == kRefused);
    const KvPeer::Result result = peer.peer.Start(job);
    INFO(Message(result.status));
    CHECK(result.tokens.size() == 12);
    return result.tokens;
  };
  const std::vector<int32_t> right = run("a", false);
  CHECK(run("b", true) == right);
  // Writes under keys that have ended do not count as forged.
  const int forged = 4 * kKvBlocks + 3;
  CHECK(Refused(decode, forged) == forged);
  CHECK(absl::StrContains(decode.process.Output(), "refused a KV write"));
  CHECK(absl::StrContains(decode.process.Output(), "--guard-kv without --peer-ca"));
  // Shows that other bytes give other tokens, with a forger that has the key in time.
  DecodeJob job = peer.peer.Job("c");
  const Reserved ours = peer.peer.Reserve(job);
  peer.Push(ours);
  CHECK(peer.Forge(ours.write_key, ours.missing[0].target) == absl::StatusCode::kOk);
  peer.peer.Commit({ours.reservation, kKvBlocks, {}, ours.write_key});
  job.reservation = ours.reservation;
  CHECK(peer.peer.Start(job).tokens != right);
  decode.AwaitBlocksFree();
}

TEST_CASE("A guarding worker shares no memory and offers UCX no target") {
  const auto maps = [](const Worker& worker) { return ReadAll(StrCat("/proc/", worker.process.pid(), "/maps")); };
  Worker plain("decode", Small({"--listen", "127.0.0.1:0"}));
  CHECK(absl::StrContains(maps(plain), "/dev/shm/"));  // of its slab
  CHECK(ListeningSockets(plain.process.pid()).size() > 2);
  Worker decode("decode", Guarding());
  CHECK_FALSE(absl::StrContains(maps(decode), " rw-s "));
  CHECK_FALSE(absl::StrContains(maps(decode), "/dev/shm/"));
  Worker prefill("prefill", Guarding());
  CHECK_FALSE(absl::StrContains(maps(prefill), " rw-s "));
  for (const Worker* worker : {&decode, &prefill}) {
    CHECK(ListeningSockets(worker->process.pid()).size() == 2);  // of gRPC and of its metrics
  }

  // A forger that has the worker's transport descriptor cannot connect with it over UCX.
  const KvPeer peer(decode);
  auto transport = UcxTransport::Create({}).value();
  REQUIRE(transport->AllocateSlab(1 << 20).ok());
  const int64_t plane = peer.info().layout.PlaneBytes();
  StripedConnector striped(plane, {{transport.get(), {0, plane}}});
  CHECK(absl::IsInvalidArgument(striped.Connect(peer.reply().transport_descriptor).status()));
  CHECK(absl::IsInvalidArgument(transport->Connect(peer.reply().transport_descriptor).status()));
}

TEST_CASE("Option --guard-kv changes no bit of tokens and logprobs") {
  Authority authority("peers");
  const TlsFiles own = authority.Issue("worker");
  const std::vector<std::string> tls = {"--peer-cert", own.certificate, "--peer-key",
                                        own.key,       "--peer-ca",     own.authority};
  const auto nothing = [](const Worker&) {};
  const auto look = [](const Worker& decode) { CHECK(Refused(decode, 0) == 0); };
  std::vector<std::string> guard = {"--guard-kv"};
  for (const std::vector<std::string>& ranks : std::vector<std::vector<std::string>>{{}, {"--tensor-parallel", "2"}}) {
    const std::vector<Turn> plain = RunTurns(ranks, {}, nothing);
    std::vector<std::string> ranks_guarded = ranks;
    ranks_guarded.push_back("--guard-kv");
    std::vector<std::vector<Turn>> guarded = {RunTurns(ranks, guard, look), RunTurns(ranks_guarded, guard, look)};
    if (ranks.empty()) {
      guard.insert(guard.end(), tls.begin(), tls.end());
      const auto look_by_tls = [&](const Worker& decode) { CHECK(Refused(decode, 0, DialBy(own)) == 0); };
      guarded.push_back(RunTurns(guard, guard, look_by_tls, tls));
      guard = {"--guard-kv"};
    }
    for (const std::vector<Turn>& turns : guarded) {
      for (size_t turn = 0; turn < plain.size(); ++turn) {
        CHECK(plain[turn].ids.size() == 16);
        CHECK(turns[turn].ids == plain[turn].ids);
        CHECK_FALSE(plain[turn].logprobs.empty());
        CHECK(turns[turn].logprobs == plain[turn].logprobs);
      }
    }
  }
}

TEST_CASE("A guarding worker refuses peers that cannot or do not show keys") {
  Worker decode("decode", Guarding());
  KvPeer peer(decode);
  LinkRequest old = peer.Link();
  old.prefill_incarnation = Incarnation(2);
  old.supports_write_keys = false;
  kv::v1::LinkReply reply;
  const absl::Status refused = peer.Try(&kv::v1::KvTransfer::Stub::Link, ToProto(old), reply);
  CHECK(absl::IsFailedPrecondition(refused));
  CHECK(absl::StrContains(refused.message(), "--guard-kv"));
  CHECK(reply.transport_descriptor().empty());

  Worker prefill("prefill", Guarding());
  Worker open("decode", Small({"--listen", "127.0.0.1:0"}));
  Process router("baton-router", {"--listen", "127.0.0.1:0", "--http", "off", "--model", kModel, "--prefill-workers",
                                  prefill.address, "--decode-workers", open.address});
  const auto stub = v1::Inference::NewStub(DialTcp(router.Await("listening on ")));
  Call call(*stub, MakeRequest(4));
  CHECK_FALSE(call.Finish().ok());
  CHECK(absl::StrContains(prefill.process.Output(), "the decode worker grants none: start the "));

  KvPeer other(open);
  kv::v1::WriteReply written;
  CHECK(absl::IsFailedPrecondition(other.Try(&kv::v1::KvTransfer::Stub::Write, kv::v1::WriteRequest(), written)));
}

}  // namespace
}  // namespace baton
