#include "router/session_gate.h"

#include <algorithm>
#include <functional>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "kv/block_layout.h"
#include "router/request.h"

namespace baton {
namespace {

constexpr double kNewest = 1.0 / 16;  // weight of the latest pause in the mean
// linger() is kPatience times the mean pause.
constexpr int64_t kPatience = 16;
// A pause counts at most kMostAtOnce times the mean. One client's long pause thus does not keep the
// slots of all sessions.
constexpr int64_t kMostAtOnce = 4;
// Upper bound on the branches of a session's context whose KV is remembered.
constexpr size_t kBranches = 4;

}  // namespace

absl::Duration SessionGate::linger() const {
  return std::clamp(kPatience * pause_, limits_.shortest_linger, limits_.longest_linger);
}

// --- requests ------------------------------------------------------------------------------------

absl::Status SessionGate::Arrived(Request& request, const SessionKey& of, bool needed, absl::Time now) {
  BATON_CHECK(request.session.state == State::kUnknown, request.id);
  const auto entry = sessions_.try_emplace(of).first;
  auto& [key, session] = *entry;
  request.session = {State::kWaiting, &*entry};
  ++requests_;
  if (session.running == 0 && session.waiting.empty()) LearnPause(key, now);
  const bool parks = MustPark(session);
  if (session.active && (needed || (!parks && !QuantumExpired(session, now)))) {
    Run(request, session, key);
    return absl::OkStatus();
  }
  session.waiting.push_back(&request);
  ++counts_.waiting_requests;
  if (session.waiting.size() == 1) {
    if (!parks) session.number = ++arrivals_;
    Enqueue(key, session);
  }
  if (needed) Admit(key, session, now);
  if (session.active && session.running == 0) Leave(key, session);
  AdmitNext(now);
  if (request.session.state == State::kAdmitted || counts_.waiting_requests <= limits_.waiting_requests)
    return absl::OkStatus();
  Ended(request, now);
  return absl::ResourceExhaustedError(absl::StrCat(
      "overloaded: ", counts_.active, " sessions are active, limit ", Places(), ", and ", counts_.waiting_requests,
      " requests of other sessions wait, limit ", limits_.waiting_requests, " (--max-requests / 2)"));
}

void SessionGate::Prefilled(const SessionKey& key, const Prefill& prefill, absl::Time now) {
  const auto found = sessions_.find(key);
  if (found == sessions_.end() || !found->second.active || limits_.sessions > 0) return;
  Session& session = found->second;
  const auto begins_with = [&](const Held& held) {
    return held.worker == prefill.worker && held.blocks <= std::ssize(prefill.keys) &&
           prefill.keys[static_cast<size_t>(held.blocks) - 1] == held.last;
  };
  int64_t had = 0;  // in blocks
  for (const Held& held : session.held) had = begins_with(held) ? std::max(had, held.blocks) : had;
  // The last block of the earlier prompt may have been incomplete.
  const int64_t again = std::max<int64_t>((had - 1) * kBlockTokens - prefill.found, 0);
  const int64_t before = window_.size();
  if (prefill.awaited) {
    window_.AddPrefill({.had_kv = had > 0,
                        .lost = again > prefill.computed - again,
                        .queued = prefill.queued,
                        .compute = prefill.compute,
                        .copied = prefill.copied},
                       {.active = counts_.active,
                        .fit = FitInHalf(capacity_.blocks),
                        .fit_in_host = FitInHalf(capacity_.host_blocks),
                        .some_wait = counts_.waiting > 0});
  }
  if (window_.size() < before) MarkSessionsToPark();
  CountHeld(session, -1);
  std::erase_if(session.held, begins_with);
  if (!prefill.keys.empty()) session.held.push_back({prefill.worker, prefill.keys.back(), std::ssize(prefill.keys)});
  if (session.held.size() > kBranches) session.held.erase(session.held.begin());
  CountHeld(session, 1);
  AdmitNext(now);
}

void SessionGate::WorkerLost(const WorkerAddress& worker) {
  for (auto& [key, session] : sessions_) {
    CountHeld(session, -1);
    std::erase_if(session.held, [&](const Held& held) { return held.worker == worker; });
    CountHeld(session, 1);
  }
}

int64_t SessionGate::BlocksOf(const Session& session) {
  int64_t blocks = 0;
  for (const Held& held : session.held) {
    const bool is_part = std::ranges::any_of(session.held, [&](const Held& other) {
      return other.worker == held.worker && std::pair(other.blocks, &other) > std::pair(held.blocks, &held);
    });
    if (!is_part) blocks += held.blocks;
  }
  return blocks;
}

int64_t SessionGate::FitInHalf(int64_t blocks) const {
  return blocks * holding_sessions_ / std::max<int64_t>(2 * held_blocks_, 1);
}

void SessionGate::CountHeld(const Session& session, int64_t sign) {
  holding_sessions_ += session.held.empty() ? 0 : sign;
  held_blocks_ += sign * BlocksOf(session);
}

void SessionGate::Needed(Request& request, absl::Time now) {
  if (request.session.state != State::kWaiting) return;
  auto& [key, session] = *request.session.session;
  if (session.active) {
    Withdraw(request, session, key);
    Run(request, session, key);
  } else {
    Admit(key, session, now);
  }
  // Another session may be next now.
  AdmitNext(now);
}

void SessionGate::Ended(Request& request, absl::Time now) {
  if (request.session.state == State::kUnknown) return;
  auto& [key, session] = *request.session.session;
  const bool admitted = request.session.state == State::kAdmitted;
  request.session = {};
  --requests_;
  if (!admitted) {
    Withdraw(request, session, key);
    ForgetUnlessUsed(SessionKey(key));
    // Another session may be next now.
    return AdmitNext(now);
  }
  std::erase(admitted_, &request);
  if (--session.running > 0) return;
  ended_.Put(key, now);
  session.idle = now;
  idle_.insert({now, key});
  if (QuantumExpired(session, now)) Leave(SessionKey(key), session);
  AdmitNext(now);
}

void SessionGate::Withdraw(Request& request, Session& session, const SessionKey& key) {
  std::erase(session.waiting, &request);
  --counts_.waiting_requests;
  if (session.waiting.empty()) Unqueue(key, session);
}

void SessionGate::Run(Request& request, Session& session, const SessionKey& key) {
  if (session.running++ == 0) idle_.erase({session.idle, key});
  request.session.state = State::kAdmitted;
  admitted_.push_back(&request);
}

// --- slots ---------------------------------------------------------------------------------------

bool SessionGate::QuantumExpired(const Session& session, absl::Time now) const {
  return !queues_.empty() && now - session.since >= limits_.quantum;
}

int64_t SessionGate::Places() const { return limits_.sessions > 0 ? limits_.sessions : window_.size(); }

int64_t SessionGate::limit() const { return Places() == SessionWindow::kUnbounded ? 0 : Places(); }

std::vector<SessionGate::View> SessionGate::Latest(size_t most) const {
  using Entry = std::tuple<bool, bool, int64_t, const SessionKey*>;  // runs, waits, number, key
  std::vector<Entry> entries;
  entries.reserve(sessions_.size());
  for (const auto& [key, session] : sessions_) {
    entries.emplace_back(session.running > 0, !session.waiting.empty(), session.number, &key);
  }
  const size_t count = std::min(most, entries.size());
  std::ranges::partial_sort(entries, entries.begin() + static_cast<std::ptrdiff_t>(count), std::greater<>());
  std::vector<View> views;
  for (size_t i = 0; i < count; ++i) {
    const Session& session = sessions_.at(*std::get<3>(entries[i]));
    views.push_back(
        {*std::get<3>(entries[i]), session.active, session.running, std::ssize(session.waiting), BlocksOf(session)});
  }
  return views;
}

// Marks the youngest sessions beyond the limit as those to park.
void SessionGate::MarkSessionsToPark() {
  std::vector<int64_t> numbers;
  for (const auto& [key, session] : sessions_) {
    if (session.active) numbers.push_back(session.number);
  }
  if (std::ssize(numbers) <= Places()) return;
  const auto last = numbers.begin() + (Places() - 1);
  std::ranges::nth_element(numbers, last);
  parks_after_ = *last;
}

bool SessionGate::MustPark(const Session& session) const {
  return session.active && session.running == 0 && limits_.sessions == 0 && counts_.active > Places() &&
         session.number > parks_after_;
}

void SessionGate::Admit(const SessionKey& key, Session& session, absl::Time now) {
  Unqueue(key, session);
  if (!session.active) {
    session.active = true;
    session.idle = now;
    idle_.insert({now, key});
    ++counts_.active;
  }
  session.since = now;
  const std::vector<Request*> waiting = std::exchange(session.waiting, {});
  counts_.waiting_requests -= std::ssize(waiting);
  for (Request* request : waiting) Run(*request, session, key);
}

void SessionGate::Leave(const SessionKey& key, Session& session) {
  BATON_CHECK(session.active && session.running == 0, key.name);
  idle_.erase({session.idle, key});
  const bool waits = !session.waiting.empty();
  if (waits) Unqueue(key, session);
  session.active = false;
  if (waits) Enqueue(key, session);
  CountHeld(session, -1);
  session.held.clear();
  --counts_.active;
  ForgetUnlessUsed(key);
}

void SessionGate::Enqueue(const SessionKey& key, const Session& session) {
  ++counts_.waiting;
  if (session.active) {
    expired_.insert({session.number, key});
  } else {
    queues_[key.tenant].insert({session.number, key.name});
  }
}

void SessionGate::Unqueue(const SessionKey& key, const Session& session) {
  --counts_.waiting;
  if (session.active) {
    expired_.erase({session.number, key});
    return;
  }
  const auto queue = queues_.find(key.tenant);
  queue->second.erase({session.number, key.name});
  if (queue->second.empty()) queues_.erase(queue);
}

void SessionGate::ForgetUnlessUsed(const SessionKey& key) {
  const auto found = sessions_.find(key);
  if (!found->second.active && found->second.waiting.empty()) sessions_.erase(found);
}

// Returns the first session of the tenant that follows last_tenant_.
SessionKey SessionGate::Next() const {
  auto queue = queues_.upper_bound(last_tenant_);
  if (queue == queues_.end()) queue = queues_.begin();
  return {queue->first, queue->second.begin()->second};
}

void SessionGate::AdmitNext(absl::Time now) {
  while (!queues_.empty() && counts_.active < Places()) {
    const SessionKey key = Next();
    last_tenant_ = key.tenant;
    Admit(key, sessions_.at(key), now);
  }
  while (queues_.empty() && !expired_.empty()) {
    const SessionKey key = expired_.begin()->second;
    Admit(key, sessions_.at(key), now);
  }
}

// --- time ----------------------------------------------------------------------------------------

// Pauses longer than longest_linger are left out, because no slot is kept that long.
void SessionGate::LearnPause(const SessionKey& key, absl::Time now) {
  const absl::Time* ended = ended_.Find(key);
  if (ended == nullptr || now - *ended > limits_.longest_linger) return;
  const absl::Duration most = std::max(kMostAtOnce * pause_, absl::Seconds(4));
  pause_ += kNewest * (std::min(now - *ended, most) - pause_);
}

absl::Time SessionGate::NextTick() const {
  if (idle_.empty()) return absl::InfiniteFuture();
  return idle_.begin()->first + (counts_.waiting > 0 ? linger() : limits_.keep);
}

void SessionGate::Tick(absl::Time now) {
  while (NextTick() <= now) {
    const SessionKey key = idle_.begin()->second;
    Leave(key, sessions_.at(key));
    AdmitNext(now);
  }
}

void SessionGate::CheckInvariants() const {
  Counts counts;
  size_t idle = 0, requests = 0, queued = expired_.size();
  bool some_want_a_place = false;
  int64_t held_blocks = 0, holding_sessions = 0;
  for (const auto& [key, session] : sessions_) {
    counts.active += session.active;
    held_blocks += BlocksOf(session);
    holding_sessions += !session.held.empty();
    BATON_CHECK(session.active || session.held.empty(), key.name);
    counts.waiting += !session.waiting.empty();
    counts.waiting_requests += std::ssize(session.waiting);
    requests += session.waiting.size() + static_cast<size_t>(session.running);
    BATON_CHECK(session.active || (!session.waiting.empty() && session.running == 0), key.name);
    if (session.active && session.running == 0) {
      ++idle;
      BATON_CHECK(idle_.contains({session.idle, key}), key.name);
    }
    if (session.waiting.empty()) continue;
    const bool is_queued = session.active ? expired_.contains({session.number, key})
                                          : queues_.at(key.tenant).contains({session.number, key.name});
    BATON_CHECK(is_queued, key.name);
    some_want_a_place |= !session.active;
    for (const Request* request : session.waiting) {
      BATON_CHECK(request->session.state == State::kWaiting && &request->session.session->second == &session,
                  request->id);
    }
  }
  for (const auto& [tenant, queue] : queues_) {
    BATON_CHECK(!queue.empty(), tenant);
    queued += queue.size();
  }
  BATON_CHECK(counts == counts_ && idle == idle_.size() && static_cast<int64_t>(requests) == requests_,
              "the counts of sessions are wrong");
  BATON_CHECK(held_blocks == held_blocks_ && holding_sessions == holding_sessions_,
              "the counts of held blocks are wrong");
  BATON_CHECK(queued == static_cast<size_t>(counts.waiting), "a queue has a session without waiting requests");
  BATON_CHECK(!some_want_a_place || counts.active >= Places(), "sessions wait although slots are free");
  BATON_CHECK(some_want_a_place || counts.waiting == 0,
              "sessions with an expired quantum wait although no session needs a slot");
}

}  // namespace baton
