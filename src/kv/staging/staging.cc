#include "kv/staging/staging.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace baton {
namespace {

constexpr int64_t kWritesAtOnce = 4;
constexpr double kOfLatestCopies = 0.2;  // weight of the latest step in the mean copy time

std::vector<int64_t> Slots(int64_t count) {
  BATON_CHECK(count >= 0, "a tier of negative size");
  std::vector<int64_t> slots;
  slots.reserve(static_cast<size_t>(count));
  for (int64_t i = count - 1; i >= 0; --i) slots.push_back(i);
  return slots;
}

}  // namespace

KvStaging::KvStaging(StagingOptions options)
    : options_(options),
      free_host_(Slots(options.host)),
      free_disk_(Slots(options.disk)),
      faults_(options.disk_patience) {
  BATON_CHECK(options_.disk == 0 || options_.host > 0, "the disk is reached through host memory");
}

KvStaging::Entry* KvStaging::EntryOf(const BlockKey& key) const {
  const auto found = entries_.find(key);
  return found == entries_.end() ? nullptr : found->second.get();
}

KvStaging::Entry& KvStaging::Require(const BlockKey& key) const {
  Entry* entry = EntryOf(key);
  BATON_CHECK(entry != nullptr, "the block is not staged");
  return *entry;
}

bool KvStaging::MayLeaveHost(const Entry& entry) {
  return entry.host != kNone && !entry.reading && !entry.writing && entry.holds == 0 && entry.in_steps == 0;
}

// A block that is also in host memory stays on disk, unless it is back in the pool. It was written
// because it leaves host memory soon.
bool KvStaging::MayLeaveDisk(const Entry& entry) {
  return entry.disk != kNone && !entry.reading && !entry.writing && (entry.host == kNone || entry.in_pool);
}

template <typename Function>
void KvStaging::Change(Entry& entry, Function change) {
  if (host_order_.erase(HostRank(entry)) > 0) host_copies_ -= HasCopy(entry);
  disk_order_.erase(DiskRank(entry));
  if (entry.holds > 0) --held_;
  change();
  if (entry.holds > 0) ++held_;
  if (MayLeaveHost(entry)) {
    host_order_[HostRank(entry)] = &entry;
    host_copies_ += HasCopy(entry);
  }
  if (MayLeaveDisk(entry)) disk_order_[DiskRank(entry)] = &entry;
  if (entry.host == kNone && entry.disk == kNone && entry.holds == 0) {
    const BlockKey key = entry.key;  // erase destroys the entry
    entries_.erase(key);
  }
}

int64_t KvStaging::TakeHostSlot() {
  if (free_host_.empty()) {
    if (host_order_.empty()) return kNone;
    Entry& entry = *host_order_.begin()->second;
    free_host_.push_back(entry.host);
    Change(entry, [&] { entry.host = kNone; });
  }
  const int64_t slot = free_host_.back();
  free_host_.pop_back();
  return slot;
}

int64_t KvStaging::TakeDiskSlot() {
  if (free_disk_.empty()) {
    if (disk_order_.empty()) return kNone;
    Entry& entry = *disk_order_.begin()->second;
    free_disk_.push_back(entry.disk);
    Change(entry, [&] { entry.disk = kNone; });
  }
  const int64_t slot = free_disk_.back();
  free_disk_.pop_back();
  return slot;
}

void KvStaging::Keep(const BlockKey& key, BlockId block) {
  Entry* entry = EntryOf(key);
  int64_t slot = kNone;
  if (entry == nullptr || entry->host == kNone) {
    slot = TakeHostSlot();
    if (slot == kNone) return;
    entry = EntryOf(key);
  }
  if (entry == nullptr) {
    entry = (entries_[key] = std::make_unique<Entry>()).get();
    entry->key = key;
    entry->used = ++hottest_;
  }
  Change(*entry, [&] {
    entry->used = ++hottest_;
    entry->in_pool = false;
    if (slot == kNone) return;  // Host memory has the bytes already.
    entry->host = slot;
    ++entry->in_steps;
    in_step_.push_back(entry);
    copies_.out.push_back({block, slot});
  });
}

KvStaging::Found KvStaging::Find(std::span<const BlockKey> keys) const {
  Found found;
  for (const BlockKey& key : keys) {
    const Entry* entry = EntryOf(key);
    if (entry == nullptr || (entry->host == kNone && entry->disk == kNone)) break;
    // The read is a probe, or the disk is off. No request waits for such a read.
    if (entry->reading && (pace_.slow() || faults_.is_off())) break;
    if (entry->host == kNone) ++found.reads;
    ++found.blocks;
    if (found.reads == 0) found.before_reads = found.blocks;
  }
  return found;
}

int64_t KvStaging::Hold(std::span<const BlockKey> keys) {
  const Found found = Find(keys);
  auto in_tiers = static_cast<size_t>(found.blocks);
  const bool pays = found.reads == 0 || (!faults_.is_off() && pace_.Pays(found.reads, reading_));
  if (!pays) in_tiers = static_cast<size_t>(found.before_reads);
  if (!pays && !faults_.is_off()) not_read_ += found.reads;
  size_t count = 0;
  // Hold all blocks before reads begin, because a read may evict a block that is not held.
  for (; count < in_tiers; ++count) {
    Entry& entry = Require(keys[count]);
    if (entry.holds == 0 && held_ >= std::max<int64_t>(1, options_.host / 2)) break;
    Change(entry, [&] { ++entry.holds; });
  }
  // Mark the blocks as used from last to first. The end of a prompt is useless without its
  // beginning, so the end should be evicted first.
  for (size_t i = count; i > 0; --i) {
    Entry& entry = Require(keys[i - 1]);
    Change(entry, [&] { entry.used = ++hottest_; });
  }
  for (size_t i = 0; i < count; ++i) {
    Entry& entry = Require(keys[i]);
    if (entry.host != kNone || BeginRead(entry)) continue;
    Release(keys.subspan(i, count - i));
    return static_cast<int64_t>(i);
  }
  if (!pays && !faults_.is_off() && pace_.ShouldProbe(reading_)) BeginRead(Require(keys[in_tiers]));
  return static_cast<int64_t>(count);
}

bool KvStaging::BeginRead(Entry& entry) {
  const int64_t slot = TakeHostSlot();
  if (slot == kNone) return false;
  Change(entry, [&] {
    entry.host = slot;
    entry.reading = true;
  });
  ++reading_;
  transfers_.push_back({.read = true, .key = entry.key, .host_slot = slot, .disk_slot = entry.disk});
  return true;
}

void KvStaging::Release(std::span<const BlockKey> keys) {
  for (const BlockKey& key : keys) {
    Entry& entry = Require(key);
    BATON_CHECK(entry.holds > 0, "released a block that is not held");
    Change(entry, [&] { --entry.holds; });
  }
}

bool KvStaging::IsComing(const BlockKey& key) const {
  const Entry* entry = EntryOf(key);
  return entry != nullptr && entry->reading && !faults_.is_off();
}

bool KvStaging::IsHere(const BlockKey& key) const {
  const Entry* entry = EntryOf(key);
  return entry != nullptr && entry->host != kNone && !entry->reading;
}

bool KvStaging::MayCopyIn(int64_t step_blocks) const {
  const auto blocks = std::ssize(copies_.out) + std::ssize(copies_.in);
  const bool is_measured = copy_time_ > absl::ZeroDuration() && compute_time_ > absl::ZeroDuration();
  return copies_.in.empty() || !is_measured || copy_time_ * (blocks + 1) <= compute_time_ * step_blocks;
}

void KvStaging::UseInStep(const BlockKey& key) {
  BATON_CHECK(IsHere(key), "used a block that is not in host memory");
  Entry& entry = Require(key);
  Change(entry, [&] { ++entry.in_steps; });
  in_step_.push_back(&entry);
}

KvStaging::Tier KvStaging::CopyIn(const BlockKey& key, BlockId block) {
  Entry& entry = Require(key);
  BATON_CHECK(entry.in_steps > 0, "copied a block that the step does not use");
  copies_.in.push_back({block, entry.host});
  copied_in_.push_back(&entry);
  return std::exchange(entry.was_read, false) ? Tier::kDisk : Tier::kHost;
}

void KvStaging::CopiesDone(absl::Duration took) {
  const auto blocks = std::ssize(copies_.out) + std::ssize(copies_.in);
  BATON_CHECK(blocks > 0, "nothing was copied");
  const double latest = copy_time_ == absl::ZeroDuration() ? 1 : kOfLatestCopies;
  copy_time_ += (took / blocks - copy_time_) * latest;
}

void KvStaging::SetComputeTime(absl::Duration time) {
  compute_time_ = time;
  pace_.SetComputeTime(time);
}

void KvStaging::EndStep(bool kept) {
  if (kept) {
    for (Entry* entry : copied_in_) {
      Change(*entry, [&] {
        entry->in_pool = true;
        entry->used = --coldest_;
      });
    }
  }
  for (Entry* entry : in_step_) {
    Change(*entry, [&] { --entry->in_steps; });
  }
  copied_in_.clear();
  in_step_.clear();
  copies_.out.clear();
  copies_.in.clear();
}

// Plans writes until half of host memory can be reused without losing a block. Half of host memory
// is also the most that prompts may hold.
void KvStaging::PlanWrites() {
  if (options_.disk == 0 || !faults_.MayWrite()) return;
  const auto ready = [&] { return std::ssize(free_host_) + host_copies_ + writing_; };
  // The ranks of blocks with a copy are less than this rank. Those of all other blocks are greater.
  const EvictionRank first_without_copy({.last_use = std::numeric_limits<int64_t>::min()});
  while (writing_ < kWritesAtOnce && host_copies_ < std::ssize(host_order_) &&
         ready() < std::max<int64_t>(1, options_.host / 2)) {
    const int64_t slot = TakeDiskSlot();
    if (slot == kNone) return;
    Entry& entry = *host_order_.lower_bound(first_without_copy)->second;
    Change(entry, [&] {
      entry.disk = slot;
      entry.writing = true;
    });
    ++writing_;
    transfers_.push_back({.read = false, .key = entry.key, .host_slot = entry.host, .disk_slot = slot});
  }
}

std::vector<DiskTransfer> KvStaging::TakeTransfers(absl::Time now) {
  PlanWrites();
  if (!transfers_.empty()) faults_.OnBegun(now);
  return std::exchange(transfers_, {});
}

void KvStaging::OnTransferred(const DiskTransfer& transfer, const absl::Status& status, absl::Duration took,
                              absl::Time now) {
  const bool was_off = faults_.is_off();
  Entry& entry = Require(transfer.key);
  BATON_CHECK(transfer.read ? entry.reading : entry.writing, "a transfer ended that has not begun");
  if (transfer.read && !status.ok()) {
    free_host_.push_back(entry.host);
    ++failures_;
  }
  Change(entry, [&] {
    if (!status.ok() || was_off) free_disk_.push_back(std::exchange(entry.disk, kNone));
    if (transfer.read && !status.ok()) entry.host = kNone;
    entry.was_read = transfer.read && status.ok();
    entry.reading = entry.writing = false;
  });
  --(transfer.read ? reading_ : writing_);
  if (transfer.read && status.ok()) pace_.OnRead(took, reading_, now);
  faults_.OnEnded(status, !transfer.read, reading_ + writing_ > std::ssize(transfers_), now);
  if (faults_.is_off() && !was_off) LeaveDisk();
}

void KvStaging::Tick(absl::Time now) {
  const bool was_off = faults_.is_off();
  faults_.Tick(now);
  if (faults_.is_off() && !was_off) LeaveDisk();
}

void KvStaging::LeaveDisk() {
  std::vector<Entry*> on_disk;
  for (const auto& [key, entry] : entries_) {
    if (entry->disk != kNone && !entry->reading && !entry->writing) on_disk.push_back(entry.get());
  }
  for (Entry* entry : on_disk) {
    Change(*entry, [&] { free_disk_.push_back(std::exchange(entry->disk, kNone)); });
  }
}

KvStaging::Counts KvStaging::counts() const {
  return {.host = options_.host - std::ssize(free_host_),
          .disk = options_.disk - std::ssize(free_disk_),
          .failures = failures_,
          .not_read = not_read_,
          .disk_off = faults_.is_off() ? 1 : 0,
          .held = held_,
          .reading = reading_,
          .writing = writing_};
}

void KvStaging::CheckInvariants() const {
  BATON_CHECK(in_step_.empty() && copied_in_.empty() && copies_.out.empty() && copies_.in.empty(),
              "a step has not ended");
  std::vector<bool> host(static_cast<size_t>(options_.host)), disk(static_cast<size_t>(options_.disk));
  const auto take = [](std::vector<bool>& slots, int64_t slot) {
    BATON_CHECK(slot >= 0 && slot < std::ssize(slots) && !slots[static_cast<size_t>(slot)], "a slot is used twice");
    slots[static_cast<size_t>(slot)] = true;
  };
  for (const int64_t slot : free_host_) take(host, slot);
  for (const int64_t slot : free_disk_) take(disk, slot);
  int64_t held = 0, reading = 0, writing = 0, copies = 0, may_leave_host = 0, may_leave_disk = 0;
  const auto listed = [](const Order& order, const EvictionRank& rank, const Entry& entry) {
    const auto found = order.find(rank);
    return found != order.end() && found->second == &entry;
  };
  for (const auto& [key, owned] : entries_) {
    const Entry& entry = *owned;
    BATON_CHECK(entry.key == key, "an entry is listed under a wrong key");
    BATON_CHECK(entry.in_steps == 0, "used by a step that has ended");
    if (entry.host != kNone) take(host, entry.host);
    if (entry.disk != kNone) take(disk, entry.disk);
    BATON_CHECK(entry.host != kNone || entry.disk != kNone || entry.holds > 0, "an entry has no slot and no hold");
    BATON_CHECK(!(entry.reading || entry.writing) || (entry.host != kNone && entry.disk != kNone),
                "a transfer lacks a host slot or a disk slot");
    BATON_CHECK(listed(host_order_, HostRank(entry), entry) == MayLeaveHost(entry),
                "a block that may leave host memory is not listed");
    BATON_CHECK(listed(disk_order_, DiskRank(entry), entry) == MayLeaveDisk(entry),
                "a block that may leave the disk is not listed");
    held += entry.holds > 0;
    reading += entry.reading;
    writing += entry.writing;
    copies += MayLeaveHost(entry) && HasCopy(entry);
    may_leave_host += MayLeaveHost(entry);
    may_leave_disk += MayLeaveDisk(entry);
  }
  BATON_CHECK(std::ranges::all_of(host, std::identity{}) && std::ranges::all_of(disk, std::identity{}),
              "a slot is lost");
  BATON_CHECK(held == held_ && reading == reading_ && writing == writing_, "entries miscounted");
  BATON_CHECK(
      copies == host_copies_ && may_leave_host == std::ssize(host_order_) && may_leave_disk == std::ssize(disk_order_),
      "an eviction order lists a block that may not be evicted");
}

}  // namespace baton
