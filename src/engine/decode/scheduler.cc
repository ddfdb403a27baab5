#include "engine/decode/scheduler.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "request/output_lengths.h"

namespace baton {
namespace {

// Upper bound on the levels of priority that count. Priorities beyond it are equal. It bounds the
// time by which a priority shifts the queue order.
constexpr int32_t kMaxPriorityLevels = 100;

// Returns how many blocks a sequence with KV of `kv_tokens` tokens needs beyond its `blocks` blocks
// for `new_tokens` more tokens. At least one more counts.
int64_t BlocksToGrow(int64_t kv_tokens, int64_t new_tokens, int64_t blocks) {
  return std::max<int64_t>(0, BlocksFor(kv_tokens + std::max<int64_t>(1, new_tokens)) - blocks);
}

}  // namespace

DecodeScheduler::DecodeScheduler(DecodeSchedulerOptions options, BlockPool& pool, RadixTree& tree)
    : options_(options), pool_(pool), tree_(tree) {
  BATON_CHECK(options_.max_batch >= 1, "max_batch must be positive");
  BATON_CHECK(options_.positions >= 1 && options_.positions <= pool.counts().total * kBlockTokens,
              "a single sequence must fit into the pool");
}

const DecodeScheduler::Sequence& DecodeScheduler::At(const SequenceId& id) const {
  const auto it = sequences_.find(id);
  BATON_CHECK(it != sequences_.end(), "no such sequence");
  return it->second;
}

DecodeScheduler::Sequence& DecodeScheduler::At(const SequenceId& id) {
  return const_cast<Sequence&>(std::as_const(*this).At(id));
}

Admission DecodeScheduler::Consider(const ReserveRequest& request, int64_t blocks_now,
                                    const HandoffReceiver::Outstanding& outstanding) const {
  const int64_t kv_tokens = request.kv_tokens;
  if (kv_tokens + 1 > options_.positions) {
    return NeverFits{absl::StrCat("the prompt has ", kv_tokens + 1, " tokens and needs ", BlocksFor(kv_tokens + 1),
                                  " KV blocks; the decode worker's limit is ", options_.positions, " tokens, it has ",
                                  pool_.counts().total, " blocks")};
  }
  const int64_t waiting = outstanding.reserved + outstanding.committed;
  const bool idle = sequences_.empty() && waiting == 0;
  const int64_t new_tokens = idle ? 1 : std::min<int64_t>(request.expected_new_tokens, options_.positions - kv_tokens);
  int64_t needed = blocks_now + BlocksToGrow(kv_tokens, new_tokens, BlocksFor(kv_tokens));
  needed += waiting + outstanding.growth_blocks;
  for (const auto& [id, sequence] : sequences_) needed += GrowthOf(sequence);
  if (needed <= tree_.Available()) return Admit{};
  return Wait{};
}

// Returns how many blocks the sequence is expected to need beyond those that it has.
int64_t DecodeScheduler::GrowthOf(const Sequence& sequence) {
  const int64_t made = sequence.kv.kv_tokens - sequence.first_kv_tokens;
  const int64_t left =
      ExpectedLeft(sequence.spec->expected_tokens, made, sequence.max_kv_tokens - sequence.first_kv_tokens);
  return BlocksToGrow(sequence.kv.kv_tokens, left, static_cast<int64_t>(sequence.kv.table.size()));
}

absl::Time DecodeScheduler::QueueOrder(const RequestSpec& spec, absl::Time arrived) const {
  const int32_t levels = std::clamp(spec.priority, -kMaxPriorityLevels, kMaxPriorityLevels);
  return arrived + spec.arrival_offset - levels * options_.time_per_priority;
}

SequenceId DecodeScheduler::Add(ClaimedKv kv, const RequestSpec& spec, absl::Time arrived) {
  BATON_CHECK(kv.kv_tokens + 1 <= options_.positions, "a sequence that can never run");
  BATON_CHECK(static_cast<int64_t>(kv.table.size()) == BlocksFor(kv.kv_tokens), "table and tokens differ");
  const SequenceId id{QueueOrder(spec, arrived), ++added_};
  Sequence& sequence = sequences_[id];
  sequence.spec = &spec;
  sequence.arrived = arrived;
  order_changed_ = true;
  // Output that a lost worker made counts against max_tokens, and it may have KV already.
  const int64_t made = spec.generated == 0 ? 0 : int64_t{kv.kv_tokens} + 1 - std::ssize(spec.tokens) + spec.generated;
  sequence.first_kv_tokens = kv.kv_tokens - made;
  sequence.max_kv_tokens = std::min<int64_t>(options_.positions, sequence.first_kv_tokens + spec.sampling.max_tokens);
  sequence.replayed_until = spec.generated == 0 ? 0 : std::ssize(spec.tokens);
  sequence.kv = std::move(kv);
  ShareBlocks(sequence);
  return id;
}

void DecodeScheduler::SetBlockKey(const SequenceId& id, const BlockKey& key) {
  Sequence& sequence = At(id);
  sequence.kv.keys.push_back(key);
  BATON_CHECK(static_cast<int64_t>(sequence.kv.keys.size()) == sequence.kv.kv_tokens / kBlockTokens,
              "a key must be set right after its block is full");
  ShareBlocks(sequence);
}

// Makes nodes of the tree from the full blocks with keys. If another request has made the node
// already, takes that node's block, which has the same content.
void DecodeScheduler::ShareBlocks(Sequence& sequence) {
  while (sequence.shared < sequence.kv.keys.size()) {
    const size_t i = sequence.shared;
    const RadixTree::State state = tree_.Find(sequence.kv.keys[i]);
    if (state == RadixTree::State::kPromised) return;
    const std::span path = std::span<const BlockKey>(sequence.kv.keys).first(i + 1);
    BlockRef block = state == RadixTree::State::kReady ? tree_.Acquire(path.back())
                                                       : tree_.Insert(path, pool_.Share(sequence.kv.table.ids()[i]));
    const BlockId before = sequence.kv.table.ids()[i];
    if (sequence.steps_in_flight > 0 && block.id() != before) replaced_.push_back(pool_.Share(before));
    sequence.kv.table.Replace(i, std::move(block));
    ++sequence.shared;
  }
}

void DecodeScheduler::Remove(const SequenceId& id) {
  const auto it = sequences_.find(id);
  BATON_CHECK(it != sequences_.end(), "no such sequence");
  Sequence& sequence = it->second;
  BATON_CHECK(!running_ || !IsCopied(id), "removed a sequence that the running step copies");
  if (sequence.steps_in_flight > 0) {
    BATON_CHECK(!has_next_, "removed a running sequence after BeginNext");
    std::ranges::replace(step_.batch, &sequence, nullptr);
    ended_.push_back(std::move(sequence.kv.table));
  }
  swapped_ -= sequence.swapped;
  sequences_.erase(it);
  order_changed_ = true;
}

bool DecodeScheduler::IsCopied(const SequenceId& id) const {
  const auto copies = [&](const SwapCopy& copy) { return copy.sequence == id; };
  return std::ranges::any_of(step_.plan.out, copies) || std::ranges::any_of(step_.plan.in, copies);
}

const DecodeScheduler::Order& DecodeScheduler::OrderNow() {
  if (std::exchange(order_changed_, false)) OrderSequences();
  return order_;
}

void DecodeScheduler::OrderSequences() {
  std::map<absl::string_view, Order> by_tenant;  // each in the order of SequenceId
  for (auto it = sequences_.begin(); it != sequences_.end(); ++it) by_tenant[it->second.spec->tenant].push_back(it);
  // The round k, the arrival of the tenant's k-th oldest sequence, and a number that makes it
  // unique.
  using Position = std::tuple<size_t, absl::Time, uint64_t>;
  std::vector<std::pair<Position, Sequences::iterator>> positions;
  for (const auto& [tenant, of_tenant] : by_tenant) {
    std::vector<absl::Time> arrivals;
    for (const Sequences::iterator it : of_tenant) arrivals.push_back(it->second.arrived);
    std::ranges::sort(arrivals);
    for (size_t k = 0; k < arrivals.size(); ++k) {
      positions.push_back({{k, arrivals[k], of_tenant[k]->first.number}, of_tenant[k]});
    }
  }
  std::ranges::sort(positions, {}, [](const auto& entry) { return entry.first; });
  order_.clear();
  for (const auto& [position, it] : positions) order_.push_back(it);
}

const DecodePlan& DecodeScheduler::BeginStep() {
  BATON_CHECK(!running_, "BeginStep while a step runs");
  running_ = true;
  step_.Clear();
  releasing_ = 0;
  leaving_.clear();
  bool waiting = false;  // a swapped sequence found no room, so none after it may come back
  const Order& order = OrderNow();
  for (auto position = order.cbegin(); position != order.cend(); ++position) {
    const Sequences::iterator it = *position;
    if (static_cast<int32_t>(step_.batch.size()) == options_.max_batch) break;
    if (it->second.swapping_out) continue;
    if (it->second.swapped && (waiting || !SwapIn(position))) {
      waiting = true;
      continue;
    }
    if (GrowOne(position)) step_.Add(it);
  }
  Begin(step_);
  return step_.plan;
}

// Returns true if the sequence may run in a step after those that have it.
bool DecodeScheduler::MayRunAgain(const Sequence& sequence) {
  const int64_t kv_tokens = sequence.kv.kv_tokens + sequence.steps_in_flight;
  // The device must not choose a token that is replayed.
  const bool replays = kv_tokens < sequence.replayed_until;
  return !sequence.stopped && (sequence.steps_in_flight == 0 || !replays) && kv_tokens < sequence.max_kv_tokens;
}

bool DecodeScheduler::MayBeginNext() const {
  const auto may_run_again = [](const auto& entry) { return MayRunAgain(entry.second); };
  return swapped_ == 0 && step_.plan.out.empty() && std::ranges::any_of(sequences_, may_run_again);
}

const DecodePlan* DecodeScheduler::BeginNext() {
  BATON_CHECK(running_ && !has_next_, "BeginNext needs a running step, and no planned one");
  if (!MayBeginNext()) return nullptr;
  next_.Clear();
  for (const Sequences::iterator it : OrderNow()) {
    if (static_cast<int32_t>(next_.batch.size()) == options_.max_batch) break;
    Sequence& sequence = it->second;
    if (!MayRunAgain(sequence)) continue;
    if (!Grow(sequence)) return nullptr;
    next_.Add(it);
  }
  if (next_.batch.empty()) return nullptr;
  Begin(next_);
  has_next_ = true;
  return &next_.plan;
}

void DecodeScheduler::Begin(const Step& step) {
  for (Sequence* sequence : step.batch) ++sequence->steps_in_flight;
}

void DecodeScheduler::DropNext() {
  BATON_CHECK(has_next_, "no step to drop");
  has_next_ = false;
  for (Sequence* sequence : next_.batch) --sequence->steps_in_flight;
}

// As Grow. If there is no block, makes room for one, which becomes free when this step is over.
bool DecodeScheduler::GrowOne(Order::const_iterator position) {
  if (Grow((*position)->second)) return true;
  MakeRoom(position, 1);
  return false;
}

// Makes sure that the table has a block for the token after those of computed and unfinished steps.
// Returns false if no block is available.
bool DecodeScheduler::Grow(Sequence& sequence) {
  const int64_t tokens = int64_t{sequence.kv.kv_tokens} + sequence.steps_in_flight + 1;
  if (BlocksFor(tokens) <= static_cast<int64_t>(sequence.kv.table.size())) return true;
  std::optional<BlockRef> block = tree_.Allocate();
  if (block) sequence.kv.table.Append(*std::move(block));
  return block.has_value();
}

// Copies a sequence back if one more block then remains for it and for each sequence of the batch
// so far. With less room, it might have to be swapped out again at once. Returns false if there is
// no room, and makes room for the next step.
bool DecodeScheduler::SwapIn(Order::const_iterator position) {
  Sequence& sequence = (*position)->second;
  const int64_t blocks = BlocksFor(sequence.kv.kv_tokens);
  const int64_t ready = tree_.ReadyPrefix(sequence.kv.keys);
  const int64_t needed = blocks - ready + tree_.CachedInPrefix(sequence.kv.keys);
  const int64_t room = std::min(needed + static_cast<int64_t>(step_.batch.size()) + 1, pool_.counts().total);
  if (tree_.Available() < room) {
    MakeRoom(position, room - tree_.Available());
    return false;
  }
  for (BlockRef& block : tree_.Match(sequence.kv.keys)) sequence.kv.table.Append(std::move(block));
  sequence.shared = sequence.kv.table.size();
  SwapCopy copy{(*position)->first, &sequence.host, {}};
  while (static_cast<int64_t>(sequence.kv.table.size()) < blocks) {
    std::optional<BlockRef> block = tree_.Allocate();
    BATON_CHECK(block.has_value(), "Available() was too high");
    copy.pieces.push_back({sequence.kv.table.size(), block->id()});
    sequence.kv.table.Append(*std::move(block));
  }
  sequence.swapped = false;
  --swapped_;
  step_.plan.in.push_back(std::move(copy));
  return true;
}

// Swaps out sequences that come after `for_sequence` in the order, the last one first, until
// `blocks` blocks will be free for `for_sequence` after this step. Swaps out none if all of them
// together would not free enough.
void DecodeScheduler::MakeRoom(Order::const_iterator for_sequence, int64_t blocks) {
  int64_t possible = releasing_;
  LeavingReferences leaving = leaving_;
  std::vector<Sequences::iterator> victims;
  for (auto position = std::prev(order_.cend()); possible < blocks && position != for_sequence; --position) {
    const Sequence& sequence = (*position)->second;
    if (sequence.swapped || sequence.swapping_out) continue;
    possible += BlocksFreedBy(sequence, leaving);
    victims.push_back(*position);
  }
  if (possible < blocks) return;
  for (const Sequences::iterator victim : victims) {
    const std::span ids = victim->second.kv.table.ids();
    const auto comes_free = [&](BlockId id) { return leaving.at(id) == pool_.ReferencesOf(id); };
    if (std::any_of(ids.begin(), ids.end(), comes_free)) SwapOut(victim);
  }
  releasing_ -= blocks;
}

// Returns how many more blocks become free if this sequence leaves too, after those that `leaving`
// counts. Adds the sequence's references to `leaving`.
int64_t DecodeScheduler::BlocksFreedBy(const Sequence& sequence, LeavingReferences& leaving) const {
  int64_t blocks = 0;
  for (const BlockId id : sequence.kv.table.ids()) blocks += ++leaving[id] == pool_.ReferencesOf(id);
  return blocks;
}

void DecodeScheduler::SwapOut(Sequences::iterator it) {
  Sequence& sequence = it->second;
  releasing_ += BlocksFreedBy(sequence, leaving_);
  sequence.swapping_out = true;
  ++preemptions_;
  SwapCopy copy{it->first, &sequence.host, {}};
  // A block that is only for the next token is not copied.
  const auto written = static_cast<size_t>(BlocksFor(sequence.kv.kv_tokens));
  for (size_t i = 0; i < written; ++i) copy.pieces.push_back({i, sequence.kv.table.ids()[i]});
  step_.plan.out.push_back(std::move(copy));
}

void DecodeScheduler::FinishStep() {
  BATON_CHECK(running_, "no step to finish");
  ended_.clear();
  replaced_.clear();
  for (const SwapCopy& copy : step_.plan.out) {
    Sequence& sequence = At(copy.sequence);
    sequence.kv.table.Truncate(0);
    sequence.shared = 0;
    sequence.swapping_out = false;
    sequence.swapped = true;
    ++swapped_;
  }
  for (Sequence* sequence : step_.batch) {
    if (sequence == nullptr) continue;
    ++sequence->kv.kv_tokens;
    --sequence->steps_in_flight;
  }
  for (const SwapCopy& copy : step_.plan.in) {
    Sequence& sequence = At(copy.sequence);
    sequence.host.reset();
    ShareBlocks(sequence);
  }
  running_ = std::exchange(has_next_, false);
  if (running_) std::swap(step_, next_);
}

DecodeScheduler::Counts DecodeScheduler::counts() const {
  return {.sequences = static_cast<int64_t>(sequences_.size()),
          .batch = std::ssize(step_.batch) - std::ranges::count(step_.batch, nullptr),
          .swapped = swapped_,
          .preemptions = preemptions_};
}

void DecodeScheduler::CheckInvariants() const {
  int64_t swapped = 0;
  for (const auto& [id, sequence] : sequences_) {
    swapped += sequence.swapped;
    const auto size = static_cast<int64_t>(sequence.kv.table.size());
    const int64_t full = BlocksFor(sequence.kv.kv_tokens);
    const bool covers = size >= full && size <= BlocksFor(sequence.kv.kv_tokens + (running_ ? 2 : 1));
    BATON_CHECK(sequence.swapped ? size == 0 : covers, "a table does not cover its tokens");
    BATON_CHECK(!sequence.swapped || sequence.host != nullptr || full == 0, "a swapped sequence has no host memory");
    BATON_CHECK(sequence.shared <= std::min(sequence.kv.keys.size(), sequence.kv.table.size()),
                "a sequence shares more blocks than it has");
    BATON_CHECK(running_ || !sequence.swapping_out, "a sequence is being swapped out, but no step is running");
    BATON_CHECK(sequence.kv.kv_tokens <= options_.positions, "a sequence beyond its positions");
  }
  BATON_CHECK(order_changed_ || order_.size() == sequences_.size(), "the order lacks a sequence");
  BATON_CHECK(swapped == swapped_, "swapped sequences miscounted");
  BATON_CHECK(running_ || (!has_next_ && ended_.empty() && replaced_.empty()), "state of a step is left after its end");
  std::map<const Sequence*, int32_t> in_flight;
  for (const auto& [is_started, step] : {std::pair(running_, &step_), std::pair(has_next_, &next_)}) {
    if (!is_started) continue;
    for (const Sequence* sequence : step->batch) ++in_flight[sequence];
  }
  for (const auto& [id, sequence] : sequences_) {
    BATON_CHECK(in_flight[&sequence] == sequence.steps_in_flight, "the steps of a sequence are miscounted");
  }
}

}  // namespace baton
