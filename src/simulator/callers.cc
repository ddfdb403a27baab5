#include "simulator/callers.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/strings.h"
#include "simulator/letter_tokenizer.h"
#include "simulator/workflow.h"

namespace baton {
namespace {

// Length of the stop text. A random output has it before its end once in 10^14 tokens.
constexpr int64_t kStopTokens = 8;

class CallersRunner {
 public:
  // `ends`: outputs at whose ends the requests stop. Null: the requests have the right limits.
  CallersRunner(SimulatedCluster& cluster, const CallersLoad& load, const CallersResult* ends)
      : cluster_(cluster), load_(load), ends_(ends) {
    result_.tokens.resize(load.callers.size());
  }

  absl::StatusOr<CallersResult> Run() {
    until_ = load_.warm_up;
    Begin();
    const absl::Time start = cluster_.Now();
    made_ = 0;
    until_ = INT32_MAX;
    Begin();
    RETURN_IF_ERROR(failure_);
    result_.tokens_per_s = static_cast<double>(made_) / absl::ToDoubleSeconds(last_end_ - start);
    result_.preemptions = cluster_.Preemptions();
    result_.refused = cluster_.HandoffsEnded()[absl::StatusCode::kResourceExhausted];
    return std::move(result_);
  }

 private:
  void Begin() {
    for (size_t caller = 0; caller < load_.callers.size(); ++caller) SubmitNext(caller);
    cluster_.RunUntilIdle();
  }

  void SubmitNext(size_t caller) {
    const size_t number = result_.tokens[caller].size();
    const Caller& from = load_.callers[caller];
    if (number >= std::min(from.outputs.size(), static_cast<size_t>(until_))) return;
    SimulatedRequest request;
    request.id = absl::StrCat("caller ", caller, " request ", number);
    request.model = SimulatedCluster::kModel;
    request.agent = from.agent;
    request.segments = {TokensOf({request.id, load_.prompt})};
    request.temperature = 1;
    request.seed = number;
    if (ends_ == nullptr) {
      request.max_tokens = from.outputs[number];
    } else {
      request.stop = {EndOf(ends_->tokens[caller][number])};
    }
    const RequestId id = request.id;
    cluster_.Submit(caller, std::move(request), [this, caller, id] { Ended(caller, id); });
  }

  static std::string EndOf(const std::vector<TokenId>& tokens) {
    const LetterTokenizer letters;
    std::string text;
    for (auto i = std::max<int64_t>(0, std::ssize(tokens) - kStopTokens); i < std::ssize(tokens); ++i) {
      text += letters.TokenBytes(tokens[static_cast<size_t>(i)]);
    }
    return text;
  }

  void Ended(size_t caller, const RequestId& id) {
    const SimulatedCluster::Ran& ran = cluster_.ran(id);
    failure_.Update(ran.status);
    if (!failure_.ok()) return;
    made_ += std::ssize(ran.tokens);
    last_end_ = ran.ended;
    result_.tokens[caller].push_back(ran.tokens);
    SubmitNext(caller);
  }

  SimulatedCluster& cluster_;
  const CallersLoad& load_;
  const CallersResult* const ends_;
  int32_t until_ = 0;  // the first request that callers do not submit
  int64_t made_ = 0;   // tokens of outputs
  absl::Time last_end_;
  CallersResult result_;
  absl::Status failure_;
};

absl::StatusOr<CallersResult> RunCallers(const ClusterShape& shape, const CallersLoad& load,
                                         const CallersResult* ends) {
  ASSIGN_OR_RETURN(const std::unique_ptr<SimulatedCluster> cluster, SimulatedCluster::Create(shape));
  absl::StatusOr<CallersResult> result = CallersRunner(*cluster, load, ends).Run();
  if (result.ok()) return result;
  return absl::Status(result.status().code(), StrCat(ends == nullptr ? "with the right limits: " : "without limits: ",
                                                     result.status().message()));
}

}  // namespace

absl::StatusOr<CallersCompared> CompareLimits(const ClusterShape& shape, const CallersLoad& load) {
  CallersCompared compared;
  ASSIGN_OR_RETURN(compared.right, RunCallers(shape, load, nullptr));
  ASSIGN_OR_RETURN(compared.none, RunCallers(shape, load, &compared.right));
  return compared;
}

}  // namespace baton
