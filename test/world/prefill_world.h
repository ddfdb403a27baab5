// One prefill engine with a backend, decode workers, and a network between them. The network passes
// every message and every push to the test. The test decides when, in which order and whether each
// arrives.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "base/clock.h"
#include "catch.h"
#include "engine/prefill/engine.h"
#include "world/fake_backend.h"
#include "world/fake_decode_worker.h"
#include "world/mail.h"

namespace baton {

class PrefillWorld {
 public:
  using Carry = std::function<void(Envelope)>;
  using Log = std::function<void(const std::string&)>;

  PrefillWorld(PrefillEngineOptions options, Carry carry, Log log)
      : carry_(std::move(carry)), log_(std::move(log)), backend_(options.blocks), engine_([&options] {
          options.vocab = FakeBackend::kVocab;
          options.context = 4096;
          options.sender.self.prefill_address = "p";
          options.sender.self.prefill_incarnation = Incarnation(1);
          options.sender.self.layout = FakeBackend::Layout();
          options.sender.self.numerics_id = "fake-1";
          options.sender.self.can_digest = true;
          return std::move(options);
        }()) {}

  struct Decode {
    Decode(int64_t blocks, Incarnation incarnation, bool verify)
        : descriptor(absl::StrCat("slab of ", incarnation.value())),
          backend(blocks),
          worker(backend, incarnation, descriptor, verify) {}
    std::string descriptor;
    FakeBackend backend;
    FakeDecodeWorker worker;
  };
  void AddDecode(const WorkerAddress& address, int64_t blocks) {
    decodes_[address] = std::make_shared<Decode>(blocks, Incarnation(++incarnations_), verify);
  }
  // Ends the process of a decode worker. Nothing arrives there from now on.
  void KillDecode(const WorkerAddress& address) { decodes_.erase(address); }
  FakeDecodeWorker& decode(const WorkerAddress& address) { return decodes_.at(address)->worker; }
  std::map<WorkerAddress, std::shared_ptr<Decode>>& decodes() { return decodes_; }

  bool verify = false;  // for decode workers that are added from now on
  KvLease lease{};      // for jobs that are submitted or closed from now on
  LeaseHolder lease_holder{};

  PrefillEngine& engine() { return engine_; }
  FakeBackend& backend() { return backend_; }
  absl::Time Now() const { return clock_.Now(); }

  struct Request {
    std::vector<TokenId> prompt{};
    WorkerAddress to{};
    std::optional<PrefillDone> done{};
    std::optional<RequestFailed> failed{};
    absl::Time added{};                   // or closed
    std::optional<absl::Time> started{};  // PrefillStarted came
    bool low_priority = false, cancelled = false;
  };
  std::map<RequestId, Request>& requests() { return requests_; }

  void Submit(const RequestId& id, std::vector<TokenId> prompt, const WorkerAddress& to, int32_t priority = 0) {
    PrefillJob job;
    job.request_id = id;
    job.spec.tokens = prompt;
    job.spec.sampling.max_tokens = 1;
    job.spec.priority = priority;
    job.decode_worker = to;
    job.lease = lease;
    job.lease_holder = lease_holder;
    requests_[id] = {.prompt = std::move(prompt), .to = to, .added = Now(), .low_priority = IsLowPriority(priority)};
    Add(std::move(job));
  }
  // Adds a streaming prompt that begins with `prompt`. Append adds the rest.
  void Open(const RequestId& id, std::vector<TokenId> prompt, int32_t priority = 0,
            const WorkerAddress& ahead_to = "") {
    PrefillJob job;
    job.decode_worker = ahead_to;
    job.request_id = id;
    job.spec.tokens = prompt;
    job.spec.priority = priority;
    job.streaming = true;
    job.lease_holder = lease_holder;
    requests_[id] = {.prompt = std::move(prompt), .low_priority = IsLowPriority(priority)};
    Add(std::move(job));
  }
  void Append(const RequestId& id, const std::vector<TokenId>& tokens, bool last, const WorkerAddress& to,
              bool restart = false) {
    Request& request = requests_.at(id);
    if (restart) request.prompt.clear();
    request.prompt.insert(request.prompt.end(), tokens.begin(), tokens.end());
    request.to = to;
    if (last) request.added = Now();
    engine_.Append({.request_id = id,
                    .tokens = tokens,
                    .restart = restart,
                    .last = last,
                    .expected_new_tokens = 1,
                    .decode_worker = to,
                    .lease = lease},
                   Now());
    Pump();
  }
  void Cancel(const RequestId& id) {
    requests_.at(id).cancelled = true;
    engine_.Cancel(id, Now());
    Pump();
  }
  bool Begin() {
    batch_ = engine_.StartStep(Now());
    Pump();
    return batch_ != nullptr;
  }
  bool running() const { return batch_ != nullptr; }
  // If `failing_after` is set, the forward pass fails after that many layers.
  void End(std::optional<int64_t> failing_after = std::nullopt) {
    const auto layer_done = [&](int64_t layer) {
      engine_.LayerDone(layer, Now());
      Pump();
      return true;
    };
    absl::Status status;
    if (failing_after) {
      for (const SequenceSlice& slice : batch_->slices) tokens_of_failed_steps_ += std::ssize(slice.tokens);
      for (int64_t layer = 0; layer < *failing_after; ++layer) layer_done(layer);
      status = absl::InternalError("injected");
    } else {
      status = backend_.Forward(*batch_, layer_done).status();
    }
    batch_ = nullptr;
    engine_.FinishStep(status, Now());
    Pump();
  }
  void Advance(absl::Duration by) {
    clock_.Advance(by);
    engine_.Tick(Now());
    for (auto& [address, decode] : decodes_) decode->worker.receiver().Tick(Now());
    Pump();
  }
  // The first token that the decode worker makes from the KV of the hand-off.
  absl::StatusOr<TokenId> FirstToken(const RequestId& id) {
    const Request& request = requests_.at(id);
    const auto decode_worker = decodes_.find(request.to);
    if (decode_worker == decodes_.end()) return absl::UnavailableError("the decode worker is gone");
    return decode_worker->second->worker.FirstToken(*request.done, request.prompt, "", Now());
  }
  // Upper bound on the tokens that steps computed or tried to compute.
  int64_t tokens_planned() const { return backend_.tokens_computed() + tokens_of_failed_steps_; }
  void CheckInvariants() {
    engine_.CheckInvariants();
    for (auto& [address, decode] : decodes_) decode->worker.CheckInvariants();
  }

 private:
  void Add(PrefillJob job) {
    if (auto refused = engine_.Add(std::move(job), Now())) Fail(std::move(*refused));
    Pump();
  }
  void Pump() {
    std::vector<RequestId> ended;
    for (PrefillAction& action : engine_.TakeActions(Now())) {
      if (const auto* done = std::get_if<PrefillDone>(&action)) ended.push_back(done->request_id);
      if (const auto* failed = std::get_if<RequestFailed>(&action)) ended.push_back(failed->request_id);
      std::visit([this](auto& concrete) { Do(std::move(concrete)); }, action);
    }
    CheckCounts(ended);
  }
  // Checks the counts of the requests that have just ended. In each of them every token but the
  // last has one source, or was not reached.
  void CheckCounts(const std::vector<RequestId>& ended) {
    const PrefillTotals totals = engine_.load().totals;
    PrefillTokens all = totals.tokens;
    all += totals.low_priority;
    int64_t with_kv = 0;
    for (const RequestId& id : ended) with_kv += std::max<int64_t>(std::ssize(requests_.at(id).prompt) - 1, 0);
    const auto grew = [&](int64_t PrefillTokens::*count) { return all.*count - counted_.*count; };
    INFO("ended: " << absl::StrJoin(ended, ", "));
    const int64_t dropped = grew(&PrefillTokens::dropped), computed = grew(&PrefillTokens::computed);
    const int64_t cached = grew(&PrefillTokens::cached) + grew(&PrefillTokens::host) + grew(&PrefillTokens::disk);
    const int64_t shared = grew(&PrefillTokens::shared), held = grew(&PrefillTokens::held);
    const int64_t not_reached = grew(&PrefillTokens::not_reached);
    REQUIRE(computed + cached + shared + held + not_reached == with_kv);
    REQUIRE(std::min({dropped, computed, cached, shared, held, not_reached}) >= 0);
    if (ended.size() == 1) {
      const Request& request = requests_.at(ended[0]);
      const int64_t wasted = totals.wasted_tokens - wasted_, refused = totals.refused_tokens - refused_;
      if (request.done) {
        REQUIRE(computed == request.done->computed_tokens);
        REQUIRE(cached == request.done->cached_tokens);
        REQUIRE(shared == request.done->shared_tokens);
        REQUIRE(held == request.done->held_tokens);
        REQUIRE(not_reached == (request.to.empty() ? with_kv % kBlockTokens : 0));
      }
      // The hand-off of a request whose step failed may still be committed.
      const bool no_room = request.failed && request.failed->no_room_to_decode;
      const bool useful = request.done && !request.cancelled;
      const bool maybe_failed = request.done.has_value() && tokens_of_failed_steps_ > 0;
      if (request.low_priority) {
        REQUIRE(wasted + refused == 0);
      } else if (!maybe_failed) {
        REQUIRE(wasted == dropped + (useful || no_room ? 0 : computed));
        REQUIRE(refused == (no_room ? computed : 0));
      }
    }
    counted_ = all;
    wasted_ = totals.wasted_tokens;
    refused_ = totals.refused_tokens;
  }

  // Carries a call to a decode worker's receiver, and its reply back.
  template <typename Reply, typename Call, typename Answer>
  void Carry_(std::string kind, std::string text, const WorkerAddress& to, Call call, Answer answer) {
    carry_({kind, std::move(text),
            [this, to, call, answer] {
              const auto found = decodes_.find(to);
              answer(found != decodes_.end() ? call(found->second->worker.receiver())
                                             : Reply(absl::UnavailableError("no worker at this address")));
              Pump();
            },
            [this, answer] {
              answer(Reply(absl::UnavailableError("lost")));
              Pump();
            }});
  }

  void Do(SendLink a) {
    using Reply = absl::StatusOr<LinkReply>;
    Carry_<Reply>(
        "link", absl::StrCat("link ", a.to), a.to,
        [this, a](HandoffReceiver& r) -> Reply { return r.OnLink(a.request, Now()); },
        [this, a](Reply reply) { engine_.sender().OnLinkReply(a.link, std::move(reply), Now()); });
  }
  void Do(SendReserve a) {
    using Reply = absl::StatusOr<ReserveReply>;
    Carry_<Reply>(
        "reserve", absl::StrCat("reserve ", a.request.request_id, a.request.cache_only ? ", ahead" : ""), a.to,
        [this, a](HandoffReceiver& r) -> Reply { return r.OnReserve(a.request, Now()); },
        [this, a](Reply reply) { engine_.sender().OnReserveReply(a.handoff, std::move(reply), Now()); });
  }
  void Do(SendCommit a) {
    Carry_<absl::Status>(
        "commit", "commit", a.to,
        [this, a](HandoffReceiver& r) {
          const absl::Status status = r.OnCommit(a.commit, Now());
          for (auto& [address, decode] : decodes_) decode->worker.Check(Now());
          return status;
        },
        [this, a](const absl::Status& status) { engine_.sender().OnCommitReply(a.handoff, status, Now()); });
  }
  void Do(SendRelease a) {
    Carry_<absl::Status>(
        "release", "release", a.to,
        [this, a](HandoffReceiver& r) {
          r.OnRelease(a.release, Now());
          return absl::OkStatus();
        },
        [this, a](const absl::Status& status) {
          engine_.sender().OnReleaseReply(a.to, a.release.reservation, status, Now());
        });
  }
  void Do(SendHeartbeat a) {
    using Reply = absl::StatusOr<HeartbeatReply>;
    Carry_<Reply>(
        "heartbeat", "heartbeat", a.to,
        [this, a](HandoffReceiver& r) -> Reply { return r.OnHeartbeat(a.heartbeat, Now()); },
        [this, a](Reply reply) { engine_.sender().OnHeartbeatReply(a.id, std::move(reply), Now()); });
  }
  void Do(OpenConnection a) {
    const auto report = [this, a](absl::Status status) {
      const auto found = decodes_.find(a.to);
      const bool there = found != decodes_.end() && found->second->descriptor == a.transport_descriptor;
      if (status.ok() && !there) status = absl::UnavailableError("no worker at this address");
      if (status.ok()) connections_[a.link] = found->second;
      engine_.sender().OnConnected(a.link, status, Now());
      Pump();
    };
    carry_({"connect", absl::StrCat("connect ", a.to), [report] { report(absl::OkStatus()); },
            [report] { report(absl::UnavailableError("lost")); }});
  }
  void Do(CloseConnection a) { connections_.erase(a.link); }
  void Do(const ForgetPeer&) {}
  void Do(const DigestBlocks& a) {
    const auto report = [this, a] {
      engine_.sender().OnDigests(a.id, DigestsOf(backend_.kv_slab(), FakeBackend::Layout(), a.blocks), Now());
      Pump();
    };
    carry_({"digest", absl::StrCat("digest ", a.blocks.size(), " blocks"), report, report});
  }
  void Do(PushBlocks a) {
    int64_t bytes = 0;
    for (const BlockCopy& copy : a.copies) bytes += copy.bytes;
    const KvLayout layout = FakeBackend::Layout();
    const bool whole = bytes % layout.BlockBytes() == 0;
    const auto report = [this, a](const absl::Status& status) {
      engine_.sender().OnPushDone(a.push, status, Now());
      Pump();
    };
    carry_({"push",
            absl::StrCat("push ", bytes / (whole ? layout.BlockBytes() : layout.LayerBytes()),
                         whole ? " blocks" : " block layers"),
            [this, a, report] { report(Copy(a)); }, [report] { report(absl::UnavailableError("lost")); }});
  }
  absl::Status Copy(const PushBlocks& push) {
    const auto connection = connections_.find(push.link);
    if (connection == connections_.end()) return absl::UnavailableError("not connected");
    const std::shared_ptr<Decode> peer = connection->second.lock();
    if (peer == nullptr) return absl::UnavailableError("no worker at this address");
    std::byte* target = peer->backend.kv_slab().data();
    for (const BlockCopy& copy : push.copies) {
      std::memcpy(target + copy.target_offset, backend_.kv_slab().data() + copy.source_offset,
                  static_cast<size_t>(copy.bytes));
    }
    return absl::OkStatus();
  }
  void Do(const PrefillStarted& action) {
    Request& request = requests_.at(action.request_id);
    BATON_CHECK(!request.started && !request.done && !request.failed, "a start after a start or a result");
    request.started = Now();
  }
  void Do(PrefillDone done) {
    log_(absl::StrCat("done ", done.request_id, ": cached ", done.cached_tokens, " shared ", done.shared_tokens,
                      " computed ", done.computed_tokens,
                      done.held_tokens > 0 ? absl::StrCat(" held ", done.held_tokens) : "", " pushed ",
                      done.bytes_pushed / FakeBackend::Layout().BlockBytes(), " blocks"));
    Request& request = requests_.at(done.request_id);
    BATON_CHECK(!request.done && !request.failed, "two results for one request");
    // The hand-off of a request that was cancelled in the queue may still be committed.
    BATON_CHECK(request.started || request.cancelled, "a result without a start");
    if (request.started) REQUIRE(done.queued == *request.started - request.added);
    request.done = std::move(done);
  }
  void Do(RequestFailed failed) { Fail(std::move(failed)); }
  void Fail(RequestFailed failed) {
    log_(absl::StrCat("failed ", failed.request_id, ": ", failed.status.ToString(),
                      failed.retry_after > absl::ZeroDuration()
                          ? absl::StrCat("; again after ", absl::FormatDuration(failed.retry_after))
                      : failed.no_room_to_decode ? "; when that reports room"
                                                 : "",
                      failed.no_room_to_decode ? ", or at another decode worker" : ""));
    Request& request = requests_.at(failed.request_id);
    BATON_CHECK(!request.done && !request.failed, "two results for one request");
    request.failed = std::move(failed);
  }

  Carry carry_;
  Log log_;
  ManualClock clock_;
  FakeBackend backend_;
  PrefillEngine engine_;
  const Batch* batch_ = nullptr;
  std::map<WorkerAddress, std::shared_ptr<Decode>> decodes_;
  std::map<LinkId, std::weak_ptr<Decode>> connections_;
  uint64_t incarnations_ = 100;
  std::map<RequestId, Request> requests_;
  PrefillTokens counted_;  // of the requests that have ended
  int64_t wasted_ = 0, refused_ = 0;
  int64_t tokens_of_failed_steps_ = 0;
};

}  // namespace baton
