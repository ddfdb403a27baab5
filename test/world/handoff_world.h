// Prefill and decode workers that consist of their hand-off only. The test controls the network
// between them. Blocks have content, so that a write into a wrong block, or a start on incomplete
// blocks, is detected.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/hash/hash.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/status.h"
#include "engine/handoff/receiver.h"
#include "engine/handoff/sender.h"
#include "world/mail.h"

namespace baton {

class HandoffWorld {
 public:
  using Post = std::function<void(Envelope)>;
  using Log = std::function<void(const std::string&)>;

  static constexpr KvLayout kLayout{.layers = 2, .kv_heads = 1, .head_dim = 1, .format = KvFormat::kBf16};

  HandoffWorld(const Clock& clock, absl::Duration lease, Post post, Log log)
      : clock_(clock), lease_(lease), post_(std::move(post)), log_(std::move(log)) {}

  // From now on, connections write like shared memory: nothing lands after the writer's process has
  // ended. Other connections are like a network, on which a push may land later.
  void SetLocal(bool local) { local_ = local; }

  // Prefill workers that start from now on lose a peer that answers nothing for this long.
  void SetAnswerWithin(absl::Duration answer_within) { answer_within_ = answer_within; }

  // --- Workers ---

  struct Prefill {
    WorkerAddress address;
    Incarnation incarnation;
    std::unique_ptr<HandoffSender> sender;  // null if the worker is dead
    std::map<LinkId, std::pair<WorkerAddress, Incarnation>> connections;
    std::map<RequestId, std::vector<TokenId>> prompts;
  };
  struct Decode {
    WorkerAddress address;
    Incarnation incarnation;
    std::unique_ptr<BlockPool> pool;
    std::unique_ptr<RadixTree> tree;
    // The memory that the guard writes to. It is not read.
    std::vector<std::byte> memory;
    std::unique_ptr<WriteGuard> guard;          // null if writes need no write key
    std::unique_ptr<HandoffReceiver> receiver;  // null if the worker is dead
    std::vector<uint64_t> slab;                 // [blocks, layers]
    // [blocks]: the reservation or the decoder that received the block last.
    std::vector<uint64_t> owner;
    std::map<RequestId, ClaimedKv> running;
    std::map<ReservationId, DecodeJob> checking;  // started, not claimed yet
    Digest digest{};
  };

  // `digests` is false for a prefill worker of an older version.
  void StartPrefill(const WorkerAddress& address, bool digests = true) {
    Prefill& prefill = prefills_[address];
    prefill = Prefill{address, Incarnation(++incarnations_), nullptr, {}, {}};
    prefill.sender =
        std::make_unique<HandoffSender>(HandoffSenderOptions{.self = {.prefill_address = address,
                                                                      .prefill_incarnation = prefill.incarnation,
                                                                      .layout = kLayout,
                                                                      .numerics_id = "cpu",
                                                                      .can_digest = digests,
                                                                      .supports_write_keys = true,
                                                                      .process = ProcessOf(prefill)},
                                                             .answer_within = answer_within_});
  }
  void StartDecode(const WorkerAddress& address, int64_t blocks, Digest digest = {}, bool verify = false,
                   bool guard = false) {
    KillDecode(address);
    Decode& decode = decodes_[address];
    decode.address = address;
    decode.incarnation = Incarnation(++incarnations_);
    decode.pool = std::make_unique<BlockPool>(blocks);
    decode.tree = std::make_unique<RadixTree>(*decode.pool);
    decode.slab.assign(static_cast<size_t>(blocks * kLayout.layers), 0);
    decode.owner.assign(static_cast<size_t>(blocks), 0);
    decode.digest = digest;
    if (guard) {
      decode.memory.resize(static_cast<size_t>(blocks * kLayout.BlockBytes()));
      decode.guard = std::make_unique<WriteGuard>(Slab(decode.memory), kLayout);
    }
    decode.receiver = std::make_unique<HandoffReceiver>(
        HandoffReceiverOptions{.module_digest = digest,
                               .layout = kLayout,
                               .numerics_id = "cpu",
                               .incarnation = decode.incarnation,
                               .transport_descriptor = absl::StrCat(decode.incarnation.value()),
                               .lease = lease_,
                               .verify = verify,
                               .guard = decode.guard.get()},
        *decode.pool, *decode.tree,
        [&decode](const ReserveRequest& request, int64_t blocks_now) { return AskRoom(decode, request, blocks_now); });
  }
  void KillPrefill(const WorkerAddress& address) { prefills_[address].sender.reset(); }
  static std::string ProcessOf(const Prefill& prefill) {
    return absl::StrCat(prefill.address, "#", prefill.incarnation.value());
  }
  // The operating system of all decode workers reports the end of a process.
  void ReportProcessEnd(const std::string& process) {
    for (auto& [address, d] : decodes_) {
      if (d.receiver == nullptr) continue;
      const int64_t freed = d.receiver->OnProcessEnd(process, Now());
      d.receiver->CheckInvariants();
      log_(absl::StrCat(address, " frees ", freed, " blocks of ", process));
    }
  }
  void KillDecode(const WorkerAddress& address) {
    Decode& decode = decodes_[address];
    decode.running.clear();
    decode.checking.clear();
    decode.receiver.reset();
    decode.guard.reset();
    decode.tree.reset();
    decode.pool.reset();
  }
  Prefill& prefill(const WorkerAddress& address) { return prefills_.at(address); }
  Decode& decode(const WorkerAddress& address) { return decodes_.at(address); }
  std::map<WorkerAddress, Prefill>& prefills() { return prefills_; }
  std::map<WorkerAddress, Decode>& decodes() { return decodes_; }

  // --- Outcomes of requests ---

  struct Outcome {
    std::optional<HandoffCommitted> committed;
    std::optional<HandoffFailed> failed;
    bool refused = false;  // by a check at the decode worker
  };
  std::map<RequestId, Outcome>& outcomes() { return outcomes_; }
  int refused_writes() const { return refused_writes_; }

  void Begin(Prefill& p, const WorkerAddress& to, const RequestId& request, std::vector<TokenId> prompt,
             int32_t expected_new_tokens) {
    const std::span<const TokenId> kv_tokens = std::span(prompt).first(prompt.size() - 1);
    ReserveRequest reserve{.request_id = request,
                           .keys = BlockKeys(RootKey(Digest{}, ""), kv_tokens),
                           .kv_tokens = static_cast<int32_t>(kv_tokens.size()),
                           .expected_new_tokens = expected_new_tokens};
    p.prompts[request] = std::move(prompt);
    p.sender->Begin(to, std::move(reserve), Now());
    Pump(p);
  }
  // Block i of every prompt is block i of the prefill worker's slab. Its content follows from the
  // prompt.
  void BlocksReady(Prefill& p, const RequestId& request, int32_t begin, int32_t end, int64_t layers) {
    std::vector<ReadyBlock> blocks;
    for (int32_t i = begin; i < end; ++i) blocks.push_back({i, BlockId(static_cast<uint32_t>(i)), layers});
    p.sender->BlocksReady(request, blocks, Now());
    Pump(p);
  }
  void CancelPrefill(Prefill& p, const RequestId& request) {
    p.sender->Cancel(request, Now());
    Pump(p);
  }
  void Tick() {
    for (auto& [address, p] : prefills_) TickPrefill(p);
    for (auto& [address, d] : decodes_) TickDecode(d);
  }
  void CheckInvariants() {
    for (auto& [address, p] : prefills_) {
      if (p.sender != nullptr) p.sender->CheckInvariants();
    }
    for (auto& [address, d] : decodes_) {
      if (d.receiver != nullptr) d.receiver->CheckInvariants();
    }
  }
  void TickPrefill(Prefill& p) {
    if (p.sender == nullptr) return;
    p.sender->Tick(Now());
    Pump(p);
  }
  void TickDecode(Decode& d) {
    if (d.receiver == nullptr) return;
    d.receiver->Tick(Now());
    d.receiver->CheckInvariants();
  }
  // Claims the KV and compares all of it, at once or after the worker has digested it. The decoder
  // then grows by a block of its own, if there is room.
  absl::Status Start(Decode& d, const DecodeJob& job) {
    absl::StatusOr<Claim> claim = d.receiver->Start(job, Now());
    d.receiver->CheckInvariants();
    if (!claim.ok()) return claim.status();
    if (auto* claimed = std::get_if<ClaimedKv>(&*claim)) {
      Run(d, job, std::move(*claimed));
    } else {
      d.checking[std::get<ReservationId>(*claim)] = job;
      PostChecks(d);
    }
    return absl::OkStatus();
  }
  // A writer that does not hold the reservation changes this block. Nothing can prevent that write.
  void Forge(Decode& d, BlockId block) { d.slab[SlabIndex(block, kLayout.layers - 1)] ^= 1; }
  // Forges the first block that this reservation has written. Returns false if there is none.
  bool ForgeOneOf(Decode& d, const ReservationRef& reservation) {
    const auto written = std::ranges::find(d.owner, reservation.generation.value());
    if (written == d.owner.end()) return false;
    Forge(d, BlockId(static_cast<uint32_t>(written - d.owner.begin())));
    return true;
  }
  DecodeJob JobOf(const RequestId& request, const std::vector<TokenId>& prompt) {
    const HandoffCommitted& committed = *outcomes_.at(request).committed;
    DecodeJob job;
    job.request_id = request;
    job.reservation = committed.reservation;
    job.decode_incarnation = committed.decode_incarnation;
    job.blocks = committed.blocks;
    job.spec.tokens = prompt;
    return job;
  }

  // A prompt of family `family`. It shares its first `shared` positions with all prompts of that
  // family.
  static std::vector<TokenId> Prompt(int32_t tokens, int32_t family, int32_t shared, int32_t unique) {
    std::vector<TokenId> prompt(static_cast<size_t>(tokens));
    for (int32_t i = 0; i < tokens; ++i) prompt[static_cast<size_t>(i)] = i < shared ? family : 1000 + unique;
    return prompt;
  }

 private:
  void Run(Decode& d, const DecodeJob& job, ClaimedKv claimed) {
    for (size_t i = 0; i < claimed.table.size(); ++i) {
      for (int64_t layer = 0; layer < kLayout.layers; ++layer) {
        BATON_CHECK(d.slab[SlabIndex(claimed.table.ids()[i], layer)] == Content(job.spec.tokens, i, layer),
                    "started on a block with other content than the prompt's");
      }
    }
    if (std::optional<BlockRef> grown = d.tree->Allocate()) {
      d.owner[grown->id().value()] = ++owners_;
      d.slab[SlabIndex(grown->id(), 0)] = owners_;
      claimed.table.Append(*std::move(grown));
    }
    BATON_CHECK(d.running.emplace(job.request_id, std::move(claimed)).second, "started twice");
  }

  // A digest that contains the whole block, so that different blocks never have equal digests.
  static BlockDigest DigestOf(uint64_t first_layer, uint64_t second_layer) {
    BlockDigest digest{};
    std::memcpy(digest.data(), &first_layer, sizeof first_layer);
    std::memcpy(digest.data() + sizeof first_layer, &second_layer, sizeof second_layer);
    return digest;
  }
  // Digests that the worker's own thread computes arrive later.
  void PostChecks(Decode& d) {
    while (const std::optional<BlockCheck> check = d.receiver->NextCheck()) {
      post_({"", absl::StrCat(d.address, " digests R", check->id.value()),
             [this, to = d.address, incarnation = d.incarnation, check] {
               Decode& target = decodes_.at(to);
               if (target.receiver != nullptr && target.incarnation == incarnation) Digested(target, *check);
             },
             nullptr});
    }
  }
  void Digested(Decode& d, const BlockCheck& check) {
    std::vector<BlockDigest> digests;
    for (const BlockId block : check.blocks) {
      digests.push_back(DigestOf(d.slab[SlabIndex(block, 0)], d.slab[SlabIndex(block, 1)]));
    }
    auto claimed = d.receiver->OnDigests(check.id, digests, Now());
    d.receiver->CheckInvariants();
    if (!claimed.has_value()) return;
    const DecodeJob job = d.checking.extract(check.id).mapped();
    log_(absl::StrCat(d.address, " ", job.request_id, claimed->ok() ? " STARTED" : " FAILED ",
                      claimed->ok() ? "" : claimed->status().ToString()));
    if (!claimed->ok()) outcomes_.at(job.request_id).refused = true;
    if (claimed->ok()) Run(d, job, **std::move(claimed));
  }
  void Do(Prefill& p, DigestBlocks& a) {
    std::string text = absl::StrCat(p.address, " digests ", Name(a.reservation));
    for (const BlockId block : a.blocks) absl::StrAppend(&text, " ", block.value());
    post_({"", text,
           [this, from = p.address, mine = p.incarnation, a] {
             Prefill& caller = prefills_.at(from);
             if (caller.sender == nullptr || caller.incarnation != mine) return;
             const std::vector<TokenId>& prompt = caller.prompts.at(request_of_.at(a.reservation.generation));
             std::vector<BlockDigest> digests;
             for (const BlockId block : a.blocks) {
               digests.push_back(DigestOf(Content(prompt, block.value(), 0), Content(prompt, block.value(), 1)));
             }
             caller.sender->OnDigests(a.id, digests, Now());
             Pump(caller);
           },
           nullptr});
  }

  static uint64_t Content(std::span<const TokenId> prompt, size_t block, int64_t layer) {
    const size_t end = std::min((block + 1) * kBlockTokens, prompt.size() - 1);
    return absl::HashOf(std::vector<TokenId>(prompt.begin(), prompt.begin() + static_cast<int64_t>(end)), layer);
  }
  static size_t SlabIndex(BlockId block, int64_t layer) {
    return static_cast<size_t>(block.value() * kLayout.layers + layer);
  }
  absl::Time Now() const { return clock_.Now(); }

  // Admits reservations without room for growth, so that pools run full and reservations are
  // refused.
  static Admission AskRoom(const Decode& decode, const ReserveRequest& request, int64_t blocks_now) {
    const int64_t needed = BlocksFor(int64_t{request.kv_tokens} + request.expected_new_tokens);
    const int64_t total = decode.pool->counts().total;
    if (needed > total) return NeverFits{absl::StrCat("needs ", needed, " blocks of ", total)};
    if (blocks_now > decode.tree->Available()) return Wait{};
    return Admit{};
  }

  // --- Messages ---

  template <typename T>
  static std::string TextOf(const absl::StatusOr<T>& reply) {
    return reply.ok() ? "ok"
                      : absl::StrCat(absl::StatusCodeToString(reply.status().code()), " ", reply.status().message());
  }
  static std::string TextOf(const absl::StatusOr<ReserveReply>& reply) {
    if (!reply.ok())
      return absl::StrCat(absl::StatusCodeToString(reply.status().code()), " ", reply.status().message());
    if (std::holds_alternative<Wait>(*reply)) return "wait";
    if (const auto* never = std::get_if<NeverFits>(&*reply)) return absl::StrCat("never fits: ", never->reason);
    std::string text = absl::StrCat(Name(std::get<Reserved>(*reply).reservation), " missing");
    for (const MissingBlock& block : std::get<Reserved>(*reply).missing) {
      absl::StrAppend(&text, " ", block.index, "→", block.target.value());
    }
    return text;
  }
  static std::string TextOf(const absl::StatusOr<HeartbeatReply>& reply) {
    if (!reply.ok())
      return absl::StrCat(absl::StatusCodeToString(reply.status().code()), " ", reply.status().message());
    std::string text = "ok";
    for (const ReservationRef& ref : reply->revoked) absl::StrAppend(&text, " revoked ", Name(ref));
    return text;
  }
  static std::string Name(const ReservationRef& ref) { return absl::StrCat("R", ref.id.value()); }

  // A call. The request is handled as often as it arrives. The caller receives exactly one answer.
  template <typename Reply>
  void Call(Prefill& p, const WorkerAddress& to, const std::string& text,
            std::function<absl::StatusOr<Reply>(Decode&)> handle,
            std::function<void(HandoffSender&, absl::StatusOr<Reply>)> done) {
    auto answered = std::make_shared<bool>(false);
    const auto answer = [this, from = p.address, incarnation = p.incarnation, answered,
                         done](absl::StatusOr<Reply> reply) {
      Prefill& caller = prefills_.at(from);
      if (std::exchange(*answered, true) || caller.sender == nullptr || caller.incarnation != incarnation) return;
      done(*caller.sender, std::move(reply));
      Pump(caller);
    };
    const auto reply_with = [this, from = p.address, to, text, answer](absl::StatusOr<Reply> reply) {
      post_({"", absl::StrCat(to, "→", from, " reply to ", text, ": ", TextOf(reply)), [=] { answer(reply); },
             [=] { answer(absl::DeadlineExceededError("no answer")); }});
    };
    post_({"", absl::StrCat(p.address, "→", to, " ", text),
           [=, this] {
             Decode& callee = decodes_[to];
             if (callee.receiver == nullptr) {
               reply_with(absl::UnavailableError("no process listens"));
               return;
             }
             reply_with(handle(callee));
             callee.receiver->CheckInvariants();
           },
           [=] { answer(absl::DeadlineExceededError("no answer")); }});
  }

  void Pump(Prefill& p) {
    for (SenderAction& action : p.sender->TakeActions()) {
      std::visit([&](auto& a) { Do(p, a); }, action);
    }
    p.sender->CheckInvariants();
  }

  void Do(Prefill& p, SendLink& a) {
    Call<LinkReply>(
        p, a.to, "link", [this, r = a.request](Decode& d) { return d.receiver->OnLink(r, Now()); },
        [this, id = a.link](HandoffSender& s, absl::StatusOr<LinkReply> r) { s.OnLinkReply(id, std::move(r), Now()); });
  }
  void Do(Prefill& p, OpenConnection& a) {
    uint64_t incarnation = 0;
    BATON_CHECK(absl::SimpleAtoi(a.transport_descriptor, &incarnation), "not our descriptor");
    const auto connected = [this, from = p.address, mine = p.incarnation, a,
                            local = local_](const absl::Status& status) {
      Prefill& caller = prefills_.at(from);
      if (caller.sender == nullptr || caller.incarnation != mine) return;
      caller.sender->OnConnected(a.link, status, Now(), local);
      Pump(caller);
    };
    p.connections[a.link] = {a.to, Incarnation(incarnation)};
    post_({"", absl::StrCat(p.address, " connects to ", a.to),
           [this, a, incarnation, connected] {
             const Decode& d = decodes_[a.to];
             const bool there = d.receiver != nullptr && d.incarnation == Incarnation(incarnation);
             connected(there ? absl::OkStatus() : absl::UnavailableError("the process is gone"));
           },
           [connected] { connected(absl::UnavailableError("cannot connect")); }});
  }
  void Do(Prefill& p, CloseConnection& a) {
    BATON_CHECK(p.connections.erase(a.link) == 1, "closed a connection twice");
    log_(absl::StrCat(p.address, " disconnects"));
  }
  void Do(Prefill& p, ForgetPeer& a) { log_(absl::StrCat(p.address, " forgets ", a.peer)); }
  void Do(Prefill& p, SendReserve& a) {
    Call<ReserveReply>(
        p, a.to, absl::StrCat("reserve ", a.request.request_id),
        [this, r = a.request](Decode& d) -> absl::StatusOr<ReserveReply> {
          auto reply = d.receiver->OnReserve(r, Now());
          if (!reply.ok() || !std::holds_alternative<Reserved>(*reply)) return reply;
          const auto& reserved = std::get<Reserved>(*reply);
          request_of_[reserved.reservation.generation] = r.request_id;
          for (const MissingBlock& block : reserved.missing) {
            d.owner[block.target.value()] = reserved.reservation.generation.value();
            for (int64_t layer = 0; layer < kLayout.layers; ++layer) d.slab[SlabIndex(block.target, layer)] = 0;
          }
          return reply;
        },
        [this, id = a.handoff](HandoffSender& s, absl::StatusOr<ReserveReply> r) {
          s.OnReserveReply(id, std::move(r), Now());
        });
  }
  void Do(Prefill& p, SendCommit& a) {
    Call<bool>(
        p, a.to, absl::StrCat("commit ", Name(a.commit.reservation)),
        [this, c = a.commit](Decode& d) -> absl::StatusOr<bool> {
          RETURN_IF_ERROR(d.receiver->OnCommit(c, Now()));
          return true;
        },
        [this, id = a.handoff](HandoffSender& s, absl::StatusOr<bool> r) { s.OnCommitReply(id, r.status(), Now()); });
  }
  void Do(Prefill& p, SendRelease& a) {
    Call<bool>(
        p, a.to, absl::StrCat("release ", Name(a.release.reservation)),
        [this, release = a.release](Decode& d) -> absl::StatusOr<bool> {
          d.receiver->OnRelease(release, Now());
          for (uint64_t& owner : d.owner) owner = owner == release.reservation.generation.value() ? 0 : owner;
          return true;
        },
        [this, to = a.to, ref = a.release.reservation](HandoffSender& s, absl::StatusOr<bool> r) {
          s.OnReleaseReply(to, ref, r.status(), Now());
        });
  }
  void Do(Prefill& p, SendHeartbeat& a) {
    std::string text = "heartbeat";
    for (const ReservationRef& ref : a.heartbeat.active) absl::StrAppend(&text, " ", Name(ref));
    Call<HeartbeatReply>(
        p, a.to, text, [this, h = a.heartbeat](Decode& d) { return d.receiver->OnHeartbeat(h, Now()); },
        [this, id = a.id](HandoffSender& s, absl::StatusOr<HeartbeatReply> r) {
          s.OnHeartbeatReply(id, std::move(r), Now());
        });
  }
  void Do(Prefill& p, PushBlocks& a) {
    std::string text = absl::StrCat("push ", Name(a.reservation));
    for (const BlockCopy& copy : a.copies) {
      const int64_t first = copy.target_offset % kLayout.BlockBytes() / kLayout.LayerBytes();
      absl::StrAppend(&text, " ", copy.target_offset / kLayout.BlockBytes(), "[", first, ",",
                      first + copy.bytes / kLayout.LayerBytes(), ")");
    }
    const auto finish = [this, from = p.address, mine = p.incarnation, push = a.push, text](absl::Status status) {
      post_({"", absl::StrCat(from, " ", text, ": ", absl::StatusCodeToString(status.code())),
             [=, this] {
               Prefill& caller = prefills_.at(from);
               if (caller.sender == nullptr || caller.incarnation != mine) return;
               caller.sender->OnPushDone(push, status, Now());
               Pump(caller);
             },
             nullptr});
    };
    const auto connection = p.connections.find(a.link);
    BATON_CHECK(connection != p.connections.end(), "pushed by a connection that is closed");
    const auto [to, incarnation] = connection->second;
    // Lands copies [begin, end) of the push. Nothing lands at a process that has ended.
    const auto land = [this, from = p.address, mine = p.incarnation, to = to, theirs = incarnation, a, local = local_](
                          size_t begin, size_t end) {
      const Prefill& writer = prefills_.at(from);
      Decode& target = decodes_.at(to);
      const absl::Status gone = absl::UnavailableError("the process is gone");
      if ((local && writer.sender == nullptr) || writer.incarnation != mine) return gone;
      if (target.receiver == nullptr || target.incarnation != theirs) return gone;
      for (size_t i = begin; i < end; ++i) {
        RETURN_IF_ERROR(Ask(target, a, a.copies[i]));
        Land(writer, target, a.reservation, a.copies[i]);
      }
      return absl::OkStatus();
    };
    post_({"", absl::StrCat(p.address, "→", to, " ", text), [=, all = a.copies.size()] { finish(land(0, all)); },
           [=, this, half = a.copies.size() / 2, all = a.copies.size()] {
             land(0, half).IgnoreError();
             finish(absl::UnavailableError("the connection broke"));
             post_({"", absl::StrCat("the rest of ", text), [=] { land(half, all).IgnoreError(); }, [] {}});
           }});
  }
  // Asks the guard, as a guarded worker does.
  absl::Status Ask(Decode& target, const PushBlocks& push, const BlockCopy& copy) {
    if (target.guard == nullptr) return absl::OkStatus();
    const std::string bytes(static_cast<size_t>(copy.bytes), 'x');
    absl::Status status =
        target.guard->Write(push.write_key.value(), std::vector<BlockCopy>{{0, copy.target_offset, copy.bytes}}, bytes);
    refused_writes_ += !status.ok();
    return status;
  }
  // The block must belong to the reservation when the write lands.
  void Land(const Prefill& writer, Decode& target, const ReservationRef& reservation, const BlockCopy& copy) {
    const auto index = static_cast<size_t>(copy.source_offset / kLayout.BlockBytes());
    const BlockId block(static_cast<uint32_t>(copy.target_offset / kLayout.BlockBytes()));
    const int64_t first = copy.target_offset % kLayout.BlockBytes() / kLayout.LayerBytes();
    BATON_CHECK(target.owner[block.value()] == reservation.generation.value(), "a write into somebody else's block");
    BATON_CHECK(!target.pool->IsRetained(block), "a write into a block that others may read");
    const std::vector<TokenId>& prompt = writer.prompts.at(request_of_.at(reservation.generation));
    for (int64_t layer = first; layer < first + copy.bytes / kLayout.LayerBytes(); ++layer) {
      target.slab[SlabIndex(block, layer)] = Content(prompt, index, layer);
    }
  }
  void Do(Prefill& p, HandoffReserved& a) {
    log_(absl::StrCat(p.address, " ", a.request_id, " has room, ", a.missing.size(), " blocks missing"));
  }
  void Do(Prefill& p, HandoffCommitted& a) {
    log_(absl::StrCat(p.address, " ", a.request_id, " COMMITTED ", Name(a.reservation), ", ", a.blocks, " blocks, ",
                      a.bytes_pushed, " bytes pushed"));
    Outcome& outcome = outcomes_[a.request_id];
    BATON_CHECK(!outcome.committed && !outcome.failed, "two results");
    outcome.committed = a;
  }
  void Do(Prefill& p, HandoffFailed& a) {
    log_(absl::StrCat(p.address, " ", a.request_id, " FAILED ", absl::StatusCodeToString(a.status.code()), " ",
                      a.status.message(), ", retry after ", absl::FormatDuration(a.retry_after)));
    Outcome& outcome = outcomes_[a.request_id];
    BATON_CHECK(!outcome.committed && !outcome.failed, "two results");
    outcome.failed = a;
  }

  const Clock& clock_;
  absl::Duration lease_;
  Post post_;
  Log log_;
  uint64_t incarnations_ = 0;
  uint64_t owners_ = 0;
  int refused_writes_ = 0;
  bool local_ = false;
  absl::Duration answer_within_ = HandoffSenderOptions{}.answer_within;
  std::map<WorkerAddress, Prefill> prefills_;
  std::map<WorkerAddress, Decode> decodes_;
  std::map<RequestId, Outcome> outcomes_;
  std::map<Generation, RequestId> request_of_;
};

}  // namespace baton
