// A router with one fake worker of each kind, and calls that a test controls.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

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

// A Generate call that a test controls.
struct Call {
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>> reader;

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
    reader = cluster.stub->Generate(&context, request);
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

inline void PassPrefill(Cluster& c, const RequestId& id = "r") {
  REQUIRE(c.prefill->Next().prefill().request_id() == id);
  c.prefill->Send(DoneEvent(id, Incarnation(22)));
  REQUIRE(c.decode->Next().decode().request_id() == id);
}

}  // namespace baton
