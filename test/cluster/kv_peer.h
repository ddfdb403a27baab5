// A test's stand-in for a decode worker's prefill worker and router.
#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "catch.h"
#include "engine/handoff/messages.h"
#include "kv_transfer.grpc.pb.h"
#include "programs.h"
#include "rpc/kv_convert.h"
#include "rpc/tls.h"
#include "rpc/worker_convert.h"
#include "worker.grpc.pb.h"

namespace baton {

inline constexpr int32_t kKvTokens = 40;
inline constexpr int32_t kKvBlocks = 3;

// Fills a slab with numbers that KV may have.
inline void FillWithKv(std::span<std::byte> slab, unsigned seed) {
  std::mt19937 random(seed);
  for (size_t i = 0; i + 2 <= slab.size(); i += 2) {
    // 0.1 to 0.5, of both signs.
    const auto bf16 = static_cast<uint16_t>(0x3e00 | (random() & 0x81ff));
    std::memcpy(slab.data() + i, &bf16, sizeof bf16);
  }
}

// The prefill worker and the router of one decode worker.
class KvPeer {
 public:
  explicit KvPeer(const Worker& decode, const ChannelFactory& dial = DialTcp)
      : channel_(dial(decode.address)),
        kv_(kv::v1::KvTransfer::NewStub(channel_)),
        worker_(worker::v1::DecodeWorker::NewStub(channel_)) {
    stream_ = worker_->Attach(&context_);
    worker::v1::DecodeEvent hello;
    REQUIRE(stream_->Read(&hello));
    info_ = FromProto(hello.info(), WorkerRole::kDecode).value();
    reply_ = FromProto(Ask<kv::v1::LinkReply>(&kv::v1::KvTransfer::Stub::Link, ToProto(Link()))).value();
  }
  ~KvPeer() {
    context_.TryCancel();
    stream_->Finish();
  }
  KvPeer(const KvPeer&) = delete;
  KvPeer& operator=(const KvPeer&) = delete;

  const WorkerInfo& info() const { return info_; }
  const LinkReply& reply() const { return reply_; }
  LinkRequest Link() const {
    return {.prefill_address = "p",
            .prefill_incarnation = Incarnation(1),
            .module_digest = info_.module_digest,
            .layout = info_.layout,
            .numerics_id = info_.numerics_id,
            .can_digest = true,
            .supports_write_keys = true};
  }

  // Returns a job with kKvTokens KV tokens, which are always the same. `salt` separates the cache
  // domains of prompts.
  DecodeJob Job(const std::string& salt) {
    DecodeJob job;
    job.request_id = absl::StrCat("r", ++requests_);
    std::vector<TokenId> tokens;
    for (int i = 0; i <= kKvTokens; ++i) tokens.push_back(2 + i * 7 % 250);
    job.spec.tokens = std::move(tokens);
    job.spec.cache_domain = salt;
    job.decode_incarnation = info_.incarnation;
    job.blocks = kKvBlocks;
    job.spec.sampling.draw.temperature = 0;
    job.spec.sampling.max_tokens = 12;
    job.spec.sampling.ignore_eos = true;
    return job;
  }
  Reserved Reserve(const DecodeJob& job) {
    const std::span kv_tokens = std::span(job.spec.tokens).first(kKvTokens);
    const ReserveRequest reserve{.request_id = job.request_id,
                                 .writer = reply_.writer,
                                 .keys = BlockKeys(RootKey(info_.module_digest, job.spec.cache_domain), kv_tokens),
                                 .kv_tokens = kKvTokens,
                                 .expected_new_tokens = job.spec.sampling.max_tokens};
    const auto reply = FromProto(Ask<kv::v1::ReserveReply>(&kv::v1::KvTransfer::Stub::Reserve, ToProto(reserve)));
    return std::get<Reserved>(reply.value());
  }
  // The source slab holds the prompt's blocks in their order.
  BlockCopy CopyOf(const MissingBlock& block) const {
    const int64_t bytes = info_.layout.BlockBytes();
    return {.source_offset = block.index * bytes, .target_offset = block.target.value() * bytes, .bytes = bytes};
  }
  void Commit(const baton::Commit& commit) {
    Ask<kv::v1::CommitReply>(&kv::v1::KvTransfer::Stub::Commit, ToProto(commit));
  }
  void Release(const Reserved& reserved) {
    Ask<kv::v1::ReleaseReply>(&kv::v1::KvTransfer::Stub::Release, ToProto(baton::Release{reserved.reservation}));
  }

  struct Result {
    std::vector<int32_t> tokens;
    absl::Status status;
  };
  Result Start(const DecodeJob& job) {
    worker::v1::DecodeCommand command;
    *command.mutable_decode() = ToProto(job);
    REQUIRE(stream_->Write(command));
    Result result;
    worker::v1::DecodeEvent event;
    while (stream_->Read(&event)) {
      if (event.has_failed()) {
        result.status = FromProto(event.failed()).status;
        return result;
      }
      for (auto& proto : *event.mutable_updates()->mutable_updates()) {
        const TokenUpdate update = FromProto(std::move(proto));
        result.tokens.insert(result.tokens.end(), update.tokens.begin(), update.tokens.end());
        if (update.finish) return result;
      }
    }
    FAIL("the stream ended");
    return result;
  }

  template <typename Reply, typename Request>
  absl::Status Try(grpc::Status (kv::v1::KvTransfer::Stub::*method)(grpc::ClientContext*, const Request&, Reply*),
                   const Request& request, Reply& reply) {
    grpc::ClientContext context;
    return FromGrpc((kv_.get()->*method)(&context, request, &reply));
  }

 private:
  template <typename Reply, typename Request>
  Reply Ask(grpc::Status (kv::v1::KvTransfer::Stub::*method)(grpc::ClientContext*, const Request&, Reply*),
            const Request& request) {
    Reply reply;
    const absl::Status status = Try(method, request, reply);
    INFO(Message(status));
    REQUIRE(status.ok());
    return reply;
  }

  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<kv::v1::KvTransfer::Stub> kv_;
  std::unique_ptr<worker::v1::DecodeWorker::Stub> worker_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<worker::v1::DecodeCommand, worker::v1::DecodeEvent>> stream_;
  WorkerInfo info_;
  LinkReply reply_;
  int requests_ = 0;
};

struct Turn {
  std::vector<int32_t> ids;
  std::vector<float> logprobs;
};

// Runs two turns of a session with these flags and the usual ones. The turns have whole blocks, a
// partial block, and blocks that the decode worker holds from the first turn.
inline std::vector<Turn> RunTurns(std::vector<std::string> prefill_flags, std::vector<std::string> decode_flags,
                                  const std::function<void(const Worker& decode)>& look,
                                  std::vector<std::string> router_flags = {}) {
  const auto with = [](std::vector<std::string> flags, const std::vector<std::string>& more) {
    flags.insert(flags.end(), more.begin(), more.end());
    return flags;
  };
  Worker prefill("prefill", Small(with({"--listen", "127.0.0.1:0"}, prefill_flags)));
  Worker decode("decode", Small(with({"--listen", "127.0.0.1:0"}, decode_flags)));
  Process router("baton-router", with({"--listen", "127.0.0.1:0", "--http", "off", "--model", kModel,
                                       "--prefill-workers", prefill.address, "--decode-workers", decode.address},
                                      router_flags));
  const auto stub = v1::Inference::NewStub(DialTcp(router.Await("listening on ")));
  std::vector<Turn> turns;
  for (const int tokens : {90, 150}) {
    v1::GenerateRequest request = MakeRequest(16, tokens);
    request.set_session_id("one");
    request.mutable_sampling()->set_logprobs(2);
    Call call(*stub, request);
    const absl::Status status = call.Finish();
    INFO(Message(status));
    REQUIRE(status.ok());
    turns.push_back({call.ids, call.logprobs});
  }
  look(decode);
  decode.AwaitBlocksFree();
  return turns;
}

}  // namespace baton
