// Random requests of two tenants that use the same names for their requests. Some are refused, some
// are cancelled, and some fail. Each prompt consists of its own segments, and each request fails
// only for a reason of its own. The stages of each request are a partition of its time, whatever
// times its workers report.
#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/retry.h"
#include "base/strings.h"
#include "catch.h"
#include "model/byte_model.h"
#include "request/priority.h"
#include "router/dispatcher.h"
#include "world/random_run.h"
#include "world/stage_times.h"
#include "world/worker_names.h"

namespace baton {
namespace {

constexpr int kContext = 128;
constexpr int kNames = 6;
constexpr size_t kUnbound = SIZE_MAX, kUnknown = SIZE_MAX - 1;

using TenantName = std::string;
using Name = std::pair<TenantName, RequestId>;

// An accepted request.
struct Accepted {
  Name name;
  uint64_t ticket = 0;
  absl::Time arrived{};
  int placed = 0;  // number of times that a prefill worker received it
  std::vector<PromptSegment> segments{};
  // The upstream request of each reference, as an index into `all_`. kUnbound: not submitted yet.
  // kUnknown: the reference found no request.
  std::vector<size_t> upstreams{};
  bool prefill_only = false;
  bool keep = false;
  bool disturbed = false;  // cancelled, or failed by a worker
  RequestId worker_id{};
  std::string prompt{};  // as the worker received it
  bool complete = false, decoding = false;
  absl::Time started = absl::InfiniteFuture();  // the prefill worker reported it
  absl::Time prefilled = absl::InfiniteFuture();
  absl::Time stepping = absl::InfiniteFuture();  // as the decode worker reported it
  std::string made{};
  bool over = false;
  bool refused = false;  // was not accepted, and fails the prompts that refer to it
  absl::Status status{};
};

struct Hint {
  uint64_t call = 0;  // its ticket
  std::vector<PromptSegment> segments{};
  RequestId worker_id{};
  std::string prompt{};  // as the worker received it
  bool complete = false;
};

class RandomRequests {
 public:
  explicit RandomRequests(uint64_t seed) : random_(seed), model_(ByteModel("bytes")), dispatcher_(Options()) {
    model_.context = kContext;
    dispatcher_.WorkerAttached(kP, Info(WorkerRole::kPrefill, kP, 11), now_);
    dispatcher_.WorkerAttached(kD, Info(WorkerRole::kDecode, kD, 22), now_);
  }

  bool Event() {
    Step();
    return ++events_ < 150;
  }
  void CheckInvariants() const { dispatcher_.CheckInvariants(); }
  void Settle() {
    for (const char* domain : {"", "tenant-b"}) {
      for (const auto& life : dispatcher_.lives().Of("w", domain, now_)) CheckPhases(*life, now_);
    }
    now_ += absl::Minutes(5);  // later than wait_announced
    dispatcher_.Tick(now_);
    Take();
    while (live() > 0) Step(/*submits=*/false);
    now_ += absl::Seconds(10);  // kShadowWait of the last prefill hints
    dispatcher_.Tick(now_);
    Take();
    CHECK(dispatcher_.core().live_requests() == 0);
    CHECK(dispatcher_.core().slots().counts() == RequestSlots::Counts{});
  }

  std::map<absl::StatusCode, int> refusals;
  int hints_prefilled = 0;
  int resumed = 0;
  int most_queued = 0;         // prompts that waited for a slot
  std::set<std::string> ends;  // the kinds of ends that occurred

 private:
  static Dispatcher::Options Options() { return {.limits = {.live_requests = 4, .waiting_prompts = 6}, .nonce = 1}; }
  static WorkerInfo Info(WorkerRole role, const std::string& name, uint64_t incarnation) {
    return {.role = role,
            .address = name,
            .incarnation = Incarnation(incarnation),
            .model = "bytes",
            .blocks_total = 1000,
            .context = kContext,
            .max_batch = 100};
  }
  int Below(int n) { return std::uniform_int_distribution<int>(0, n - 1)(random_); }
  // A time that a worker reports, right or wrong.
  absl::Duration AnyTime() {
    if (Below(16) == 0) return Below(2) == 0 ? absl::InfiniteDuration() : -absl::InfiniteDuration();
    return absl::Microseconds(Below(6000) - 1000);
  }
  std::string Words(int most) {
    std::string text;
    for (int i = Below(most + 1); i > 0; --i) text += static_cast<char>('a' + Below(26));
    return text;
  }
  static std::vector<TokenId> Ids(const std::string& text) { return {text.begin(), text.end()}; }
  int64_t live() const { return std::ranges::count(all_, false, &Accepted::over); }

  void Step(bool submits = true) {
    now_ += absl::Microseconds(1 + Below(2000));
    // A tick before NextTick does nothing, so drivers may sleep until then.
    const bool due = now_ >= dispatcher_.NextTick();
    dispatcher_.Tick(now_);
    if (due) {
      Take();
    } else {
      CHECK(dispatcher_.TakeActions().empty());
    }
    const int what = Below(10);
    if (submits && what < 3) return Submit();
    std::vector<size_t> live;
    for (size_t i = 0; i < all_.size(); ++i) {
      if (!all_[i].over) live.push_back(i);
    }
    if (live.empty()) return;
    Accepted& request = all_[live[static_cast<size_t>(Below(static_cast<int>(live.size())))]];
    if (what == 3 && Below(2) == 0) {
      request.disturbed = true;
      dispatcher_.Cancel({ScopedId(request.name.first, request.name.second), request.ticket}, now_);
    } else if (what == 4 && Below(2) == 0) {
      request.disturbed = true;
      RequestFailed failed;
      failed.request_id = request.worker_id;
      // The router places a request again that found no room.
      failed.no_room_to_decode = Below(2) == 0;
      // Prompts that announced an UNAVAILABLE request would wait for another attempt, as in
      // agent_random_test.
      failed.status =
          failed.no_room_to_decode ? absl::ResourceExhaustedError("no room") : absl::InternalError("by chance");
      for (const char* worker : {kP, kD}) dispatcher_.Reported(worker, failed, now_);
      request.complete = request.decoding = false;  // until a worker receives it again
    } else if (what == 5 && Below(2) == 0) {
      AddPrefillHint(request);
    } else if (what == 6 && !hints_.empty()) {
      WorkOnHint();
    } else if (what == 7 && Below(4) == 0) {
      RestartDecodeWorker();
    } else if (what == 8 && Below(16) == 0) {
      CancelWorkflow(request.name.first);
    } else {
      Work(request);
    }
    Take();
    if (!request.complete) request.started = absl::InfiniteFuture();  // it waits to be placed
  }

  // Submits a prefill hint whose prompt has the call's output once or twice, or substitutes for it.
  void AddPrefillHint(const Accepted& call) {
    ClientRequest prompt;
    prompt.served = &model_;
    const bool substitutes = Below(2) == 0;
    for (int i = Below(2); i >= 0; --i) {
      prompt.prompt.segments.emplace_back(Ids("." + Words(20)));
      Reference reference{.upstream = call.name.second};
      if (substitutes) {
        reference.on_failure = OnFailure::kSubstitute;
        reference.substitute = Ids(Words(3));
      }
      prompt.prompt.segments.emplace_back(std::move(reference));
    }
    Hint hint{.call = call.ticket, .segments = prompt.prompt.segments};
    const RequestId id = ScopedId(call.name.first, call.name.second);
    adding_ = &hint;
    if (dispatcher_.AddPrefillHint({id, call.ticket}, std::move(prompt), now_).ok()) Take();
    adding_ = nullptr;
    if (!hint.worker_id.empty()) hints_.push_back(std::move(hint));
  }

  // The requests that the worker had go on without a failure.
  void RestartDecodeWorker() {
    for (const Accepted& request : all_) resumed += !request.over && request.decoding && !request.made.empty();
    dispatcher_.Reported(kD, WorkerLoad{.draining = true}, now_);
    dispatcher_.WorkerLost(kD, now_);
    dispatcher_.WorkerAttached(kD, Info(WorkerRole::kDecode, kD, 22), now_);
  }

  // All requests of a tenant have one workflow.
  void CancelWorkflow(const TenantName& tenant) {
    int32_t live = 0;
    for (Accepted& request : all_) {
      if (request.over || request.name.first != tenant) continue;
      request.disturbed = true;
      ++live;
    }
    CHECK(dispatcher_.CancelWorkflow({tenant, "w"}, now_) == live);
  }

  // A complete prefill hint may end at any time. An incomplete one may fail.
  void WorkOnHint() {
    const auto hint = hints_.begin() + Below(static_cast<int>(hints_.size()));
    if (hint->complete) {
      PrefillDone done;
      done.request_id = hint->worker_id;
      dispatcher_.Reported(kP, std::move(done), now_);
    } else if (Below(4) == 0) {
      dispatcher_.Reported(
          kP, RequestFailed{hint->worker_id, absl::ResourceExhaustedError("by chance"), absl::Seconds(1)}, now_);
    }
  }

  // Does the next work of the request's worker.
  void Work(Accepted& request) {
    if (request.decoding) {
      TokenUpdate update;
      update.request_id = request.worker_id;
      // Without tokens, the first step begins.
      if (Below(3) > 0) {
        update.text = Words(20);
        update.tokens = Ids(update.text);
        if (Below(3) == 0) update.finish = FinishReason::kStop;
      }
      if (Below(2) == 0) update.queued = AnyTime();
      if (update.queued || !update.tokens.empty()) {
        const absl::Duration queued = std::max(update.queued.value_or(absl::ZeroDuration()), absl::ZeroDuration());
        if (request.stepping > now_) request.stepping = std::min(request.prefilled + queued, now_);
      }
      request.made += update.text;
      dispatcher_.Reported(kD, std::move(update), now_);
    } else if (request.complete && Below(2) == 0) {
      // Reports after the first have no effect.
      request.started = std::min(request.started, now_);
      dispatcher_.Reported(kP, PrefillStarted{request.worker_id}, now_);
    } else if (request.complete) {
      PrefillDone done;
      done.request_id = request.worker_id;
      for (absl::Duration* time : {&done.compute, &done.copied, &done.handoff}) *time = AnyTime();
      for (int i = Below(4); i > 0; --i) done.steps.push_back({AnyTime(), AnyTime(), 1});
      if (!request.prefill_only) done.decode_incarnation = Incarnation(22);
      request.prefilled = now_;
      dispatcher_.Reported(kP, std::move(done), now_);
    }
  }

  ClientRequest Draw() {
    ClientRequest request;
    request.id = absl::StrCat("r", Below(kNames));
    request.spec.cache_domain = Below(2) == 0 ? "" : "tenant-b";
    request.spec.tenant = request.spec.cache_domain.empty() ? "a" : "b";
    request.most_requests = request.spec.tenant == "a" ? 2 : 0;
    request.served = &model_;
    request.workflow = "w";
    request.agent = absl::StrCat("a", Below(2));
    request.expected_tokens = Below(3) == 0 ? Below(100) : 0;
    request.has_max_tokens = Below(4) != 0;
    // 100 may exceed the context.
    request.spec.sampling.max_tokens = !request.has_max_tokens ? 0 : Below(4) == 0 ? 100 : 8;
    request.prefill_only = Below(8) == 0;
    request.keep = Below(2) == 0;
    for (int i = Below(5); i >= 0; --i) {
      if (Below(2) == 0) {
        request.prompt.segments.emplace_back(Ids("." + Words(20)));
        continue;
      }
      Reference reference{.upstream = absl::StrCat("r", Below(kNames)), .announced = Below(2) == 0};
      reference.on_failure = static_cast<OnFailure>(Below(3));
      if (reference.on_failure == OnFailure::kSubstitute) reference.substitute = Ids(Words(5));
      request.prompt.segments.emplace_back(std::move(reference));
    }
    const auto is_text = [](const PromptSegment& segment) {
      return std::holds_alternative<std::vector<TokenId>>(segment);
    };
    if (!std::ranges::all_of(request.prompt.segments, is_text)) return request;
    for (const PromptSegment& segment : request.prompt.segments) {
      request.spec.tokens.Append(std::get<std::vector<TokenId>>(segment));
    }
    request.prompt.segments.clear();
    request.spec.sampling.max_tokens = 8;
    return request;
  }

  void Submit() {
    const ClientRequest request = Draw();
    Accepted accepted{.name = {request.spec.cache_domain, request.id}, .arrived = now_};
    accepted.segments = request.prompt.segments;
    accepted.prefill_only = request.prefill_only;
    accepted.keep = request.keep || request.prefill_only;
    if (accepted.segments.empty()) {
      accepted.segments.emplace_back(std::vector<TokenId>(request.spec.tokens.begin(), request.spec.tokens.end()));
    }
    for (const PromptSegment& segment : accepted.segments) {
      const auto* reference = std::get_if<Reference>(&segment);
      if (reference == nullptr) continue;
      const auto found = latest_.find({request.spec.cache_domain, reference->upstream});
      const bool waits = reference->announced || IsAwaited(accepted, reference->upstream);
      accepted.upstreams.push_back(found != latest_.end() ? found->second : waits ? kUnbound : kUnknown);
    }
    const auto ticket = dispatcher_.Submit(std::make_unique<Request>(request), now_);
    if (ticket.ok()) {
      accepted.ticket = ticket->number;
      const size_t index = all_.size();
      latest_[accepted.name] = index;
      awaited_.erase(accepted.name);
      for (Accepted& downstream : all_) Bind(downstream, accepted.name, index);
      all_.push_back(std::move(accepted));
    } else {
      ++refusals[ticket.status().code()];
      CheckRefusal(request, ticket.status());
      if (Message(ticket.status()).starts_with("output_of '")) {
        FailedAtOnce(std::move(accepted), ticket.status());
      } else if (!absl::IsAlreadyExists(ticket.status())) {
        Refused(std::move(accepted), ticket.status());
      }
    }
    Take();
  }

  // Returns whether prompts wait for a request of this name, or would wait for it after a refusal.
  bool IsAwaited(const Accepted& accepted, const RequestId& upstream) const {
    const auto waits = [&](const Accepted& downstream) {
      size_t k = 0;
      for (const PromptSegment& segment : downstream.segments) {
        const auto* reference = std::get_if<Reference>(&segment);
        if (reference == nullptr) continue;
        if (k == downstream.upstreams.size()) return false;  // of `accepted`: the references so far
        if (downstream.upstreams[k++] == kUnbound && reference->upstream == upstream) return true;
      }
      return false;
    };
    return awaited_.contains({accepted.name.first, upstream}) || waits(accepted) ||
           std::ranges::any_of(all_, [&](const Accepted& other) {
             return !other.over && other.name.first == accepted.name.first && waits(other);
           });
  }

  // A refusal that may be retried makes prompts wait, and any other one fails them. It has no
  // effect if a request has the name.
  void Refused(Accepted refused, const absl::Status& status) {
    const auto latest = latest_.find(refused.name);
    if (latest != latest_.end()) {
      if (!all_[latest->second].refused) return;
      latest_.erase(latest);
    }
    awaited_.insert(refused.name);
    if (absl::IsResourceExhausted(status)) return;
    awaited_.erase(refused.name);
    refused.refused = true;
    FailedAtOnce(std::move(refused), status);
  }

  // Records a request that failed at once because its upstream request had failed.
  void FailedAtOnce(Accepted failed, const absl::Status& status) {
    failed.over = true;
    failed.status = status;
    const size_t index = all_.size();
    latest_[failed.name] = index;
    awaited_.erase(failed.name);
    for (Accepted& downstream : all_) Bind(downstream, failed.name, index);
    all_.push_back(std::move(failed));
  }

  void Bind(Accepted& downstream, const Name& name, size_t index) {
    if (downstream.over || downstream.name.first != name.first) return;
    size_t k = 0;
    for (const PromptSegment& segment : downstream.segments) {
      const auto* reference = std::get_if<Reference>(&segment);
      if (reference == nullptr) continue;
      if (downstream.upstreams[k] == kUnbound && reference->upstream == name.second) downstream.upstreams[k] = index;
      ++k;
    }
  }

  void CheckRefusal(const ClientRequest& request, const absl::Status& status) {
    INFO(status);
    // No tenant learns the other tenant's name.
    CHECK(status.message().find("tenant-b") == std::string::npos);
    const auto same = latest_.find({request.spec.cache_domain, request.id});
    if (absl::IsAlreadyExists(status)) CHECK(same != latest_.end());
    if (request.prompt.segments.empty()) CHECK((absl::IsAlreadyExists(status) || absl::IsResourceExhausted(status)));
  }

  void Take() {
    dispatcher_.CheckInvariants();
    const RequestSlots::Counts& slots = dispatcher_.core().slots().counts();
    CHECK((slots.running <= 4 && slots.waiting <= 6));
    most_queued = std::max(most_queued, slots.queued);
    for (DispatchAction& action : dispatcher_.TakeActions()) {
      if (const auto* command = std::get_if<WorkerCommand>(&action)) {
        if (const auto* job = std::get_if<PrefillJob>(&command->what)) Sent(*job);
        if (const auto* append = std::get_if<PrefillAppend>(&command->what)) Sent(*append);
        if (const auto* job = std::get_if<DecodeJob>(&command->what)) Sent(*job);
      } else if (auto* ended = std::get_if<RequestEnded>(&action)) {
        Accepted& request = *std::ranges::find(all_, ended->ticket.number, &Accepted::ticket);
        REQUIRE_FALSE(request.over);
        request.over = true;
        request.status = ended->outcome.status;
        CheckEnd(request);
        CheckStages(ended->outcome);
        if (!ended->outcome.prefilled && !request.status.ok()) {
          ends.insert(request.started <= now_ ? "in prefill" : "queued");
          CHECK(ended->outcome.times.prefill == std::max(now_ - request.started, absl::ZeroDuration()));
        }
        if (request.decoding && request.made.empty()) {
          ends.insert(request.stepping <= now_ ? "in the first step" : "in the decode queue");
          CHECK(ended->outcome.times.first_step == std::max(now_ - request.stepping, absl::ZeroDuration()));
        }
        CHECK(ended->outcome.total == now_ - request.arrived);
        NoteEnd(request);
      } else if (const auto* hint = std::get_if<PrefillHintEnded>(&action)) {
        hints_prefilled += hint->code == absl::StatusCode::kOk;
      }
    }
    for (size_t i = 0; i < all_.size(); ++i) {
      CHECK((all_[i].over || all_[i].keep || !IsUnneeded(i, /*holds=*/true)));
    }
  }
  // Returns whether requests referred to the output, and all of them have ended. If `holds`, a
  // request that failed and may be submitted again still needs the output.
  bool IsUnneeded(size_t index, bool holds) const {
    bool referred = false;
    for (const Accepted& other : all_) {
      if (other.refused || std::ranges::find(other.upstreams, index) == other.upstreams.end()) continue;
      referred = true;
      if (!other.over || (holds && MayRetry(other.status))) return false;
    }
    return referred;
  }
  Accepted& Called(const RequestId& worker_id) { return *std::ranges::find(all_, worker_id, &Accepted::worker_id); }
  void Sent(const PrefillJob& job) {
    if (job.request_id.find('~') != std::string::npos) {
      REQUIRE(adding_ != nullptr);
      CHECK(IsLowPriority(job.spec.priority));
      CHECK(job.streaming);
      adding_->worker_id = job.request_id;
      adding_->prompt.assign(job.spec.tokens.begin(), job.spec.tokens.end());
      return;
    }
    Accepted& request = all_[latest_.at({job.spec.cache_domain, job.request_id.substr(0, job.request_id.find('#'))})];
    request.worker_id = job.request_id;
    ++request.placed;
    request.complete = request.decoding = false;
    request.started = request.prefilled = request.stepping = absl::InfiniteFuture();
    request.prompt.assign(job.spec.tokens.begin(), job.spec.tokens.end());
    if (!job.streaming) Complete(request);
  }
  void Sent(const PrefillAppend& append) {
    const auto hint = std::ranges::find(hints_, append.request_id, &Hint::worker_id);
    if (hint != hints_.end()) return Sent(*hint, append);
    Accepted& request = Called(append.request_id);
    if (append.restart) request.prompt.clear();
    request.prompt.append(append.tokens.begin(), append.tokens.end());
    if (append.last) Complete(request);
  }
  void Sent(Hint& hint, const PrefillAppend& append) {
    if (append.restart) hint.prompt.clear();
    hint.prompt.append(append.tokens.begin(), append.tokens.end());
    if (!append.last) return;
    hint.complete = true;
    const Accepted& call = *std::ranges::find(all_, hint.call, &Accepted::ticket);
    std::string expected;
    for (const PromptSegment& segment : hint.segments) {
      const auto* ids = std::get_if<std::vector<TokenId>>(&segment);
      if (ids == nullptr && !call.status.ok()) {
        const auto& reference = std::get<Reference>(segment);
        REQUIRE(reference.on_failure == OnFailure::kSubstitute);
        ids = &reference.substitute;
      }
      expected += ids == nullptr ? call.made : std::string(ids->begin(), ids->end());
    }
    CHECK(hint.prompt == expected);
  }
  void Sent(const DecodeJob& job) {
    Accepted& request = Called(job.request_id);
    const std::string tokens(job.spec.tokens.begin(), job.spec.tokens.end());
    CHECK((tokens == request.prompt || tokens == request.prompt + request.made));
    CHECK(job.spec.generated == std::ssize(request.made));
    request.decoding = true;
  }

  void Complete(Accepted& request) {
    request.complete = true;
    std::string expected;
    size_t k = 0;
    for (const PromptSegment& segment : request.segments) {
      if (const auto* ids = std::get_if<std::vector<TokenId>>(&segment)) {
        expected.append(ids->begin(), ids->end());
        continue;
      }
      const auto& reference = std::get<Reference>(segment);
      const size_t upstream = request.upstreams[k++];
      const bool known = upstream < all_.size();
      const bool failed = !known || !all_[upstream].status.ok();
      REQUIRE((!known || all_[upstream].over));
      REQUIRE_FALSE((failed && reference.on_failure == OnFailure::kAbort));
      if (failed && reference.on_failure == OnFailure::kSubstitute) {
        expected.append(reference.substitute.begin(), reference.substitute.end());
      } else if (known) {
        expected += all_[upstream].made;
      }
    }
    INFO(request.name.first << " " << request.name.second);
    // A prefill worker gets no output that is too long for it. The decode worker then replays it.
    const bool fits = expected.size() + request.made.size() <= kContext;
    REQUIRE(request.prompt == expected + (fits ? request.made : ""));
  }

  void NoteEnd(const Accepted& request) {
    ends.insert(request.status.ok() ? "done" : absl::StatusCodeToString(request.status.code()));
    if (request.status.ok() && request.prefill_only) ends.insert("prefill-only");
    if (request.status.ok() && request.placed > 1) ends.insert("placed again");
  }

  void CheckEnd(const Accepted& request) {
    INFO(request.name.first << " " << request.name.second << ": " << request.status);
    if (request.status.ok() || request.disturbed) return;
    if (absl::IsCancelled(request.status)) {
      ends.insert("unneeded");
      CHECK_FALSE(request.keep);
      CHECK(IsUnneeded(static_cast<size_t>(&request - all_.data()), /*holds=*/false));
      return;
    }
    bool aborts = false;
    size_t k = 0;
    for (const PromptSegment& segment : request.segments) {
      const auto* reference = std::get_if<Reference>(&segment);
      if (reference == nullptr) continue;
      const size_t upstream = request.upstreams[k++];
      const bool failed = upstream >= all_.size() || (all_[upstream].over && !all_[upstream].status.ok());
      aborts |= failed && reference->on_failure == OnFailure::kAbort;
    }
    // Otherwise the prompt is too long or empty.
    CHECK((aborts || absl::IsInvalidArgument(request.status)));
    if (absl::IsInvalidArgument(request.status)) CHECK(request.segments.size() > 0);
  }

  std::mt19937 random_;
  int events_ = 0;
  ServedModel model_;
  Dispatcher dispatcher_;
  absl::Time now_ = absl::UnixEpoch();
  std::vector<Accepted> all_;
  std::vector<Hint> hints_;
  Hint* adding_ = nullptr;  // the prefill hint that AddPrefillHint is submitting
  std::map<Name, size_t> latest_;
  std::set<Name> awaited_;  // a submission was refused, and may be retried
};

TEST_CASE("Dispatcher builds each prompt from its own segments in random runs") {
  std::map<absl::StatusCode, int> refusals;
  int hints_prefilled = 0, resumed = 0, queued = 0;
  std::set<std::string> ends;
  const Seeds seeds = ForEachWorld<RandomRequests>(300, [&](const RandomRequests& requests) {
    for (const auto& [code, count] : requests.refusals) refusals[code] += count;
    hints_prefilled += requests.hints_prefilled;
    resumed += requests.resumed;
    queued = std::max(queued, requests.most_queued);
    ends.insert(requests.ends.begin(), requests.ends.end());
  });
  if (!seeds.all()) return;
  for (const char* end : {"done", "prefill-only", "placed again", "queued", "in prefill", "in the decode queue",
                          "in the first step", "CANCELLED", "INTERNAL", "ABORTED", "unneeded"}) {
    INFO(end);
    CHECK(ends.contains(end));
  }
  CHECK(hints_prefilled > 0);
  CHECK(resumed > 50);
  CHECK(queued > 1);
  for (const auto code : {absl::StatusCode::kNotFound, absl::StatusCode::kAlreadyExists, absl::StatusCode::kAborted,
                          absl::StatusCode::kInvalidArgument, absl::StatusCode::kResourceExhausted}) {
    INFO(absl::StatusCodeToString(code));
    CHECK(refusals[code] > 0);
  }
}

}  // namespace
}  // namespace baton
