#include "engine/prefill/scheduler.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "kv/block_layout.h"

namespace baton {

PrefillScheduler::PrefillScheduler(BlockPool& pool, RadixTree& tree, int64_t step_tokens, OpenPromptLimits open,
                                   KeptPrompts kept)
    : pool_(pool),
      tree_(tree),
      step_tokens_(step_tokens),
      leases_(pool, tree, kept.leased),
      session_leases_(tree),
      staging_(kept.staging) {
  BATON_CHECK(step_tokens_ >= kBlockTokens, "a step computes at least one block");
  LimitOpen(open);
}

void PrefillScheduler::LimitOpen(OpenPromptLimits open) {
  BATON_CHECK(open.step_tokens >= kBlockTokens, "open prompts may compute at least one block in a step");
  open_limits_ = open;
}

PrefillScheduler::~PrefillScheduler() {
  if (step_running()) FinishStep(false);
}

const PrefillScheduler::Request& PrefillScheduler::Get(const RequestId& id) const {
  const auto found = requests_.find(id);
  BATON_CHECK(found != requests_.end(), "no such request");
  return *found->second;
}

PrefillScheduler::Request& PrefillScheduler::Get(const RequestId& id) {
  return const_cast<Request&>(std::as_const(*this).Get(id));
}

absl::Status PrefillScheduler::CheckFits(int64_t tokens) const {
  if (BlocksFor(tokens) <= pool_.counts().total) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the prompt can never fit: it needs ", BlocksFor(tokens),
                                                 " KV blocks, this prefill worker has ", pool_.counts().total));
}

absl::Status PrefillScheduler::Add(PrefillTask task) {
  BATON_CHECK(!requests_.contains(task.request_id), "added twice");
  const auto tokens = static_cast<int64_t>(task.tokens.size());
  BATON_CHECK(static_cast<int64_t>(task.keys.size()) == tokens / kBlockTokens, "one key for each full block");
  BATON_CHECK(!task.open || tokens % kBlockTokens == 0, "an open prompt has whole blocks");
  RETURN_IF_ERROR(CheckFits(tokens));
  auto request = std::make_unique<Request>();
  request->arrival = ++arrivals_;
  request->wanted = tokens;
  request->told = !task.open;
  request->waited_for_open = open_in_step_;
  request->task = std::move(task);
  request->ready_at_add = Expect(*request, 0);
  if (tokens > 0) active_.insert(request.get());
  Spare(*request);
  whole_came_ |= !Yields(*request);
  requests_[request->task.request_id] = std::move(request);
  return absl::OkStatus();
}

absl::Status PrefillScheduler::Extend(const RequestId& id, std::span<const TokenId> tokens,
                                      std::span<const BlockKey> keys, bool last) {
  Request& request = Get(id);
  BATON_CHECK(request.task.open && !request.stopped, "extended after its end");
  const int64_t wanted = request.wanted + static_cast<int64_t>(tokens.size());
  RETURN_IF_ERROR(CheckFits(wanted));
  active_.erase(&request);
  if (request.task.tokens.capacity() < static_cast<size_t>(wanted)) {
    std::vector<TokenId> grown;
    grown.reserve(std::max(static_cast<size_t>(wanted), 2 * request.task.tokens.size()));
    grown.assign(request.task.tokens.begin(), request.task.tokens.end());
    request.task.tokens.swap(grown);
    if (step_running()) outgrown_.push_back(std::move(grown));
  }
  request.task.tokens.insert(request.task.tokens.end(), tokens.begin(), tokens.end());
  request.task.keys.insert(request.task.keys.end(), keys.begin(), keys.end());
  BATON_CHECK(static_cast<int64_t>(request.task.keys.size()) == wanted / kBlockTokens, "one key for each full block");
  BATON_CHECK(last || wanted % kBlockTokens == 0, "an open prompt has whole blocks");
  if (request.ready_at_add == request.wanted) request.ready_at_add = Expect(request, request.wanted);
  request.wanted = wanted;
  request.looked_again = false;
  request.task.open = !last;
  request.admitted = false;  // it needs more room
  request.extended = true;
  if (request.planned < request.wanted) active_.insert(&request);
  if (last) Spare(request);
  if (last && request.done >= request.wanted) TellAll(request);
  if (last) request.waited_for_open = std::max<int64_t>(0, open_in_step_ - (request.planned - request.slice_begin));
  whole_came_ |= !Yields(request);
  step_completes_ |= last && request.planned > request.done && request.planned >= request.wanted;
  return absl::OkStatus();
}

void PrefillScheduler::SetTurn(const RequestId& id, absl::Time turn) {
  Request& request = Get(id);
  const bool active = active_.erase(&request) > 0;
  request.task.turn = turn;
  if (active) active_.insert(&request);
  if (request.spares) Spare(request);
}

// What a prompt that was open has, now that nothing can take it away any more.
void PrefillScheduler::TellAll(Request& request) {
  if (request.told || request.task.open) return;
  request.told = true;
  if (request.done > 0) progress_.push_back({request.task.request_id, 0, request.done});
}

void PrefillScheduler::Limit(const RequestId& id, int64_t tokens) {
  Request& request = Get(id);
  if (tokens >= request.wanted) return;
  BATON_CHECK(tokens >= 0 && tokens % kBlockTokens == 0, "limited to whole blocks");
  request.wanted = tokens;
  if (request.planned >= request.wanted) {
    active_.erase(&request);
    SpareNoMore(request);
  }
  if (request.done >= request.wanted) TellAll(request);
}

void PrefillScheduler::Stop(const RequestId& id) {
  Request& request = Get(id);
  request.stopped = true;
  ReleaseStaged(request);
  SpareNoMore(request);
  active_.erase(&request);
}

void PrefillScheduler::Remove(const RequestId& id) {
  Stop(id);
  auto node = requests_.extract(id);
  if (node.mapped()->planned > node.mapped()->done) removed_.push_back(std::move(node.mapped()));
}

// Beside other requests in a step.
bool PrefillScheduler::IsWorthwhile(const Request& request) const {
  return !request.task.open || request.wanted - request.planned >= open_limits_.increment;
}

bool PrefillScheduler::OpenAreWorthAStep() const {
  int64_t tokens = 0;
  for (const Request* request : active_) {
    if (request->task.open) tokens += request->wanted - request->planned;
  }
  return tokens >= open_limits_.alone;
}

// That the next step may compute for open prompts.
int64_t PrefillScheduler::OpenTokens() const {
  int64_t waited_for = 0;
  for (const Request* request : active_) {
    if (!Yields(*request)) waited_for = std::max(waited_for, request->waited_for_open);
  }
  return open_limits_.step_tokens - waited_for;
}

// `alone`: what waits has waited for blocks so far, and not for open prompts.
void PrefillScheduler::NoteOpen(bool alone) {
  for (Request* request : active_) {
    if (!Yields(*request)) request->waited_for_open = open_in_step_ + (alone ? 0 : request->waited_for_open);
  }
}

// Blocks that an admitted request may still take.
int64_t PrefillScheduler::Outstanding(const Request& request) {
  return std::max<int64_t>(0, BlocksFor(request.wanted) - static_cast<int64_t>(request.table.size()));
}

int64_t PrefillScheduler::Reserved() const {
  int64_t blocks = 0;
  for (const Request* request : active_) {
    if (request->admitted) blocks += Outstanding(*request);
  }
  return blocks;
}

// Blocks that must be available for a request to be admitted: ready ones that somebody refers to, itself perhaps, cost
// nothing; those that nobody refers to are no longer available.
int64_t PrefillScheduler::Needed(const Request& request) const {
  const size_t full = std::min(request.task.keys.size(), static_cast<size_t>(BlocksFor(request.wanted)));
  const auto keys = std::span<const BlockKey>(request.task.keys).first(full);
  return BlocksFor(request.wanted) - tree_.ReadyPrefix(keys) + tree_.CachedInPrefix(keys);
}

bool PrefillScheduler::Admit(Request& request, int64_t& reserved) {
  MakeRoom(request, reserved);
  if (Needed(request) > tree_.Available() - reserved) return false;
  request.admitted = true;
  reserved += Needed(request);
  TellAll(request);
  return true;
}

// Takes blocks, and those promised, from the background, and for a closed one also from those of which nothing was told
// yet, open ones and those closed lately; for the background from nobody. The least urgent first; what the step being
// planned uses stays.
void PrefillScheduler::MakeRoom(const Request& request, int64_t& reserved) {
  if (IsBackground(request.task.priority) || Needed(request) <= tree_.Available() - reserved) return;
  std::vector<Request*> victims;
  for (const auto& [id, other] : requests_) {
    const bool in_step = other->planned > other->done;
    const bool gives_way = IsBackground(other->task.priority) || (!other->told && !request.task.open);
    const bool has_some = other->table.size() > 0 || other->admitted;
    if (gives_way && has_some && !in_step && other.get() != &request) victims.push_back(other.get());
  }
  if (request.task.open && Needed(request) > tree_.Available() - reserved + Given(victims)) return;
  std::ranges::sort(victims, [this](const Request* a, const Request* b) { return GivesWayBefore(*a, *b); });
  for (Request* victim : victims) {
    if (Needed(request) <= tree_.Available() - reserved) return;
    if (victim->admitted && active_.contains(victim)) reserved -= Outstanding(*victim);
    GiveBack(*victim);
  }
  if (!request.task.open) EndLeases(request, reserved);
}

// Blocks at most that these could give back.
int64_t PrefillScheduler::Given(const std::vector<Request*>& victims) const {
  int64_t blocks = 0;
  for (Request* victim : victims) {
    const bool promised = victim->admitted && active_.contains(victim);
    blocks += static_cast<int64_t>(victim->table.size()) + (promised ? Outstanding(*victim) : 0);
  }
  return blocks;
}

// As many as make room, if all of them could.
void PrefillScheduler::EndLeases(const Request& request, int64_t reserved) {
  const auto lacking = [&] { return Needed(request) - (tree_.Available() - reserved); };
  if (lacking() > leases_.blocks()) return;
  while (lacking() > 0 && leases_.blocks() > 0) leases_.EndFirst();
}

// Its full blocks stay in the cache as long as nobody needs the room. What was told of one in the background, of which
// nothing moves, is told again.
void PrefillScheduler::GiveBack(Request& request) {
  request.told = false;
  request.table.Truncate(0);
  request.planned = request.done = request.own_begin = request.slice_begin = 0;
  request.counters = {};
  request.ready_at_add = Expect(request, request.wanted);
  request.looked_again = false;
  request.admitted = false;
  if (!request.stopped && request.wanted > 0) active_.insert(&request);
  Spare(request);
}

const Batch& PrefillScheduler::PlanStep() {
  BATON_CHECK(!step_running(), "the last step has not been finished");
  if (active_.empty()) return batch_;
  ++plans_;
  const StepOrder order = OrderStep();
  const int64_t open_tokens = OpenTokens();
  StepRoom room{.tokens = step_tokens_, .open_tokens = open_tokens, .reserved = Reserved()};
  PlanRequests(
      order.requests, [this](const Request& request) { return IsWorthwhile(request); }, room);
  // The worker would idle: what is left is open, or waits for blocks.
  const auto yields = [open = OpenAreWorthAStep()](const Request& request) {
    return Yields(request) && (open || !request.task.open);
  };
  const bool alone =
      !step_running() && std::ranges::any_of(order.requests, [&](const Request* request) { return yields(*request); });
  if (alone) {
    room.open_tokens = open_limits_.step_tokens;
    PlanRequests(order.requests, yields, room);
  }
  open_in_step_ = (alone ? open_limits_.step_tokens : open_tokens) - room.open_tokens;
  NoteOpen(alone);
  NoteTurns(order, room);
  whole_came_ = false;
  step_completes_ = std::ranges::any_of(
      step_, [](const Request* request) { return !request->task.open && request->planned >= request->wanted; });
  step_of_open_ = std::all_of(step_.begin(), step_.end(), [](const Request* request) { return Yields(*request); });
  return batch_;
}

void PrefillScheduler::PlanRequests(const std::vector<Request*>& order,
                                    absl::FunctionRef<bool(const Request&)> takes_part, StepRoom& room) {
  bool admitting = true;
  for (Request* request : order) {
    if (room.tokens < kBlockTokens) break;
    const bool open = request->task.open, yields = Yields(*request);
    if (!takes_part(*request) || !active_.contains(request) || (yields && room.open_tokens < kBlockTokens)) continue;
    if (!request->admitted) {
      if ((!admitting && !open) || WaitsForDisk(*request)) continue;
      if (!Admit(*request, room.reserved)) {
        admitting = admitting && open;  // nobody overtakes a request that waits for blocks, unless it is open
        continue;
      }
      if (!open && !IsBackground(request->task.priority)) room.spent[request->task.tenant] += kBlockTokens;
    }
    // Promised blocks that are taken up stay reserved until the step has succeeded.
    const int64_t available = tree_.Available();
    const int64_t computes = Advance(*request, yields ? std::min(room.tokens, room.open_tokens) : room.tokens);
    room.tokens -= computes;
    if (computes > 0 && !IsBackground(request->task.priority)) room.spent[request->task.tenant] += computes;
    if (yields) room.open_tokens -= computes;
    room.reserved -= available - tree_.Available();
  }
}

// Returns the number of tokens that the step computes for the request.
int64_t PrefillScheduler::Advance(Request& request, int64_t budget) {
  const int64_t begin = request.done;
  request.plan = plans_;
  TakeUp(request, RadixTree::State::kReady);
  SpareNoMore(request);
  SetDone(request, request.planned);
  request.counters_before = request.counters;
  TakeUp(request, RadixTree::State::kPromised);
  const bool all_back = BringBack(request);
  request.slice_begin = request.planned;
  if (all_back) PlanSlice(request, budget);
  if (request.planned > request.done) step_.push_back(&request);
  if (request.planned >= request.wanted) active_.erase(&request);
  BATON_CHECK(request.planned > begin || budget < kBlockTokens || !all_back, "an admitted request made no progress");
  return request.planned - request.slice_begin;
}

void PrefillScheduler::TakeUp(Request& request, RadixTree::State state) {
  const std::vector<BlockKey>& keys = request.task.keys;
  while (request.planned < request.wanted && request.table.size() < keys.size()) {
    const BlockKey& key = keys[request.table.size()];
    if (tree_.Find(key) != state) break;
    const bool cached = state == RadixTree::State::kReady && request.planned < request.ready_at_add;
    (cached ? request.counters.cached : request.counters.shared) += kBlockTokens;
    request.table.Append(IsBackground(request.task.priority) ? tree_.Share(key) : tree_.Acquire(key));
    request.planned += kBlockTokens;
  }
}

void PrefillScheduler::PlanSlice(Request& request, int64_t budget) {
  request.slice_begin = request.planned;
  const int64_t left = request.wanted - request.planned;
  const int64_t take = left <= budget ? left : budget - budget % kBlockTokens;
  if (take <= 0) return;
  const auto begin = static_cast<size_t>(request.planned);
  request.planned += take;
  const std::span<const BlockKey> keys(request.task.keys);
  while (static_cast<int64_t>(request.table.size()) < BlocksFor(request.planned)) {
    BlockRef block = Allocate();
    const size_t index = request.table.size();
    if (index < keys.size()) tree_.Promise(keys.first(index + 1), block);
    request.table.Append(std::move(block));
  }
  request.counters.computed += static_cast<int32_t>(take);
  batch_.slices.push_back({
      .tokens = std::span<const TokenId>(request.task.tokens).subspan(begin, static_cast<size_t>(take)),
      .start = static_cast<int32_t>(begin),
      .blocks = request.table.ids(),
  });
}

std::vector<PrefillScheduler::Progress> PrefillScheduler::LastSlices() const {
  std::vector<Progress> slices;
  for (const Request* request : step_) {
    const bool has_slice = request->slice_begin < request->planned;
    if (request->stopped || !request->told || !has_slice || request->planned < request->wanted) continue;
    slices.push_back({request->task.request_id, request->slice_begin, request->planned});
  }
  return slices;
}

void PrefillScheduler::ForEachInStep(absl::FunctionRef<void(const RequestId& id, int64_t tokens)> visit) const {
  for (const Request* request : step_) visit(request->task.request_id, request->planned - request->slice_begin);
}

std::vector<RequestId> PrefillScheduler::FinishStep(bool ok) {
  BATON_CHECK(step_running(), "no step is running");
  std::vector<RequestId> failed;
  if (ok) {
    for (Request* request : step_) KeepPromises(*request);
  } else {
    for (auto it = step_.rbegin(); it != step_.rend(); ++it) {
      Request& request = **it;
      const bool has_slice = request.slice_begin < request.planned;
      RollBack(request);
      if (request.stopped) continue;
      if (has_slice) {
        request.stopped = true;
        failed.push_back(request.task.request_id);
      } else if (request.planned < request.wanted) {
        active_.insert(&request);
      }
    }
  }
  ForgetStep(ok);
  return failed;
}

void PrefillScheduler::BreakOffStep(double done) {
  BATON_CHECK(step_running() && step_of_open_, "no step that may be broken off is running");
  const auto not_done = static_cast<int64_t>((1 - done) * static_cast<double>(open_in_step_));
  for (Request* request : active_) {
    request->waited_for_open = std::max<int64_t>(0, request->waited_for_open - not_done);
  }
  for (auto it = step_.rbegin(); it != step_.rend(); ++it) {
    const auto spent = static_cast<double>((*it)->planned - (*it)->slice_begin);
    if (!IsBackground((*it)->task.priority))
      turns_.GiveBack((*it)->task.tenant, static_cast<int64_t>((1 - done) * spent));
    RollBack(**it);
    if (!(*it)->stopped && (*it)->planned < (*it)->wanted) active_.insert(*it);
  }
  ForgetStep(false);
}

void PrefillScheduler::ForgetStep(bool ok) {
  open_in_step_ = 0;
  staging_.EndStep(ok);
  for (Request* request : step_) {
    if (!request->stopped) continue;
    active_.erase(request);
    SpareNoMore(*request);
  }
  step_.clear();
  batch_.slices.clear();
  removed_.clear();
  outgrown_.clear();
  leases_.Grant(tree_.Available() - Reserved());
}

void PrefillScheduler::KeepPromises(Request& request) {
  const std::vector<BlockKey>& keys = request.task.keys;
  const auto end = std::min(keys.size(), request.table.size());
  for (auto i = static_cast<size_t>(request.own_begin / kBlockTokens); i < end; ++i) tree_.MakeReady(keys[i]);
  request.own_begin = request.slice_begin = request.planned;
  if (end >= request.staged_end) ReleaseStaged(request);
  SetDone(request, request.planned);
}

// To where the request was before the step. REQUIRES: those that share its promises were rolled back before.
void PrefillScheduler::RollBack(Request& request) {
  const std::vector<BlockKey>& keys = request.task.keys;
  if (request.own_begin < request.planned) {
    const auto first = static_cast<size_t>(request.own_begin / kBlockTokens);
    while (request.table.size() > first) {
      const BlockRef block = request.table.PopBack();
      if (request.table.size() < keys.size()) tree_.Break(keys[request.table.size()]);
    }
  }
  request.table.Truncate(static_cast<size_t>(BlocksFor(request.done)));
  request.planned = request.own_begin = request.slice_begin = request.done;
  request.counters = request.counters_before;
}

void PrefillScheduler::SetDone(Request& request, int64_t done) {
  if (done > request.done && !request.stopped && request.told) {
    progress_.push_back({request.task.request_id, request.done, done});
  }
  if (done > request.done && !request.stopped && request.task.open) grown_.push_back(request.task.request_id);
  request.done = done;
  if (!request.stopped && done >= request.wanted) TellAll(request);
}

void PrefillScheduler::Lease(const RequestId& id, const KvLease& lease, LeaseHolder holder, absl::Time now) {
  const std::span<const BlockKey> keys(Get(id).task.keys);
  const auto path = keys.first(std::min(keys.size(), static_cast<size_t>(lease.tokens / kBlockTokens)));
  if (lease.yields) return session_leases_.Add(path, now + lease.duration);
  leases_.Ask(holder, path, now + lease.duration);
  if (!step_running()) leases_.Grant(tree_.Available() - Reserved());
}

bool PrefillScheduler::IsComplete(const RequestId& id) const {
  const auto found = requests_.find(id);
  return found != requests_.end() && found->second->done >= found->second->wanted && !found->second->task.open;
}

PrefillScheduler::Load PrefillScheduler::load() const {
  Load load;
  for (const Request* request : active_) {
    ++(request->admitted ? load.running : load.waiting);
    if (IsBackground(request->task.priority)) continue;  // whoever comes does not wait for them
    load.queued_tokens += std::max<int64_t>(0, request->wanted - std::max(request->planned, request->ready_at_add));
  }
  return load;
}

void PrefillScheduler::CheckInvariants() const {
  tree_.CheckInvariants();
  leases_.CheckInvariants();
  if (!step_running()) staging_.CheckInvariants();
  for (const auto& [id, request] : requests_) {
    BATON_CHECK(id == request->task.request_id, "a request under another's id");
    BATON_CHECK(request->done <= request->planned, "more done than planned");
    BATON_CHECK(step_running() || request->done == request->planned, "something is planned and no step is running");
    BATON_CHECK(static_cast<int64_t>(request->table.size()) == BlocksFor(request->planned), "a table of wrong size");
    BATON_CHECK(request->admitted || request->table.size() == 0 || request->extended,
                "a request took blocks before it was admitted");
    const bool active = !request->stopped && request->planned < request->wanted;
    BATON_CHECK(active_.contains(request.get()) == active, "an inactive request is planned, or an active one is not");
    BATON_CHECK(!request->spares || active, "cached blocks are spared for a request that has what it wants");
    const PrefillCounters& counters = request->counters;
    const int64_t staged = counters.from_host + counters.from_disk;
    BATON_CHECK(counters.cached + counters.shared + staged + counters.computed == request->planned,
                "tokens miscounted");
  }
  BATON_CHECK(step_running() || removed_.empty(), "a removed request stayed");
  BATON_CHECK(Reserved() <= tree_.Available(), "an admitted request may find no block");
}

}  // namespace baton
