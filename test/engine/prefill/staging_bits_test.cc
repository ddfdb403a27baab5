// Same tokens in, same bits out (design idea 5), for evicted KV. The logits of the decode step are
// those of one pass, after the KV was in host memory or on disk.
#include <algorithm>
#include <array>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "catch.h"
#include "engine/prefill/decode_bits.h"
#include "engine/prefill/scheduler.h"
#include "kv/staging/store.h"

namespace baton {
namespace {

constexpr int64_t kPool = 14;
constexpr StagingOptions kStaging = {.host = 16, .disk = 80};

// Runs prompts one after the other, repeatedly. They do not fit into the pool together.
class StagedPrompts {
 public:
  StagedPrompts(const Weights& weights, const std::string& kernels, uint64_t seed)
      : random_(seed),
        prefill_(weights, {.lm_head = false, .kernels = kernels}, seed),
        decode_(weights, {.kernels = kernels}, seed + 1),
        store_(*StagingStore::Create({.host = kStaging.host}, prefill_->kv_layout().BlockBytes(), prefill_->kv_slab())),
        disk_(kStaging.disk) {
    const std::vector<TokenId> shared = prefill_.RandomTokens(50);
    for (int i = 0; i < 6; ++i) {
      std::vector<TokenId>& prompt = prompts_.emplace_back(shared);
      const std::vector<TokenId> own = prefill_.RandomTokens(100 + static_cast<int64_t>(random_() % 60));
      prompt.insert(prompt.end(), own.begin(), own.end());
    }
  }

  void Run() {
    for (int i = 0; i < 40; ++i) {
      RunOne(absl::StrCat(i), prompts_[random_() % prompts_.size()]);
      MoveAll();
    }
    scheduler_.CheckInvariants();
    CHECK(pool_.counts().referenced == 0);
    CHECK(from_host_ > 0);
    CHECK(from_disk_ > 0);
  }

 private:
  void RunOne(const RequestId& id, const std::vector<TokenId>& tokens) {
    const std::vector<TokenId> wanted(tokens.begin(), tokens.end() - 1);
    const auto keys = BlockKeys(RootKey(std::array<uint8_t, 32>{}, ""), wanted);
    REQUIRE(scheduler_.Add({.id = id, .spec = {.tokens = wanted}, .kv_tokens = std::ssize(wanted), .keys = keys}).ok());
    MoveAll();
    for (int plans = 0; !scheduler_.IsComplete(id); ++plans) {
      REQUIRE(plans < 100);
      const Batch& batch = scheduler_.PlanStep();
      MoveAll();  // the reads that PlanStep began, for which the prompt waits
      if (!scheduler_.step_running()) continue;
      REQUIRE(store_->Copy(scheduler_.staging().copies()).ok());
      if (!batch.slices.empty()) prefill_.Run(batch);
      REQUIRE(scheduler_.FinishStep(true).empty());
    }
    from_host_ += scheduler_.prompt(id).counters.from_host;
    from_disk_ += scheduler_.prompt(id).counters.from_disk;
    INFO("a prompt of " << tokens.size() << " tokens, of which " << scheduler_.prompt(id).counters.from_host
                        << " came from memory and " << scheduler_.prompt(id).counters.from_disk << " from disk");
    CheckDecodesLikeOnePass(prefill_, scheduler_.prompt(id).table.ids(), decode_, tokens);
    scheduler_.Remove(id);
  }

  void MoveAll() {
    for (auto transfers = scheduler_.staging().TakeTransfers({}); !transfers.empty();
         transfers = scheduler_.staging().TakeTransfers({})) {
      for (const DiskTransfer& transfer : transfers) Move(transfer);
    }
  }
  void Move(const DiskTransfer& transfer) {
    const std::span<std::byte> host = store_->HostSlot(transfer.host_slot);
    std::vector<std::byte>& disk = disk_[static_cast<size_t>(transfer.disk_slot)];
    if (transfer.read) {
      std::ranges::copy(disk, host.begin());
    } else {
      disk.assign(host.begin(), host.end());
    }
    scheduler_.staging().OnTransferred(transfer, absl::OkStatus(), absl::Microseconds(1), {});
  }

  std::mt19937 random_;
  TestBackend prefill_, decode_;
  std::unique_ptr<StagingStore> store_;
  std::vector<std::vector<std::byte>> disk_;
  BlockPool pool_{kPool};
  RadixTree tree_{pool_};
  PrefillScheduler scheduler_{pool_, tree_, 64, {}, {.staging = kStaging}};
  std::vector<std::vector<TokenId>> prompts_;
  int64_t from_host_ = 0, from_disk_ = 0;
};

TEST_CASE("Logits after staged KV are bit-equal to those of one pass") {
  ForEachTinyModel(1, [](const Weights& weights, const std::string& kernels, uint64_t seed) {
    StagedPrompts(weights, kernels, seed).Run();
  });
}

}  // namespace
}  // namespace baton
