#include "engine/handoff/receiver.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/logging.h"
#include "base/status.h"
#include "model/module_digest.h"

namespace baton {
namespace {

// Upper bound on links. A live prefill worker whose link is forgotten links again.
constexpr size_t kMaxLinks = 1024;

std::string ToString(const KvLayout& layout) {
  return absl::StrFormat("%d layers x %d kv heads x %d x %s, %s", layout.layers, layout.kv_heads, layout.head_dim,
                         RowOf(layout.format).name, layout.order == KvOrder::kRows ? "in rows" : "in pairs");
}

// Returns a reservation of the request's size, for the admission policy.
ReserveRequest SizesOf(const KeepRoom& request) {
  return {.kv_tokens = request.kv_tokens, .expected_new_tokens = request.expected_new_tokens};
}

std::string ToString(const ReservationRef& ref) {
  return absl::StrCat("reservation ", ref.id.value(), " generation ", ref.generation.value());
}

absl::Status Differs(absl::string_view what, absl::string_view here, absl::string_view there) {
  return absl::FailedPreconditionError(
      absl::StrCat(what, " differs: ", here, " at the decode worker, ", there, " at the prefill worker"));
}

absl::Status NotLinked() {
  return absl::FailedPreconditionError("the prefill worker has no link to this incarnation of the decode worker");
}

// SplitMix64 (Steele et al. 2014). Incarnations that are close to each other get first generations
// that are far apart.
uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace

WriterId NthWriter(Incarnation decode, uint64_t n) { return WriterId(Mix(Mix(decode.value())) + n); }

HandoffReceiver::HandoffReceiver(HandoffReceiverOptions options, BlockPool& pool, RadixTree& tree,
                                 AdmissionPolicy admission)
    : options_(std::move(options)),
      pool_(pool),
      tree_(tree),
      admission_(std::move(admission)),
      first_generation_(Mix(options_.incarnation.value())),
      quarantine_(pool),
      kept_(options_.lease) {}

absl::Status HandoffReceiver::CheckLink(const LinkRequest& request) const {
  if (request.version != kHandoffVersion) {
    return Differs("hand-off version", absl::StrCat(kHandoffVersion), absl::StrCat(request.version));
  }
  if (request.module_digest != options_.module_digest) {
    return Differs("prefill module digest", Hex(options_.module_digest), Hex(request.module_digest));
  }
  if (request.layout != options_.layout) {
    return Differs("KV layout", ToString(options_.layout), ToString(request.layout));
  }
  if (options_.verify && !request.can_digest) {
    return absl::FailedPreconditionError(
        "the decode worker verifies KV blocks by digests (--verify-kv), and the prefill worker's link offers "
        "none");
  }
  if (options_.guard != nullptr && !request.supports_write_keys) {
    return absl::FailedPreconditionError(
        "the decode worker takes KV blocks only with the write key of their reservation (--guard-kv), and the prefill "
        "worker's link does not support write keys");
  }
  return absl::OkStatus();
}

absl::StatusOr<LinkReply> HandoffReceiver::OnLink(const LinkRequest& request, absl::Time now) {
  Tick(now);
  RETURN_IF_ERROR(CheckLink(request));
  const WriterId writer = NthWriter(options_.incarnation, ++linked_);
  links_[writer] = {request.process, now};
  if (links_.size() > kMaxLinks) ForgetIdleLink();
  if (request.numerics_id != options_.numerics_id) {
    spdlog::warn("prefill worker {} computes with '{}', this worker with '{}': their results may differ in bits",
                 request.prefill_address, request.numerics_id, options_.numerics_id);
  }
  return LinkReply{.decode_incarnation = options_.incarnation,
                   .writer = writer,
                   .transport_descriptor = options_.transport_descriptor,
                   .slab_blocks = pool_.counts().total,
                   .numerics_id = options_.numerics_id,
                   .lease = options_.lease,
                   .wants_digests = options_.verify};
}

// Forgets the link without reservations whose last message is the oldest.
void HandoffReceiver::ForgetIdleLink() {
  absl::flat_hash_set<WriterId> writing;
  for (const auto& [id, reservation] : reservations_) writing.insert(reservation.request.writer);
  auto idle = links_.end();
  for (auto it = links_.begin(); it != links_.end(); ++it) {
    if (writing.contains(it->first)) continue;
    if (idle == links_.end() || it->second.last_message < idle->second.last_message) idle = it;
  }
  if (idle != links_.end()) links_.erase(idle);
}

absl::Status HandoffReceiver::CheckReserve(const ReserveRequest& request) const {
  if (!links_.contains(request.writer)) {
    return NotLinked();
  }
  if (request.kv_tokens < 0 || request.expected_new_tokens < 0) {
    return absl::InvalidArgumentError(absl::StrCat("reserve: negative kv_tokens ", request.kv_tokens,
                                                   " or expected_new_tokens ", request.expected_new_tokens));
  }
  const int64_t full = request.kv_tokens / kBlockTokens;
  if (static_cast<int64_t>(request.keys.size()) != full) {
    return absl::InvalidArgumentError(absl::StrCat("reserve: ", request.keys.size(), " block keys for ",
                                                   request.kv_tokens, " tokens, expected ", full));
  }
  return absl::OkStatus();
}

absl::StatusOr<ReserveReply> HandoffReceiver::OnReserve(ReserveRequest request, absl::Time now) {
  Tick(now);
  RETURN_IF_ERROR(CheckReserve(request));
  links_.at(request.writer).last_message = now;
  std::variant<FoundBlocks, Wait, NeverFits> found = FindBlocks(request);
  if (std::holds_alternative<Wait>(found)) return Wait{};
  if (const auto* never = std::get_if<NeverFits>(&found)) return *never;
  auto& [table, held] = std::get<FoundBlocks>(found);
  return Grant(std::move(request), std::move(table), held, now);
}

absl::StatusOr<BlockTable> HandoffReceiver::TakeBlocks(const ReserveRequest& request, absl::Time now) {
  Tick(now);
  std::variant<FoundBlocks, Wait, NeverFits> found = FindBlocks(request);
  if (std::holds_alternative<Wait>(found)) {
    return absl::ResourceExhaustedError(absl::StrCat("the decode worker has no room for KV of ", request.kv_tokens,
                                                     " prompt tokens: ", tree_.Available(), " of ",
                                                     pool_.counts().total, " blocks are free or cached"));
  }
  if (const auto* never = std::get_if<NeverFits>(&found)) return absl::InvalidArgumentError(never->reason);
  kept_.Granted(request.request_id);
  RoomMayHaveCome();  // as after a reservation
  return std::move(std::get<FoundBlocks>(found).table);
}

std::variant<HandoffReceiver::FoundBlocks, Wait, NeverFits> HandoffReceiver::FindBlocks(const ReserveRequest& request) {
  const int64_t blocks = BlocksFor(request.kv_tokens);
  if (const int64_t total = pool_.counts().total; blocks > total) {
    return NeverFits{absl::StrCat("the prompt can never fit: its KV of ", request.kv_tokens, " tokens needs ", blocks,
                                  " blocks, the decode worker has ", total, " (", total * kBlockTokens,
                                  " tokens); shorten the prompt, or raise --kv-memory-mb of the decode workers")};
  }
  const int64_t held = tree_.ReadyPrefix(request.keys);
  const int64_t blocks_now = blocks - held + tree_.CachedInPrefix(request.keys);
  const Admission admission = Consider(request, blocks_now);
  if (std::holds_alternative<Wait>(admission)) return Refuse(request, blocks_now);
  if (const auto* never = std::get_if<NeverFits>(&admission)) return *never;

  BlockTable table;
  for (BlockRef& block : tree_.Match(request.keys)) table.Append(std::move(block));
  while (static_cast<int64_t>(table.size()) < blocks) {
    std::optional<BlockRef> block = tree_.Allocate();
    // The policy admitted the request, but the pool has too few blocks.
    if (!block.has_value()) return Refuse(request, blocks_now);
    table.Append(*std::move(block));
  }
  return FoundBlocks{std::move(table), static_cast<size_t>(held)};
}

Wait HandoffReceiver::Refuse(const ReserveRequest& request, int64_t blocks_now) {
  if (!request.cache_only) refused_.Add(request, blocks_now);
  return Wait{};
}

Admission HandoffReceiver::Consider(const ReserveRequest& request, int64_t blocks_now) {
  return admission_(request, blocks_now + kept_.BlocksBeside(request.request_id, UsableBlocks()));
}

RoomReport HandoffReceiver::TakeRoom() {
  RoomReport report;
  report.kept = kept_.TakeFitting(UsableBlocks(), [this](const KeepRoom& kept) {
    return std::holds_alternative<Admit>(admission_(SizesOf(kept), BlocksFor(kept.kv_tokens)));
  });
  report.requests = refused_.TakeFitting([this](const ReserveRequest& request, int64_t blocks_now) {
    return std::holds_alternative<Admit>(Consider(request, blocks_now));
  });
  return report;
}

void HandoffReceiver::Keep(RouterStream router, KeepRoom request, absl::Time now) {
  Tick(now);
  const bool may_fit = !request.request_id.empty() &&
                       !std::holds_alternative<NeverFits>(admission_(SizesOf(request), BlocksFor(request.kv_tokens)));
  if (may_fit) {
    kept_.Keep(router, std::move(request), now);
  } else {
    kept_.Drop(router);
  }
  RoomMayHaveCome();
}

Reserved HandoffReceiver::Grant(ReserveRequest request, BlockTable table, size_t held, absl::Time now) {
  const ReservationRef ref{ReservationId(granted_ + 1), Generation(first_generation_ + granted_)};
  ++granted_;
  Reserved reply{ref, {}};
  for (size_t i = held; i < table.size(); ++i) reply.missing.push_back({static_cast<int32_t>(i), table.ids()[i]});
  if (options_.guard != nullptr) reply.write_key = options_.guard->Grant(table.ids().subspan(held));
  kept_.Granted(request.request_id);
  Reservation& reservation = reservations_[ref.id];
  reservation.generation = ref.generation;
  if (request.ends_with_process) reservation.process = links_.at(request.writer).process;
  reservation.request = std::move(request);
  reservation.table = std::move(table);
  reservation.held = held;
  reservation.write_key = reply.write_key;
  reservation.lapses_at = now + options_.lease;
  RoomMayHaveCome();  // there may be room for more than this reservation
  return reply;
}

// Revokes the writer's key, and returns after the writes that are in progress. Called before other
// parts of the worker read the blocks, and before the blocks are released.
void HandoffReceiver::RevokeRight(const Reservation& reservation) {
  if (reservation.write_key.has_value()) options_.guard->Revoke(reservation.write_key->id);
}

HandoffReceiver::Reservations::iterator HandoffReceiver::Find(const ReservationRef& ref) {
  const auto it = reservations_.find(ref.id);
  return it != reservations_.end() && it->second.generation == ref.generation ? it : reservations_.end();
}

absl::Status HandoffReceiver::OnCommit(const Commit& commit, absl::Time now) {
  Tick(now);
  const auto it = Find(commit.reservation);
  if (it == reservations_.end()) {
    return absl::FailedPreconditionError(
        absl::StrCat(ToString(commit.reservation), " is unknown, has lapsed or was given up"));
  }
  Reservation& reservation = it->second;
  if (reservation.write_key.has_value() &&
      !WriteGuard::Same(reservation.write_key->bits, commit.write_key.value_or(WriteKey{}).bits)) {
    return options_.guard->Refuse(absl::FailedPreconditionError(absl::StrCat(
        ToString(commit.reservation), ": the commit lacks the write key of the reservation (--guard-kv)")));
  }
  const int64_t expected = static_cast<int64_t>(reservation.table.size() - reservation.held);
  if (commit.blocks_written != expected) {
    GiveUp(it, now);
    return absl::FailedPreconditionError(absl::StrCat(ToString(commit.reservation), ": ", commit.blocks_written,
                                                      " blocks written, expected ", expected));
  }
  if (options_.verify && std::ssize(commit.digests) != expected) {
    GiveUp(it, now);
    return absl::FailedPreconditionError(absl::StrCat(ToString(commit.reservation), ": digests of ",
                                                      commit.digests.size(), " blocks, expected ", expected));
  }
  if (reservation.committed) {
    if (!options_.verify || commit.digests == reservation.digests) return absl::OkStatus();
    // One of the two commits is not from the writer, so the writer may still write. GiveUp
    // quarantines the blocks only if the reservation is not committed.
    reservation.committed = false;
    GiveUp(it, now);
    return absl::FailedPreconditionError(
        absl::StrCat(ToString(commit.reservation), " was committed with other digests before"));
  }
  RevokeRight(reservation);
  reservation.committed = true;
  reservation.lapses_at = now + options_.lease;
  if (options_.verify) {
    reservation.digests = commit.digests;
  } else {
    ShareWrittenBlocks(reservation);
  }
  if (reservation.request.cache_only) {
    Take(it);
    RoomMayHaveCome();
  }
  return absl::OkStatus();
}

// Makes nodes of the tree from the written full blocks, so that the next prompt with this prefix
// needs no transfer.
void HandoffReceiver::ShareWrittenBlocks(Reservation& reservation) {
  const std::span<const BlockKey> keys = reservation.request.keys;
  std::vector<BlockRef> written;  // last first
  while (reservation.table.size() > reservation.held) written.push_back(reservation.table.PopBack());
  bool share = true;
  for (size_t i = reservation.held; !written.empty(); ++i) {
    BlockRef block = std::move(written.back());
    written.pop_back();
    share = share && i < keys.size() && tree_.Find(keys[i]) != RadixTree::State::kPromised;
    reservation.table.Append(share ? tree_.Insert(keys.first(i + 1), std::move(block)) : std::move(block));
  }
}

void HandoffReceiver::OnRelease(const Release& release, absl::Time now) {
  Tick(now);
  if (const auto it = Find(release.reservation); it != reservations_.end()) {
    RevokeRight(it->second);
    reservations_.erase(it);  // the writer's pushes have ended, so the blocks become free
    RoomMayHaveCome();
    return;
  }
  Freed(quarantine_.Release(release.reservation));
}

absl::StatusOr<HeartbeatReply> HandoffReceiver::OnHeartbeat(const Heartbeat& heartbeat, absl::Time now) {
  Tick(now);
  const auto link = links_.find(heartbeat.writer);
  if (link == links_.end()) {
    return NotLinked();
  }
  link->second.last_message = now;
  HeartbeatReply reply;
  for (const ReservationRef& ref : heartbeat.active) {
    const auto it = Find(ref);
    if (it == reservations_.end() || it->second.request.writer != heartbeat.writer) {
      reply.revoked.push_back(ref);
    } else if (!it->second.committed) {
      it->second.lapses_at = now + options_.lease;
    }
  }
  return reply;
}

absl::Status HandoffReceiver::CheckStart(const DecodeJob& job, const Reservation& reservation) const {
  const std::string what = absl::StrCat("start of ", job.request_id, ": ", ToString(job.reservation));
  if (reservation.request.request_id != job.request_id) {
    return absl::FailedPreconditionError(absl::StrCat(what, " belongs to request ", reservation.request.request_id));
  }
  if (!reservation.committed) {
    return absl::FailedPreconditionError(absl::StrCat(what, " is not committed"));
  }
  if (job.blocks != static_cast<int64_t>(reservation.table.size())) {
    return absl::FailedPreconditionError(
        absl::StrCat(what, " has ", reservation.table.size(), " blocks, expected ", job.blocks));
  }
  // The KV of a resumed request may end anywhere in its output.
  const int64_t tokens = int64_t{reservation.request.kv_tokens} + 1;
  if (tokens < static_cast<int64_t>(job.spec.prompt_tokens()) || tokens > std::ssize(job.spec.tokens)) {
    return absl::FailedPreconditionError(absl::StrCat(what, " holds KV of ", reservation.request.kv_tokens,
                                                      " tokens for a prompt of ", job.spec.prompt_tokens()));
  }
  const std::span<const TokenId> kv_tokens(job.spec.tokens.data(), static_cast<size_t>(reservation.request.kv_tokens));
  if (BlockKeys(RootKey(options_.module_digest, job.spec.cache_domain), kv_tokens) != reservation.request.keys) {
    return absl::FailedPreconditionError(absl::StrCat(what, " has KV of other tokens"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Claim> HandoffReceiver::Start(const DecodeJob& job, absl::Time now) {
  Tick(now);
  if (job.decode_incarnation != options_.incarnation) {
    return absl::FailedPreconditionError(absl::StrCat("start of ", job.request_id, ": its blocks are at incarnation ",
                                                      job.decode_incarnation.value(), ", this process is ",
                                                      options_.incarnation.value()));
  }
  const auto it = Find(job.reservation);
  if (it == reservations_.end()) {
    return absl::FailedPreconditionError(absl::StrCat("start of ", job.request_id, ": ", ToString(job.reservation),
                                                      " is unknown, has lapsed or is claimed already"));
  }
  RETURN_IF_ERROR(CheckStart(job, it->second));
  return Take(it);
}

// Every block that a hand-off has written passes here once, at its Start, or at its Commit if the
// reservation is cache-only. The Commit will carry a checksum of each block, which will be compared
// here (planned). Today this method begins the check of --verify-kv, and Compare ends it.
Claim HandoffReceiver::Take(Reservations::iterator it) {
  const ReservationId id = it->first;
  if (it->second.digests.empty()) {
    ClaimedKv claimed = TakeKv(it->second);
    reservations_.erase(it);
    return claimed;
  }
  to_be_checked_.push_back(id);
  checks_.insert(reservations_.extract(it));
  return id;
}

void HandoffReceiver::Cancel(const RequestId& request, absl::Time now) {
  Tick(now);
  for (auto it = reservations_.begin(); it != reservations_.end();) {
    it = it->second.request.request_id == request ? GiveUp(it, now) : std::next(it);
  }
}

HandoffReceiver::Reservations::iterator HandoffReceiver::GiveUp(Reservations::iterator it, absl::Time now) {
  Reservation& reservation = it->second;
  RevokeRight(reservation);
  // No write can follow a revoked key, so guarded blocks become free at once.
  if (!reservation.committed && !reservation.write_key.has_value()) {
    std::vector<BlockRef> blocks;
    while (reservation.table.size() > reservation.held) blocks.push_back(reservation.table.PopBack());
    quarantine_.Add({it->first, reservation.generation}, std::move(blocks), std::move(reservation.process),
                    now + kQuarantineLeases * options_.lease);
  }
  RoomMayHaveCome();
  return reservations_.erase(it);
}

void HandoffReceiver::Freed(int64_t freed) {
  if (freed > 0) RoomMayHaveCome();
}

int64_t HandoffReceiver::OnProcessEnd(const std::string& process, absl::Time now) {
  Tick(now);
  int64_t freed = quarantine_.OnProcessEnd(process);
  for (auto it = reservations_.begin(); it != reservations_.end();) {
    const Reservation& reservation = it->second;
    if (reservation.committed || reservation.process != process) {
      ++it;
      continue;
    }
    freed += static_cast<int64_t>(reservation.table.size() - reservation.held);
    RevokeRight(reservation);
    it = reservations_.erase(it);
    RoomMayHaveCome();
  }
  // A Reserve of this process may still arrive. Without its link, it is refused.
  absl::erase_if(links_, [&](const auto& link) { return link.second.process == process; });
  Freed(freed);
  freed_by_process_end_ += freed;
  return freed;
}

void HandoffReceiver::Tick(absl::Time now) {
  for (auto it = reservations_.begin(); it != reservations_.end();) {
    const bool lapses = it->second.lapses_at <= now;
    expired_leases_ += lapses;
    it = lapses ? GiveUp(it, now) : std::next(it);
  }
  Freed(quarantine_.Tick(now));
  if (kept_.Tick(now)) RoomMayHaveCome();
}

absl::Time HandoffReceiver::NextTick() const {
  absl::Time next = std::min(quarantine_.NextTick(), kept_.NextTick());
  for (const auto& [id, reservation] : reservations_) next = std::min(next, reservation.lapses_at);
  return next;
}

HandoffReceiver::Outstanding HandoffReceiver::outstanding() const {
  Outstanding sum;
  for (const Reservations* some : {&reservations_, &checks_}) {
    for (const auto& [id, reservation] : *some) {
      if (reservation.request.cache_only) continue;
      ++(reservation.committed ? sum.committed : sum.reserved);
      const int64_t longest = std::min(int64_t{reservation.request.kv_tokens} + reservation.request.expected_new_tokens,
                                       options_.positions);
      sum.growth_blocks += std::max<int64_t>(0, BlocksFor(longest) - static_cast<int64_t>(reservation.table.size()));
    }
  }
  return sum;
}

void HandoffReceiver::CheckInvariants() const {
  int64_t unwritten = 0;
  quarantine_.CheckInvariants();
  for (const auto& [id, reservation] : reservations_) {
    BATON_CHECK(static_cast<int64_t>(reservation.table.size()) == BlocksFor(reservation.request.kv_tokens),
                "a reservation has a wrong number of blocks");
    BATON_CHECK(reservation.held <= reservation.request.keys.size(), "a held block has no key");
    BATON_CHECK(!quarantine_.Contains(id), "both reserved and quarantined");
    unwritten += !reservation.committed;
    for (size_t i = reservation.held; i < reservation.table.size() && !reservation.committed; ++i) {
      const BlockId block = reservation.table.ids()[i];
      BATON_CHECK(pool_.ReferencesOf(block) == 1 && !pool_.IsRetained(block), "an unwritten block is shared");
    }
  }
  if (options_.guard != nullptr) {
    BATON_CHECK(options_.guard->valid_keys() == unwritten, "write keys and unwritten reservations differ");
    options_.guard->CheckInvariants();
  }
  for (const auto& [id, check] : checks_) {
    BATON_CHECK(check.committed && !check.digests.empty() && !reservations_.contains(id),
                "a check of a reservation that is not committed");
    for (size_t i = check.held; i < check.table.size(); ++i) {
      const BlockId block = check.table.ids()[i];
      BATON_CHECK(pool_.ReferencesOf(block) == 1 && !pool_.IsRetained(block), "an unchecked block is shared");
    }
  }
  kept_.CheckInvariants();
  tree_.CheckInvariants();
}

// --- checks of written blocks --------------------------------------------------------------------
//
// A check compares written blocks with the digests that their writer has sent. UCX does not
// authenticate writers, so a check detects forged writes. Only a WriteGuard, whose worker does not
// use UCX, prevents them.

ClaimedKv HandoffReceiver::TakeKv(Reservation& reservation) {
  return {std::move(reservation.table), std::move(reservation.request.keys), reservation.request.kv_tokens};
}

std::optional<BlockCheck> HandoffReceiver::NextCheck() {
  if (to_be_checked_.empty()) return std::nullopt;
  const ReservationId id = to_be_checked_.front();
  to_be_checked_.pop_front();
  const Reservation& reservation = checks_.at(id);
  const std::span<const BlockId> written = reservation.table.ids().subspan(reservation.held);
  return BlockCheck{id, {written.begin(), written.end()}};
}

absl::Status HandoffReceiver::Compare(const Reservation& reservation,
                                      const absl::StatusOr<std::vector<BlockDigest>>& digests) const {
  RETURN_IF_ERROR(digests.status());
  BATON_CHECK(digests->size() == reservation.digests.size(), "the number of digests differs from the number of blocks");
  for (size_t i = 0; i < digests->size(); ++i) {
    if ((*digests)[i] == reservation.digests[i]) continue;
    // Does not log the digests, because a reader of the log could confirm a guessed prompt with
    // them.
    return absl::DataLossError(
        absl::StrCat("request ", reservation.request.request_id, ": KV block ", reservation.held + i, " of ",
                     reservation.table.size(),
                     " differs from the block that the prefill worker sent: it was damaged in transit or overwritten"));
  }
  return absl::OkStatus();
}

std::optional<absl::StatusOr<ClaimedKv>> HandoffReceiver::OnDigests(
    ReservationId check, const absl::StatusOr<std::vector<BlockDigest>>& digests, absl::Time now) {
  Tick(now);
  auto taken = checks_.extract(check);
  BATON_CHECK(!taken.empty(), "there is no such check");
  Reservation& reservation = taken.mapped();
  const absl::Status same = Compare(reservation, digests);
  if (!same.ok()) {
    failed_checks_ += absl::IsDataLoss(same);
    spdlog::error("{}", same.ToString());
  } else {
    ShareWrittenBlocks(reservation);
  }
  if (reservation.request.cache_only || !same.ok()) RoomMayHaveCome();
  if (reservation.request.cache_only) return std::nullopt;
  if (!same.ok()) return same;
  return TakeKv(reservation);
}

}  // namespace baton
