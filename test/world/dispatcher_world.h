// A dispatcher whose workers and clients are driven by the test.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/strings.h"
#include "catch.h"
#include "model/byte_model.h"
#include "router/dispatcher.h"
#include "world/stage_times.h"
#include "world/worker_names.h"

namespace baton {

inline WorkerInfo BytesWorker(WorkerRole role, const std::string& name, uint64_t incarnation) {
  return {.role = role,
          .address = name,
          .incarnation = Incarnation(incarnation),
          .model = "bytes",
          .blocks_total = 100,
          .context = 64,
          .max_batch = 8};
}

inline std::string TextOf(std::span<const TokenId> tokens) { return {tokens.begin(), tokens.end()}; }

// A dispatcher with one worker of each kind. Tests name requests by id. Actions are lines of text.
class Driven {
 public:
  explicit Driven(bool shortest_first = false, std::optional<SessionLimits> sessions = {}, RouterLimits limits = {})
      : dispatcher_(Options(shortest_first, sessions, limits)) {
    AttachPrefill(/*host_blocks=*/0);
    dispatcher_.WorkerAttached(kD, BytesWorker(WorkerRole::kDecode, kD, 22), now);
  }

  void AttachPrefill(int64_t host_blocks) {
    WorkerInfo info = BytesWorker(WorkerRole::kPrefill, kP, 11);
    info.host_blocks = info.staging_blocks = host_blocks;
    dispatcher_.WorkerAttached(kP, info, now);
  }
  ClientRequest Request(const RequestId& id, const std::string& prompt, int32_t max_tokens = 4) const {
    ClientRequest request;
    request.id = id;
    request.served = &model_;
    request.spec.tokens = std::vector<TokenId>(prompt.begin(), prompt.end());
    request.spec.sampling.max_tokens = max_tokens;
    request.has_max_tokens = true;
    return request;
  }
  // Gives the model a template with tags of thinking.
  void LetModelThink() { model_.chat_template = ChatTemplate::Parse("<think></think>", "", "").value(); }
  absl::StatusOr<RequestTicket> Submit(ClientRequest request) {
    return dispatcher_.Submit(std::make_unique<baton::Request>(std::move(request)), now);
  }
  // By default, all tokens of the prompt that the worker has received were computed.
  void Prefilled(const RequestId& id, PrefillDone done = {}) {
    done.request_id = names_.at(id);
    done.decode_incarnation = Incarnation(22);
    if (done.computed_tokens == 0) done.computed_tokens = std::max(tokens_[done.request_id] - 1, 0);
    dispatcher_.Reported(kP, done, now);
  }
  void Made(const RequestId& worker_id, const std::string& text, std::optional<FinishReason> finish,
            std::optional<absl::Duration> queued = {}) {
    TokenUpdate update;
    update.request_id = worker_id;
    update.tokens.assign(text.begin(), text.end());
    update.text = text;
    update.finish = finish;
    update.queued = queued;
    update.prompt = std::exchange(scored, {});
    dispatcher_.Reported(kD, update, now);
  }
  // Runs a request that generates `text`.
  RequestTicket Run(const RequestId& id, const std::string& text, std::optional<FinishReason> finish) {
    const auto ticket = Submit(Request(id, "p"));
    REQUIRE(ticket.ok());
    Take();
    Prefilled(id);
    Made(NameOf(id), text, finish);
    return *ticket;
  }
  const RequestId& NameOf(const RequestId& id) const { return names_.at(id); }
  // Returns how many tokens of the prompt the best prefill worker would have to compute.
  int64_t Uncached(const ClientRequest& request) const {
    return FewestUncached(dispatcher_.core().registry(), baton::Request(request));
  }
  Dispatcher& operator*() { return dispatcher_; }

  std::vector<std::string> Take() {
    dispatcher_.CheckInvariants();
    std::vector<std::string> lines;
    arrival_offsets.clear();
    expected_tokens.clear();
    for (const DispatchAction& action : dispatcher_.TakeActions()) {
      if (const auto* command = std::get_if<WorkerCommand>(&action)) {
        std::visit([&](const auto& job) { lines.push_back(absl::StrCat(command->worker, ": ", Line(job))); },
                   command->what);
      } else if (const auto* progress = std::get_if<RequestProgress>(&action)) {
        lines.push_back(absl::StrCat(progress->update.request_id, " says ", progress->update.text, " after ",
                                     absl::FormatDuration(progress->wait), progress->first ? ", first" : ""));
      } else if (const auto* charge = std::get_if<RequestCharge>(&action)) {
        charges.push_back(*charge);
      } else if (const auto* hint = std::get_if<PrefillHintEnded>(&action)) {
        lines.push_back(absl::StrCat("a prefill hint ends ", absl::StatusCodeToString(hint->code)));
      } else if (const auto* value = std::get_if<ValueEnded>(&action)) {
        lines.push_back(absl::StrCat("a value ends ", absl::StatusCodeToString(value->status.code())));
      } else if (const auto* change = std::get_if<WorkerWatch::Change>(&action)) {
        lines.push_back(StrCat(change->worker, " is ", baton::NameOf(change->health)));
      } else {
        const auto& ended = std::get<RequestEnded>(action);
        CheckStages(ended.outcome);
        errors[ended.ticket.id] = CodeAndMessage(ended.outcome.status);
        lines.push_back(absl::StrCat(ended.ticket.id, " ends ", absl::StatusCodeToString(ended.outcome.status.code()),
                                     ", ", ended.outcome.completion_tokens, " tokens"));
      }
    }
    return lines;
  }

  absl::Time now = absl::UnixEpoch();
  std::vector<absl::Duration> arrival_offsets;  // of the prompts last taken
  std::vector<int32_t> expected_tokens;         // of these prompts
  std::vector<RequestCharge> charges;           // all so far
  std::map<RequestId, std::string> errors;      // of all ended requests; "OK" if there is none
  std::vector<TokenId> appended;                // the last increment of a prompt
  std::optional<PromptLogprobs> scored;         // on the next update of Made
  int32_t appended_expected = 0;                // the expected length that it states

 private:
  static Dispatcher::Options Options(bool shortest_first, std::optional<SessionLimits> sessions, RouterLimits limits) {
    Dispatcher::Options options{.limits = limits, .sessions = sessions, .nonce = 0xab};
    if (shortest_first) options.shortest_first.emplace();
    return options;
  }
  std::string Line(const PrefillJob& job) {
    const RequestId id = job.request_id.substr(0, job.request_id.find('#'));
    names_[id] = job.request_id;
    tokens_[job.request_id] = static_cast<int32_t>(job.spec.tokens.size());
    arrival_offsets.push_back(job.spec.arrival_offset);
    expected_tokens.push_back(job.spec.expected_tokens);
    return absl::StrCat(job.streaming ? "open " : "prefill ", job.request_id, " ", TextOf(job.spec.tokens));
  }
  std::string Line(const PrefillAppend& append) {
    appended.assign(append.tokens.begin(), append.tokens.end());
    appended_expected = append.expected_new_tokens;
    if (append.restart) tokens_[append.request_id] = 0;
    tokens_[append.request_id] += static_cast<int32_t>(append.tokens.size());
    return absl::StrCat(append.last ? "close " : "append ", append.request_id, " ", TextOf(append.tokens));
  }
  std::string Line(const DecodeJob& job) {
    names_[job.request_id.substr(0, job.request_id.find('#'))] = job.request_id;
    const std::string line = absl::StrCat("decode ", job.request_id, " ", TextOf(job.spec.tokens));
    return job.spec.generated == 0 ? line : absl::StrCat(line, ", ", job.spec.generated, " of them output");
  }
  static std::string Line(const KeepRoom& room) {
    if (room.request_id.empty()) return "keep no room";
    return absl::StrCat("keep room for ", room.request_id, " ", room.kv_tokens, " + ", room.expected_new_tokens);
  }
  static std::string Line(const CancelJob& cancel) { return absl::StrCat("cancel ", cancel.request_id); }

  ServedModel model_ = ByteModel("bytes");
  Dispatcher dispatcher_;
  std::map<RequestId, RequestId> names_;
  std::map<RequestId, int32_t> tokens_;  // of prompts, by worker_id
};

using Lines = std::vector<std::string>;

}  // namespace baton
