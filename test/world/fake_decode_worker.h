// A decode worker as a prefill worker sees it: the receiving side of the hand-off over a slab. It
// decodes one token, which shows whether the KV is right.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/status.h"
#include "engine/handoff/receiver.h"
#include "kv/block_pool.h"
#include "kv/radix_tree.h"
#include "world/fake_backend.h"

namespace baton {

// Not thread-safe.
class FakeDecodeWorker {
 public:
  // The worker's slab is that of `backend`.
  FakeDecodeWorker(FakeBackend& backend, Incarnation incarnation, std::string transport_descriptor, bool verify = false)
      : backend_(backend),
        pool_(static_cast<int64_t>(backend.kv_slab().size()) / FakeBackend::Layout().BlockBytes()),
        tree_(pool_),
        receiver_({.layout = FakeBackend::Layout(),
                   .numerics_id = backend.numerics_id(),
                   .incarnation = incarnation,
                   .transport_descriptor = std::move(transport_descriptor),
                   .verify = verify},
                  pool_, tree_, [this](const ReserveRequest& request, int64_t blocks_now) {
                    return Admission_(request, blocks_now);
                  }) {}

  HandoffReceiver& receiver() { return receiver_; }
  const BlockPool& pool() const { return pool_; }

  // Computes the digests that the receiver has requested, as a decode worker's own thread does.
  // Returns the result of the last one, for Start.
  std::optional<absl::StatusOr<ClaimedKv>> Check(absl::Time now) {
    std::optional<absl::StatusOr<ClaimedKv>> claimed;
    while (const std::optional<BlockCheck> check = receiver_.NextCheck()) {
      claimed =
          receiver_.OnDigests(check->id, DigestsOf(backend_.kv_slab(), FakeBackend::Layout(), check->blocks), now);
    }
    return claimed;
  }

  // Claims the KV of a hand-off, and decodes the first token after the prompt.
  absl::StatusOr<TokenId> FirstToken(const PrefillDone& done, const std::vector<TokenId>& prompt,
                                     const std::string& salt, absl::Time now) {
    DecodeJob job;
    job.request_id = done.request_id;
    job.reservation = done.reservation;
    job.decode_incarnation = done.decode_incarnation;
    job.blocks = done.blocks;
    job.spec.tokens = prompt;
    job.spec.cache_domain = salt;
    ASSIGN_OR_RETURN(Claim claim, receiver_.Start(job, now));
    if (std::holds_alternative<ReservationId>(claim)) {
      ASSIGN_OR_RETURN(claim, Check(now).value());
    }
    ClaimedKv& kv = std::get<ClaimedKv>(claim);
    const auto last = static_cast<int32_t>(prompt.size()) - 1;
    BATON_CHECK(kv.kv_tokens == last, "a claim of another length");
    if (static_cast<int64_t>(kv.table.size()) < BlocksFor(last + 1)) {
      std::optional<BlockRef> block = tree_.Allocate();
      if (!block) return absl::ResourceExhaustedError("no block for the first token");
      kv.table.Append(std::move(*block));
    }
    Batch batch;
    batch.slices.push_back(
        {.tokens = std::span(prompt).last(1), .start = last, .blocks = kv.table.ids(), .wants_logits = true});
    ASSIGN_OR_RETURN(const LogitsView logits, backend_.Forward(batch, [](int64_t) { return true; }));
    return FakeBackend::Argmax(logits.data);
  }

  void CheckInvariants() const {
    receiver_.CheckInvariants();
    tree_.CheckInvariants();
  }

 private:
  Admission Admission_(const ReserveRequest& request, int64_t blocks_now) const {
    if (BlocksFor(request.kv_tokens) > pool_.counts().total) {
      return NeverFits{absl::StrCat("it needs ", BlocksFor(request.kv_tokens), " blocks of ", pool_.counts().total)};
    }
    if (blocks_now > tree_.Available()) return Wait{};
    return Admit{};
  }

  FakeBackend& backend_;
  BlockPool pool_;
  RadixTree tree_;
  HandoffReceiver receiver_;
};

}  // namespace baton
