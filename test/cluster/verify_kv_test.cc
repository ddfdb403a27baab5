// Real processes and real UCX: KV that somebody else wrote, with and without --verify-kv.
#include <chrono>
#include <cstring>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "base/strings.h"
#include "catch.h"
#include "kv/block_digest.h"
#include "kv_transfer.grpc.pb.h"
#include "programs.h"
#include "scrape.h"
#include "server/certificates.h"
#include "server/kv_convert.h"
#include "server/tls.h"
#include "server/worker_convert.h"
#include "transport/striped_connector.h"
#include "transport/ucx_transport.h"
#include "worker.grpc.pb.h"

namespace baton {
namespace {

constexpr int32_t kKvTokens = 40;
constexpr int32_t kBlocks = 3;

// Somebody's own slab, full of numbers such as KV may have, and his way into another's.
struct UcxWriter {
  std::unique_ptr<UcxTransport> transport;
  std::span<std::byte> slab;
  std::optional<StripedConnector> connector;
  std::unique_ptr<Link> link;

  UcxWriter(const std::string& descriptor, const KvLayout& layout, unsigned seed) {
    transport = UcxTransport::Create({}).value();
    slab = transport->AllocateSlab(kBlocks * layout.BlockBytes()).value();
    connector.emplace(layout.PlaneBytes(),
                      std::vector<StripedConnector::Part>{{transport.get(), {0, layout.PlaneBytes()}}});
    std::mt19937 random(seed);
    for (size_t i = 0; i + 2 <= slab.size(); i += 2) {
      const auto bf16 = static_cast<uint16_t>(0x3e00 | (random() & 0x81ff));  // 0.1 to 0.5, of both signs
      std::memcpy(slab.data() + i, &bf16, sizeof bf16);
    }
    link = connector->Connect(descriptor).value();
  }
  void Write(const std::vector<BlockCopy>& copies) {
    std::promise<absl::Status> done;
    link->Push(copies, [&](const absl::Status& status) { done.set_value(status); });
    const absl::Status status = done.get_future().get();
    REQUIRE(status == absl::OkStatus());
  }
};

// What a decode worker sees of its prefill worker and of its router.
class Peer {
 public:
  explicit Peer(const Worker& decode)
      : channel_(DialTcp(decode.address)),
        kv_(kv::v1::KvTransfer::NewStub(channel_)),
        worker_(worker::v1::DecodeWorker::NewStub(channel_)) {
    context_.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    stream_ = worker_->Attach(&context_);
    worker::v1::DecodeEvent hello;
    REQUIRE(stream_->Read(&hello));
    info_ = FromProto(hello.info(), WorkerRole::kDecode).value();
    const LinkRequest link{.prefill_address = "p",
                           .prefill_incarnation = Incarnation(1),
                           .module_digest = info_.module_digest,
                           .layout = info_.layout,
                           .numerics_id = info_.numerics_id,
                           .can_digest = true};
    reply_ = FromProto(Ask<kv::v1::LinkReply>(&kv::v1::KvTransfer::Stub::Link, ToProto(link))).value();
    ours_.emplace(reply_.transport_descriptor, info_.layout, 1);
    // Knows where to write, as whoever watches the network may. Asked the worker for nothing.
    stranger_.emplace(reply_.transport_descriptor, info_.layout, 2);
  }
  ~Peer() {
    context_.TryCancel();
    stream_->Finish();
  }

  enum class Forged { kNot, kBeforeCommit, kBeforeStart };
  struct Result {
    size_t missing = 0;
    std::vector<int32_t> tokens;
    absl::Status status;
  };
  // Hands `salt`'s KV off, always the same bytes, and decodes from it.
  Result Run(const std::string& salt, Forged forged) {
    DecodeJob job;
    job.request_id = absl::StrCat("r", ++requests_);
    for (int i = 0; i <= kKvTokens; ++i) job.tokens.push_back(2 + i * 7 % 250);
    job.cache_salt = salt;
    job.decode_incarnation = info_.incarnation;
    job.blocks = kBlocks;
    job.sampling.temperature = 0;
    job.sampling.max_tokens = 12;
    job.sampling.ignore_eos = true;
    const Reserved reserved = Reserve(job);
    job.reservation = reserved.reservation;
    std::vector<BlockCopy> copies;
    Commit commit{reserved.reservation, static_cast<int32_t>(reserved.missing.size()), {}};
    std::vector<BlockId> sources;
    for (const MissingBlock& block : reserved.missing) {
      sources.push_back(BlockId(static_cast<uint32_t>(block.index)));
      copies.push_back(CopyOf(block));
    }
    ours_->Write(copies);
    if (reply_.wants_digests) commit.digests = DigestsOf(ours_->slab, info_.layout, sources).value();
    if (forged == Forged::kBeforeCommit) stranger_->Write({copies.back()});
    Ask<kv::v1::CommitReply>(&kv::v1::KvTransfer::Stub::Commit, ToProto(commit));
    if (forged == Forged::kBeforeStart) stranger_->Write({copies.front()});
    return Start(job, reserved.missing.size());
  }

 private:
  template <typename Reply, typename Request>
  Reply Ask(grpc::Status (kv::v1::KvTransfer::Stub::*method)(grpc::ClientContext*, const Request&, Reply*),
            const Request& request) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    Reply reply;
    const grpc::Status status = (kv_.get()->*method)(&context, request, &reply);
    INFO(status.error_message());
    REQUIRE(status.ok());
    return reply;
  }
  Reserved Reserve(const DecodeJob& job) {
    const std::span kv_tokens = std::span(job.tokens).first(kKvTokens);
    const ReserveRequest reserve{.request_id = job.request_id,
                                 .writer = Incarnation(1),
                                 .keys = BlockKeys(RootKey(info_.module_digest, job.cache_salt), kv_tokens),
                                 .kv_tokens = kKvTokens,
                                 .max_new_tokens = job.sampling.max_tokens};
    const auto reply = FromProto(Ask<kv::v1::ReserveReply>(&kv::v1::KvTransfer::Stub::Reserve, ToProto(reserve)));
    return std::get<Reserved>(reply.value());
  }
  BlockCopy CopyOf(const MissingBlock& block) const {
    const int64_t bytes = info_.layout.BlockBytes();
    return {.source_offset = block.index * bytes, .target_offset = block.target.value() * bytes, .bytes = bytes};
  }
  Result Start(const DecodeJob& job, size_t missing) {
    worker::v1::DecodeCommand command;
    *command.mutable_decode() = ToProto(job);
    REQUIRE(stream_->Write(command));
    Result result{missing, {}, absl::OkStatus()};
    worker::v1::DecodeEvent event;
    while (stream_->Read(&event)) {
      if (event.has_failed()) {
        result.status = FromProto(event.failed()).status;
        return result;
      }
      for (const auto& proto : event.updates().updates()) {
        const TokenUpdate update = FromProto(proto);
        result.tokens.insert(result.tokens.end(), update.tokens.begin(), update.tokens.end());
        if (update.finish) return result;
      }
    }
    FAIL("the stream ended");
    return result;
  }

  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<kv::v1::KvTransfer::Stub> kv_;
  std::unique_ptr<worker::v1::DecodeWorker::Stub> worker_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<worker::v1::DecodeCommand, worker::v1::DecodeEvent>> stream_;
  WorkerInfo info_;
  LinkReply reply_;
  std::optional<UcxWriter> ours_, stranger_;
  int requests_ = 0;
};

// Counts are raised with a worker's report of its load.
double AwaitFailedChecks(const Worker& decode, double expected) {
  double value = -1;
  for (int i = 0; i < 500 && value < expected; ++i) {
    if (i > 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    value = Scrape(decode.metrics, "baton_kv_checks_failed_total").value_or(-1);
  }
  return value;
}

TEST_CASE(
    "a forged KV write gives wrong tokens unseen; with --verify-kv it gives none, and the next request is right") {
  Worker plain("decode", Small({"--listen", "127.0.0.1:0"}));
  std::vector<int32_t> right;
  {
    Peer peer(plain);
    const Peer::Result honest = peer.Run("a", Peer::Forged::kNot);
    REQUIRE(honest.tokens.size() == 12);
    right = honest.tokens;
    // That this differs shows that the stranger reaches the blocks, which the rest of the test is about.
    CHECK(peer.Run("b", Peer::Forged::kBeforeStart).tokens != right);
    CHECK(AwaitFailedChecks(plain, 0) == 0);
  }

  Worker verifying("decode", Small({"--listen", "127.0.0.1:0", "--verify-kv"}));
  Peer peer(verifying);
  CHECK(peer.Run("a", Peer::Forged::kNot).tokens == right);
  for (const auto forged : {Peer::Forged::kBeforeCommit, Peer::Forged::kBeforeStart}) {
    const Peer::Result refused = peer.Run("b", forged);
    INFO(Message(refused.status));
    CHECK(refused.missing == kBlocks);  // nothing of the one before was kept
    CHECK(refused.tokens.empty());
    CHECK(absl::IsDataLoss(refused.status));
    const int block = forged == Peer::Forged::kBeforeCommit ? kBlocks - 1 : 0;
    CHECK(absl::StrContains(refused.status.message(), absl::StrCat("KV block ", block, " of 3 is not what")));
  }
  CHECK(AwaitFailedChecks(verifying, 2) == 2);
  const Peer::Result again = peer.Run("b", Peer::Forged::kNot);
  CHECK(again.missing == kBlocks);
  CHECK(again.tokens == right);
  const Peer::Result held = peer.Run("b", Peer::Forged::kNot);
  CHECK(held.missing == 1);
  CHECK(held.tokens == right);
  CHECK(verifying.BlocksComeBack());
}

TEST_CASE("who has no certificate of the authority is not told where blocks lie") {
  Authority ours("ours"), others("others");
  const TlsFiles own = ours.Issue("decode");
  Worker decode("decode", Small({"--listen", "127.0.0.1:0", "--peer-cert", own.certificate, "--peer-key", own.key,
                                 "--peer-ca", own.authority}));
  const auto link = [&](const std::shared_ptr<grpc::Channel>& channel) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
    kv::v1::LinkReply reply;
    const absl::Status status = FromGrpc(kv::v1::KvTransfer::NewStub(channel)->Link(&context, {}, &reply));
    CHECK(reply.transport_descriptor().empty());
    return status.code();
  };
  CHECK(link(DialTcp(decode.address)) == absl::StatusCode::kUnavailable);
  CHECK(link(DialBy(others.Issue("prefill"))(decode.address)) == absl::StatusCode::kUnavailable);
  CHECK(link(DialBy(ours.Issue("prefill"))(decode.address)) == absl::StatusCode::kInvalidArgument);  // is read
}

struct Turn {
  std::vector<int32_t> ids;
  std::vector<float> logprobs;
};

// Two turns of a session: whole blocks, a partial one, and blocks that are held from the first turn.
std::vector<Turn> RunTurns(const std::vector<std::string>& decode_flags) {
  Worker prefill("prefill");
  Worker decode("decode", Small(decode_flags));
  Process router("baton-router", {"--listen", "127.0.0.1:0", "--http", "off", "--model", kModel, "--prefill-workers",
                                  prefill.address, "--decode-workers", decode.address});
  const auto stub = v1::Inference::NewStub(DialTcp(router.Await("listening on ")));
  std::vector<Turn> turns;
  for (const int tokens : {90, 150}) {
    v1::GenerateRequest request = Request(16, tokens);
    request.set_session_id("one");
    request.mutable_sampling()->set_logprobs(2);
    Call call(*stub, request);
    const absl::Status status = call.Finish();
    INFO(Message(status));
    REQUIRE(status.ok());
    turns.push_back({call.ids, call.logprobs});
  }
  CHECK(AwaitFailedChecks(decode, 0) == 0);
  CHECK(decode.BlocksComeBack());
  return turns;
}

TEST_CASE("with --verify-kv tokens and logprobs are, bit for bit, those without it") {
  const std::vector<Turn> plain = RunTurns({"--listen", "127.0.0.1:0"});
  const std::vector<Turn> verified = RunTurns({"--listen", "127.0.0.1:0", "--verify-kv"});
  for (size_t turn = 0; turn < plain.size(); ++turn) {
    CHECK(plain[turn].ids.size() == 16);
    CHECK(verified[turn].ids == plain[turn].ids);
    CHECK_FALSE(plain[turn].logprobs.empty());
    CHECK(verified[turn].logprobs == plain[turn].logprobs);
  }
}

}  // namespace
}  // namespace baton
