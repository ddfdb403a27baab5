// A router with one fake worker of each kind, and calls that a test controls.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "await.h"
#include "base/clock.h"
#include "base/strings.h"
#include "catch.h"
#include "fake_worker.h"
#include "inference.grpc.pb.h"
#include "model/byte_model.h"
#include "node/router_node.h"
#include "rpc/grpc_status.h"

namespace baton {

// Limits under which a router waits for its workers as long as a test does.
inline RouterLimits PatientLimits() { return {.worker_wait = absl::Hours(1)}; }

// The statuses of ended Generate calls, by request id. Thread-safe.
class EndedCalls {
 public:
  void Remove(const RequestId& id) {
    const std::lock_guard lock(mutex_);
    statuses_.erase(id);
  }
  void Add(const RequestId& id, absl::Status status) {
    const std::lock_guard lock(mutex_);
    statuses_[id] = std::move(status);
  }
  // Returns nullopt if no call of the request has ended.
  std::optional<absl::Status> StatusOf(const RequestId& id) const {
    const std::lock_guard lock(mutex_);
    const auto found = statuses_.find(id);
    return found == statuses_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  mutable std::mutex mutex_;  // guards the members below
  std::map<RequestId, absl::Status> statuses_;
};

struct Cluster {
  std::optional<FakePrefill> prefill{std::in_place, WorkerRole::kPrefill, 11};
  std::optional<FakeDecode> decode{std::in_place, WorkerRole::kDecode, 22};
  const SteadyClock steady_clock{};
  const Clock& clock;
  Metrics metrics;
  RouterOptions options;
  std::unique_ptr<RouterNode> node;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::Inference::Stub> stub;
  EndedCalls ended_calls;

  // With a null `other_clock`, the router has a steady clock. The other clock must outlive the
  // cluster.
  explicit Cluster(RouterLimits limits = PatientLimits(), Schedule schedule = Schedule::kFirstCome,
                   const std::string& keys = "", const Clock* other_clock = nullptr)
      : clock(other_clock == nullptr ? steady_clock : *other_clock) {
    options.keys = keys;
    options.listen = options.http = "127.0.0.1:0";
    options.prefill_workers = {prefill->address()};
    options.decode_workers = {decode->address()};
    options.limits = limits;
    options.schedule = schedule;
    Serve(ByteModel("bytes"));
  }
  // Replaces the decode worker by one with `blocks` KV blocks, and restarts the router.
  void ShrinkDecode(int64_t blocks) {
    decode.emplace(WorkerRole::kDecode, 23, "127.0.0.1:0",
                   [blocks](worker::v1::WorkerInfo& info) { info.set_blocks_total(blocks); });
    options.decode_workers = {decode->address()};
    Serve(ByteModel("bytes"));
  }
  // Restarts the router with this model and the current options.
  void Serve(ServedModel model) {
    node.reset();
    std::vector<ServedModel> models;
    models.push_back(std::move(model));
    auto started = RouterNode::Start(options, std::move(models), DialTcp, clock, metrics);
    REQUIRE(started.ok());
    node = *std::move(started);
    channel = DialTcp(node->server().address());
    stub = v1::Inference::NewStub(channel);
  }
};

// The answer to a Generate call. Records the end of the call even if the test does not read.
class GenerateReader final : private grpc::ClientReadReactor<v1::GenerateResponse> {
 public:
  // `cluster` and `context` must outlive this object.
  GenerateReader(Cluster& cluster, grpc::ClientContext& context, const v1::GenerateRequest& request)
      : context_(context), id_(request.request_id()), ended_calls_(cluster.ended_calls) {
    ended_calls_.Remove(id_);  // of an earlier call with the same id
    cluster.stub->async()->Generate(&context, &request, this);
    AddHold();  // for reads that a test starts
    StartRead(&next_);
    StartCall();
  }
  // Cancels the call if it runs.
  ~GenerateReader() override {
    context_.TryCancel();
    v1::GenerateResponse response;
    while (Read(&response)) continue;
    Finish();
  }

  // Waits for the next message. Returns false after the last message.
  bool Read(v1::GenerateResponse* response) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return read_.has_value(); });
      if (!*read_) return false;
      read_.reset();
    }
    response->Swap(&next_);
    StartRead(&next_);
    return true;
  }
  // Waits for the end of the call. REQUIRES: Read has returned false.
  grpc::Status Finish() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return status_.has_value(); });
    return *status_;
  }

 private:
  void OnReadDone(bool ok) override {
    {
      const std::lock_guard lock(mutex_);
      read_ = ok;
      changed_.notify_all();
    }
    if (!ok) RemoveHold();
  }
  void OnDone(const grpc::Status& status) override {
    ended_calls_.Add(id_, FromGrpc(status));
    const std::lock_guard lock(mutex_);
    status_ = status;
    changed_.notify_all();
  }

  grpc::ClientContext& context_;
  const RequestId id_;
  EndedCalls& ended_calls_;
  v1::GenerateResponse next_;  // gRPC writes it during a read
  std::mutex mutex_;           // guards the members below
  std::condition_variable changed_;
  std::optional<bool> read_;  // whether the last read returned a message; empty during a read
  std::optional<grpc::Status> status_;
};

// A Generate call that a test controls.
struct Call {
  grpc::ClientContext context;
  std::unique_ptr<GenerateReader> reader;

  static v1::GenerateRequest Request(const std::string& id, const std::string& text) {
    v1::GenerateRequest request;
    request.set_request_id(id);
    request.mutable_segments()->add_segments()->set_text(text);
    request.mutable_sampling()->set_max_tokens(8);
    request.mutable_sampling()->set_seed(99);
    return request;
  }

  explicit Call(Cluster& cluster, const std::string& id = "r", absl::Duration timeout = absl::InfiniteDuration(),
                const std::string& text = "hello")
      : Call(cluster, Request(id, text), timeout) {}
  Call(Cluster& cluster, const v1::GenerateRequest& request, absl::Duration timeout = absl::InfiniteDuration()) {
    context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
    reader = std::make_unique<GenerateReader>(cluster, context, request);
  }

  // The result of a call that is read to its end.
  struct Result {
    std::string text;
    std::vector<int32_t> ids;
    v1::Final final;
    absl::Status status;
  };
  Result Finish() {
    Result result;
    v1::GenerateResponse response;
    while (reader->Read(&response)) {
      result.text += response.text();
      result.ids.insert(result.ids.end(), response.token_ids().begin(), response.token_ids().end());
      if (response.has_final()) result.final = response.final();
    }
    result.status = FromGrpc(reader->Finish());
    return result;
  }
};

// Returns the text of a prompt for the byte model.
inline std::string TextOf(const google::protobuf::RepeatedField<int32_t>& tokens) {
  return {tokens.begin(), tokens.end()};
}

// Passes a request through both workers. Fails if its Call ends before it reaches the prefill
// worker.
inline void PassPrefill(Cluster& c, const RequestId& id = "r") {
  Await("a command for the prefill worker", [&] {
    if (c.prefill->HasNext()) return true;
    const std::optional<absl::Status> ended = c.ended_calls.StatusOf(id);
    if (ended) FAIL("the call '" << id << "' ended: " << *ended);
    return false;
  });
  REQUIRE(c.prefill->Next().prefill().request_id() == id);
  c.prefill->Send(DoneEvent(id, Incarnation(22)));
  REQUIRE(c.decode->Next().decode().request_id() == id);
}

}  // namespace baton
