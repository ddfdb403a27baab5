// Tests of the router's threads: when the alarm wakes, and in which order clients receive events.
#include "shell/router.h"

#include <atomic>
#include <condition_variable>
#include <thread>

#include "base/strings.h"
#include "catch.h"
#include "fake_worker.h"
#include "log_capture.h"
#include "model/byte_model.h"
#include "shell/request_handle.h"

namespace baton {
namespace {

class Recorder final : public RequestSink {
 public:
  void OnUpdate(TokenUpdate update) override {
    is_late_ = is_late_ || ended();
    text_ += update.text;
  }
  void OnEnd(const RequestOutcome& outcome) override {
    const std::lock_guard lock(mutex_);
    status_ = outcome.status;
    changed_.notify_all();
  }
  absl::Status AwaitEnd() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return status_.has_value(); });
    return *status_;
  }
  bool ended() const {
    const std::lock_guard lock(mutex_);
    return status_.has_value();
  }
  bool is_late() const { return is_late_; }  // whether an update came after the end

 private:
  std::atomic<bool> is_late_ = false;
  std::string text_;  // the router makes one call at a time
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<absl::Status> status_;  // guarded by mutex_
};

void AwaitThat(absl::FunctionRef<bool()> condition) {
  while (!condition()) std::this_thread::yield();
}

// A clock that shows the time until which the alarm sleeps.
class WatchedClock final : public Clock {
 public:
  absl::Time Now() const override { return time_.Now(); }
  void Wait(std::condition_variable& changed, std::unique_lock<std::mutex>& lock, absl::Time until) const override {
    {
      const std::lock_guard own_lock(mutex_);
      until_ = until;
      ++waits_;
    }
    time_.Wait(changed, lock, until);
  }
  void Advance(absl::Duration by) { time_.Advance(by); }
  void AwaitSleepUntil(absl::Time time) const {
    AwaitThat([&] {
      const std::lock_guard lock(mutex_);
      return until_ == time;
    });
  }
  // Returns after the alarm has read the time and has gone to sleep again.
  void AwaitLook() const {
    const auto waits = [this] {
      const std::lock_guard lock(mutex_);
      return waits_;
    };
    const int64_t before = waits();
    AwaitThat([&] { return waits() >= before + 2; });
  }

 private:
  ManualClock time_;
  mutable std::mutex mutex_;
  mutable absl::Time until_ = absl::InfinitePast();  // guarded by mutex_, like waits_
  mutable int64_t waits_ = 0;
};

// A router with one worker of each kind. Its time stands still until a test advances it.
struct Routed {
  WatchedClock clock;
  Metrics metrics;
  ServedModel model = ByteModel("bytes");
  std::optional<FakePrefill> prefill{std::in_place, WorkerRole::kPrefill, 11};
  FakeDecode decode{WorkerRole::kDecode, 22};
  Router router{Options(), clock, DialTcp, metrics};

  Routed() {
    AwaitThat([this] { return router.Readiness("bytes").ok(); });
    clock.AwaitLook();  // waits until the work of the start is done
    clock.AwaitSleepUntil(absl::InfiniteFuture());
  }
  Router::Options Options() const {
    Router::Options options;
    options.prefill_workers = {prefill->address()};
    options.decode_workers = {decode.address()};
    return options;
  }
  std::shared_ptr<Recorder> Submit(const RequestId& id, absl::Duration timeout = absl::InfiniteDuration()) {
    auto sink = std::make_shared<Recorder>();
    Submit(id, sink, timeout);
    return sink;
  }
  void Submit(const RequestId& id, std::shared_ptr<RequestSink> sink,
              absl::Duration timeout = absl::InfiniteDuration()) {
    ClientRequest request;
    request.id = id;
    request.served = &model;
    request.spec.tokens = std::vector<TokenId>{'h', 'i'};
    request.spec.sampling.max_tokens = 32;
    request.has_max_tokens = true;
    request.deadline = clock.Now() + timeout;
    absl::StatusOr<RequestTicket> submitted = router.Submit(std::move(request), std::move(sink));
    REQUIRE(submitted.ok());
    ticket = *submitted;
  }
  bool Shows(const std::string& line) const { return metrics.Text().find(line + "\n") != std::string::npos; }

  RequestTicket ticket;  // of the last request
};

TEST_CASE("A router refuses a worker with an unknown KV format and logs both names") {
  const LogCapture log;
  FakePrefill prefill(WorkerRole::kPrefill, 11);
  FakeDecode decode(WorkerRole::kDecode, 22, "127.0.0.1:0",
                    [](worker::v1::WorkerInfo& info) { info.mutable_layout()->set_kv_format("fp8_e4m3"); });
  Router::Options options;
  options.prefill_workers = {prefill.address()};
  options.decode_workers = {decode.address()};
  const SteadyClock clock;
  Metrics metrics;
  const Router router(options, clock, DialTcp, metrics);
  const std::string refused =
      absl::StrCat("worker ", decode.address(), ": refused: layout: kv_format: expected bf16 or f32, got 'fp8_e4m3'");
  AwaitThat([&] { return log.Count(refused) == 1; });
  CHECK(absl::IsUnavailable(router.Readiness("bytes")));
}

TEST_CASE("A router ticks only when an event is due or becomes due earlier") {
  Routed r;
  for (int round = 0; round < 10; ++round) {
    r.clock.Advance(absl::Hours(1));  // outputs that the router keeps for a while expire
    r.clock.AwaitSleepUntil(absl::InfiniteFuture());
    const int64_t ticks = r.router.ticks();
    r.clock.Advance(absl::Hours(1));
    r.clock.AwaitLook();
    CHECK(r.router.ticks() == ticks);  // no tick while the router is idle
    const auto sink = r.Submit("r", absl::Seconds(1));
    r.clock.AwaitSleepUntil(r.clock.Now() + absl::Seconds(1));
    CHECK(r.router.ticks() == ticks + 1);
    r.clock.Advance(absl::Seconds(1));
    CHECK(absl::IsDeadlineExceeded(sink->AwaitEnd()));
    r.clock.AwaitSleepUntil(r.clock.Now() + AgentLimits().keep_output);
    CHECK(r.router.ticks() == ticks + 2);
  }
}

TEST_CASE("An earlier deadline wakes the router's alarm") {
  Routed r;
  const auto late = r.Submit("late", absl::Minutes(1));
  r.clock.AwaitSleepUntil(r.clock.Now() + absl::Minutes(1));
  const auto early = r.Submit("early", absl::Seconds(1));
  r.clock.AwaitSleepUntil(r.clock.Now() + absl::Seconds(1));
  r.clock.Advance(absl::Seconds(1));
  CHECK(absl::IsDeadlineExceeded(early->AwaitEnd()));
  CHECK_FALSE(late->ended());
  r.clock.Advance(absl::Minutes(1));
  CHECK(absl::IsDeadlineExceeded(late->AwaitEnd()));
}

// A client that takes its end only once the alarm sleeps until a time.
class SlowClient final : public RequestSink {
 public:
  SlowClient(const WatchedClock& clock, absl::Time alarm) : clock_(clock), alarm_(alarm) {}
  void OnUpdate(TokenUpdate) override {}
  void OnEnd(const RequestOutcome&) override { clock_.AwaitSleepUntil(alarm_); }

 private:
  const WatchedClock& clock_;
  const absl::Time alarm_;
};

TEST_CASE("An event wakes the alarm before its client receives the event") {
  Routed r;
  r.Submit("r", std::make_shared<SlowClient>(r.clock, r.clock.Now() + AgentLimits().keep_output));
  r.router.Cancel(r.ticket);  // its output is kept for a while from now on
  CHECK(r.router.live_requests() == 0);
}

TEST_CASE("A router places a refused request again after the worker's retry_after") {
  Routed r;
  const auto sink = r.Submit("r");
  REQUIRE(r.prefill->Next().has_prefill());
  worker::v1::PrefillEvent refused;
  *refused.mutable_failed() = ToProto(RequestFailed{"r", absl::ResourceExhaustedError("full"), absl::Seconds(3)});
  r.prefill->Send(refused);
  r.clock.AwaitSleepUntil(r.clock.Now() + absl::Seconds(3));
  r.clock.Advance(absl::Seconds(3));
  CHECK(r.prefill->Next().prefill().request_id() == "r");
}

TEST_CASE("A router sends no update of a request after its end") {
  Routed r;
  for (int i = 0; i < 50; ++i) {
    const RequestId id = absl::StrCat("r", i);
    const auto sink = r.Submit(id);
    REQUIRE(r.prefill->Next().prefill().request_id() == id);
    r.prefill->Send(DoneEvent(id, Incarnation(22)));
    while (!r.decode.Next().has_decode()) {  // skips cancellations of earlier requests
    }
    std::thread canceller([&] { r.router.Cancel(r.ticket); });
    for (int token = 0; token < 5; ++token) r.decode.Send(TokensEvent(id, "x", std::nullopt));
    CHECK(absl::IsCancelled(sink->AwaitEnd()));
    canceller.join();
    CHECK_FALSE(sink->is_late());
  }
}

TEST_CASE("A request ends with the error of its call, before and after its submission") {
  Routed r;
  const bool fails_before = GENERATE(false, true);
  RequestHandle handle(&r.router);
  if (fails_before) handle.Fail(absl::UnavailableError("another request failed"));
  const auto sink = r.Submit("r");
  handle.Submitted(r.ticket);
  if (!fails_before) handle.Fail(absl::UnavailableError("another request failed"));
  CHECK(CodeAndMessage(sink->AwaitEnd()) == "UNAVAILABLE: another request failed");
}

TEST_CASE("Gauges of requests and workers are current without a tick") {
  Routed r;
  CHECK(r.Shows("baton_attached_workers{role=\"prefill\"} 1"));
  CHECK(r.Shows("baton_live_requests 0"));
  const auto sink = r.Submit("r");
  CHECK(r.Shows("baton_live_requests 1"));
  r.router.Cancel(r.ticket);
  CHECK(r.Shows("baton_live_requests 0"));
}

TEST_CASE("A router forgets a removed worker when its stream ends, without a tick") {
  Routed r;
  r.router.SetWorkers(WorkerRole::kPrefill, {});
  CHECK(r.router.Workers().size() == 2);
  r.prefill.reset();
  AwaitThat([&] { return r.router.Workers().size() == 1; });
  CHECK(r.Shows("baton_attached_workers{role=\"prefill\"} 0"));
}

}  // namespace
}  // namespace baton
