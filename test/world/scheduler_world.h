#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "catch.h"
#include "engine/prefill/scheduler.h"
#include "world/fake_backend.h"

namespace baton {

// A scheduler, and a backend that computes its plans. The world checks all KV that is done.
class SchedulerWorld {
 public:
  SchedulerWorld(int64_t blocks, int64_t step_tokens, StagingOptions staging = {})
      : host_(static_cast<size_t>(staging.host)),
        disk_(static_cast<size_t>(staging.disk)),
        backend_(blocks),
        pool_(blocks),
        tree_(pool_),
        scheduler_(pool_, tree_, step_tokens, {.increment = 32, .step_tokens = step_tokens}, {.staging = staging}) {}

  PrefillScheduler& scheduler() { return scheduler_; }
  const BlockPool& pool() const { return pool_; }
  RadixTree& tree() { return tree_; }
  FakeBackend& backend() { return backend_; }
  const std::map<RequestId, std::vector<TokenId>>& requests() const { return requests_; }
  absl::Duration copy_time{};  // of a staged block; zero if not measured
  // Number of tokens of the request that are done. Each distinct prefix was computed at least once.
  int64_t done(const RequestId& id) const { return done_.at(id); }

  absl::Status Add(const RequestId& id, const std::vector<TokenId>& tokens, int32_t priority = 0,
                   bool streaming = false, absl::Time queue_order = {}, const std::string& tenant = "") {
    const absl::Status status = scheduler_.Add({.id = id,
                                                .spec = {.tokens = tokens, .tenant = tenant, .priority = priority},
                                                .kv_tokens = std::ssize(tokens),
                                                .keys = Keys(tokens),
                                                .queue_order = queue_order,
                                                .streaming = streaming});
    if (!status.ok()) return status;
    requests_[id] = tokens;
    done_[id] = 0;
    priorities_[id] = priority;
    if (streaming) streaming_.insert(id);
    return status;
  }
  absl::Status Extend(const RequestId& id, const std::vector<TokenId>& more, bool last) {
    std::vector<TokenId> tokens = requests_.at(id);
    const size_t keys_before = tokens.size() / kBlockTokens;
    tokens.insert(tokens.end(), more.begin(), more.end());
    const auto keys = Keys(tokens);
    const auto tokens_before = std::exchange(requests_.at(id), tokens);
    const absl::Status status =
        scheduler_.Extend(id, tokens, std::ssize(tokens), std::span(keys).subspan(keys_before), last);
    if (!status.ok()) requests_.at(id) = tokens_before;
    if (status.ok() && last) streaming_.erase(id);
    NoteProgress();
    return status;
  }
  void Limit(const RequestId& id, int64_t tokens) {
    scheduler_.Limit(id, tokens);
    NoteProgress();
  }
  bool IsOpen(const RequestId& id) const { return streaming_.contains(id); }
  void Remove(const RequestId& id) {
    scheduler_.Remove(id);
    requests_.erase(id);
    done_.erase(id);
    streaming_.erase(id);
  }

  bool Plan() {
    batch_ = &scheduler_.PlanStep();
    scheduler_.CheckInvariants();
    NoteProgress();
    return scheduler_.step_running();
  }
  std::vector<RequestId> Finish(bool ok = true) {
    CopyStaged();
    if (ok && !batch_->slices.empty()) REQUIRE(backend_.Forward(*batch_, [](int64_t) { return true; }).ok());
    std::vector<RequestId> failed = scheduler_.FinishStep(ok);
    scheduler_.CheckInvariants();
    NoteProgress();
    return failed;
  }

  // Transfers that the disk has not done yet.
  std::vector<DiskTransfer>& transfers() {
    for (const DiskTransfer& transfer : scheduler_.staging().TakeTransfers(now_)) transfers_.push_back(transfer);
    return transfers_;
  }
  void EndTransfer(size_t index, const absl::Status& status, absl::Duration took = absl::Microseconds(1)) {
    const DiskTransfer transfer = transfers()[index];
    transfers_.erase(transfers_.begin() + static_cast<ptrdiff_t>(index));
    Bytes &host = host_[static_cast<size_t>(transfer.host_slot)],
          &disk = disk_[static_cast<size_t>(transfer.disk_slot)];
    if (status.ok()) (transfer.read ? host : disk) = transfer.read ? disk : host;
    now_ += took;
    scheduler_.staging().OnTransferred(transfer, status, took, now_);
  }
  void Wait(absl::Duration time) {
    transfers();  // starts the transfers before time passes
    scheduler_.staging().Tick(now_ += time);
    scheduler_.session_protections().Tick(now_);
  }
  // Adds a session protection for all full blocks of the request.
  void Protect(const RequestId& id, absl::Duration duration) {
    const auto tokens = static_cast<int32_t>(requests_.at(id).size());
    scheduler_.LeaseOrProtect(id, {.tokens = tokens, .duration = duration, .only_protects = true}, {}, now_);
  }

 private:
  using Bytes = std::vector<std::byte>;

  // Copies at the end of the step, so that an earlier change of a slot is detected.
  void CopyStaged() {
    const auto bytes = static_cast<size_t>(FakeBackend::Layout().BlockBytes());
    const auto in_slab = [&](BlockId block) { return backend_.kv_slab().host().subspan(block.value() * bytes, bytes); };
    const StagedCopies& copies = scheduler_.staging().copies();
    for (const StagedCopy& copy : copies.out) {
      const auto source = in_slab(copy.block);
      host_[static_cast<size_t>(copy.slot)].assign(source.begin(), source.end());
    }
    for (const StagedCopy& copy : copies.in) {
      const Bytes& source = host_[static_cast<size_t>(copy.slot)];
      REQUIRE(source.size() == bytes);
      std::copy(source.begin(), source.end(), in_slab(copy.block).begin());
    }
    const auto count = std::ssize(copies.out) + std::ssize(copies.in);
    if (count > 0) scheduler_.staging().CopiesDone(copy_time * count);
  }
  static std::vector<BlockKey> Keys(const std::vector<TokenId>& tokens) {
    return BlockKeys(RootKey(std::array<uint8_t, 32>{}, ""), tokens);
  }
  // Checks that progress is contiguous, except for low-priority jobs, and that the KV up to it is
  // right.
  void NoteProgress() {
    for (const auto& progress : scheduler_.progress().Take()) {
      REQUIRE_FALSE(IsOpen(progress.request_id));
      const bool again = IsLowPriority(priorities_.at(progress.request_id)) && progress.begin == 0;
      REQUIRE((again || done_.at(progress.request_id) == progress.begin));
      REQUIRE(progress.begin % kBlockTokens == 0);
      done_.at(progress.request_id) = progress.end;
      CheckKv(progress.request_id, progress.end);
    }
  }
  // Checks that the KV of [0, done) gives the same next token as a computation alone. For that, the
  // last token is computed again in place, which writes the same bytes.
  void CheckKv(const RequestId& id, int64_t done) {
    const auto tokens = std::span<const TokenId>(requests_.at(id)).first(static_cast<size_t>(done));
    Batch batch;
    batch.slices.push_back({.tokens = tokens.last(1),
                            .start = static_cast<int32_t>(done) - 1,
                            .blocks = scheduler_.prompt(id).table.ids(),
                            .wants_logits = true});
    FakeBackend reader(backend_.kv_slab().host());
    REQUIRE(FakeBackend::Argmax(reader.Forward(batch, [](int64_t) { return true; })->data) ==
            FakeBackend::NextToken(tokens));
  }

  std::vector<Bytes> host_, disk_;
  std::vector<DiskTransfer> transfers_;
  absl::Time now_;
  FakeBackend backend_;
  BlockPool pool_;
  RadixTree tree_;
  PrefillScheduler scheduler_;
  const Batch* batch_ = nullptr;
  std::map<RequestId, std::vector<TokenId>> requests_;
  std::map<RequestId, int64_t> done_;
  std::map<RequestId, int32_t> priorities_;
  std::set<RequestId> streaming_;
};

}  // namespace baton
