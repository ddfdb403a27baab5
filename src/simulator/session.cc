#include "simulator/session.h"

#include <deque>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace baton {
namespace {

class SessionRunner {
 public:
  SessionRunner(SimulatedCluster& cluster, const std::vector<Session>& sessions, const SessionOptions& options)
      : cluster_(cluster), sessions_(sessions), options_(options), contexts_(sessions.size()) {
    result_.sessions.resize(sessions.size());
  }

  absl::StatusOr<SessionsResult> Run() {
    for (size_t s = 0; s < sessions_.size(); ++s) {
      if (!options_.arrivals.empty()) cluster_.RunFor(options_.arrivals[s] - SinceStart());
      waiting_.push_back(s);
      Admit();
    }
    cluster_.RunUntilIdle();
    RETURN_IF_ERROR(failure_);
    result_.steps = cluster_.steps();
    result_.bytes_pushed = cluster_.BytesPushed();
    result_.host_tokens = cluster_.HostTokens();
    result_.blocks_held = cluster_.BlocksHeld();
    return std::move(result_);
  }

 private:
  absl::Duration SinceStart() const { return cluster_.Now() - start_; }

  void Admit() {
    while (!waiting_.empty() && (options_.concurrent == 0 || active_ < options_.concurrent)) {
      const size_t s = waiting_.front();
      waiting_.pop_front();
      ++active_;
      BeginTurn(s);
    }
  }

  void BeginTurn(size_t s) {
    const size_t turn = result_.sessions[s].size();
    if (turn == sessions_[s].size()) return EndSession();
    for (const NamedTokens& added : sessions_[s][turn].added) {
      const std::vector<TokenId> tokens = TokensOf(added);
      contexts_[s].insert(contexts_[s].end(), tokens.begin(), tokens.end());
    }
    result_.sessions[s].push_back({.submitted = SinceStart()});
    Submit(s, 0);
  }

  void EndSession() {
    --active_;
    Admit();
  }

  void Submit(size_t s, int attempt) {
    const size_t turn = result_.sessions[s].size() - 1;
    SimulatedRequest request;
    request.id = absl::StrCat("session ", s, " turn ", turn, " attempt ", attempt);
    request.model = sessions_[s][turn].model;
    request.session = absl::StrCat("session ", s);
    request.cache_domain = options_.share ? "shared" : request.id;
    request.segments = {contexts_[s]};
    request.max_tokens = sessions_[s][turn].output;
    const RequestId id = request.id;
    cluster_.Submit(s, std::move(request), [this, s, id, attempt] { Ended(s, id, attempt); });
  }

  void Ended(size_t s, const RequestId& id, int attempt) {
    const SimulatedCluster::Ran& ran = cluster_.ran(id);
    if (absl::IsResourceExhausted(ran.status)) {
      ++result_.refused;
      return Submit(s, attempt + 1);
    }
    if (!ran.status.ok()) {
      failure_.Update(ran.status);
      return EndSession();
    }
    TurnRan& turn = result_.sessions[s].back();
    turn.first = ran.first - start_;
    turn.ended = ran.ended - start_;
    turn.prompt_tokens = ran.prompt_tokens;
    turn.cached_tokens = ran.cached_tokens;
    turn.tokens = ran.tokens;
    contexts_[s].insert(contexts_[s].end(), ran.tokens.begin(), ran.tokens.end());
    const size_t next = result_.sessions[s].size();
    const bool pauses = next < sessions_[s].size() && sessions_[s][next].pause > absl::ZeroDuration();
    if (!pauses) return BeginTurn(s);
    cluster_.After(sessions_[s][next].pause, [this, s] { BeginTurn(s); });
  }

  SimulatedCluster& cluster_;
  const std::vector<Session>& sessions_;
  const SessionOptions& options_;
  const absl::Time start_ = cluster_.Now();
  // The conversation so far, by session.
  std::vector<std::vector<TokenId>> contexts_;
  std::deque<size_t> waiting_;
  int32_t active_ = 0;
  SessionsResult result_;
  absl::Status failure_;
};

}  // namespace

absl::StatusOr<SessionsResult> RunSessions(const ClusterShape& shape, const std::vector<Session>& sessions,
                                           const SessionOptions& options) {
  RETURN_IF_ERROR(CheckArrivals(options.arrivals, sessions.size()));
  ASSIGN_OR_RETURN(const std::unique_ptr<SimulatedCluster> cluster, SimulatedCluster::Create(shape));
  return SessionRunner(*cluster, sessions, options).Run();
}

}  // namespace baton
