// Tests of a prefill node, a decode node and a router node in one process, with a tiny random
// checkpoint.
#include <condition_variable>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "await.h"
#include "base/clock.h"
#include "catch.h"
#include "inference.grpc.pb.h"
#include "metric_value.h"
#include "model/served_model.h"
#include "node/decode_node.h"
#include "node/prefill_node.h"
#include "node/router_node.h"
#include "node/transports.h"
#include "node/worker_backend.h"
#include "rpc/grpc_status.h"
#include "source_path.h"

namespace baton {
namespace {

constexpr char kPrefillName[] = "in-process:prefill";
constexpr char kDecodeName[] = "in-process:decode";

WorkerOptions TinyWorker(int32_t max_batch = 0) {
  WorkerOptions options;
  options.model = SourcePath("test/golden/tiny_llama3_bf16");
  options.device = "cpu";
  options.threads = 1;
  options.kv_memory_mb = 8;
  options.max_batch = max_batch;
  return options;
}

LoadedModel Load(WorkerOptions& options) {
  absl::StatusOr<LoadedModel> model = LoadModel(options, {.prefill = 1, .decode = 1});
  INFO(model.status().ToString());
  REQUIRE(model.ok());
  return *std::move(model);
}

// A backend whose passes do not begin while it is held. Hold and Release are thread-safe.
class HeldBackend final : public Backend {
 public:
  explicit HeldBackend(Backend& backend) : backend_(backend) {}

  void Hold() { SetHeld(true); }
  void Release() { SetHeld(false); }

  const KvLayout& kv_layout() const override { return backend_.kv_layout(); }
  Slab kv_slab() override { return backend_.kv_slab(); }
  std::string numerics_id() const override { return backend_.numerics_id(); }
  absl::StatusOr<LogitsView> Forward(const Batch& batch, absl::FunctionRef<bool(int64_t layer)> layer_done,
                                     const Meanwhile& meanwhile) override {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return !held_; });
    }
    return backend_.Forward(batch, layer_done, meanwhile);
  }

 private:
  void SetHeld(bool held) {
    const std::lock_guard lock(mutex_);
    held_ = held;
    changed_.notify_all();
  }

  Backend& backend_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool held_ = false;  // guarded by mutex_
};

// Three nodes. Each member comes after the members that it uses.
struct Nodes {
  WorkerOptions options = TinyWorker();
  LoadedModel model = Load(options);
  const std::string name = ModelName(options.model);
  const ModelConfig config = model.weights->config;
  const Digest digest = model.weights->digest;
  ManualClock clock{};
  Metrics metrics{};
  const std::shared_ptr<InProcessNetwork> network = std::make_shared<InProcessNetwork>();
  const Transports prefill_transports = MakeInProcessTransports(options, network);
  const Transports decode_transports = MakeInProcessTransports(options, network);
  // Only the decode backend has an LM head.
  const WorkerBackend prefill_backend = MakeBackend(model, options, false, prefill_transports).value();
  const WorkerBackend decode_backend = MakeBackend(model, options, true, decode_transports).value();
  HeldBackend held_prefill{*prefill_backend.backend}, held_decode{*decode_backend.backend};
  const std::unique_ptr<Tokenizer> tokenizer = Tokenizer::Load(options.model).value();
  std::unique_ptr<DecodeNode> decode =
      DecodeNode::Start(Parts(held_decode, *decode_backend.connector), {*tokenizer, digest, nullptr}, "", kDecodeName)
          .value();
  std::unique_ptr<PrefillNode> prefill =
      PrefillNode::Start(Parts(held_prefill, *prefill_backend.connector), "", kPrefillName,
                         [this](const WorkerAddress&) { return decode->server().InProcessChannel(); })
          .value();
  std::unique_ptr<RouterNode> router = StartRouter();
  std::unique_ptr<v1::Inference::Stub> stub = v1::Inference::NewStub(router->server().InProcessChannel());

  NodeParts Parts(Backend& backend, Connector& connector) {
    return {options, name, config, digest, backend, connector, clock, metrics};
  }
  std::unique_ptr<RouterNode> StartRouter() {
    RouterOptions router_options;
    router_options.listen = "";
    router_options.http = "off";
    router_options.common.vllm_metrics = true;
    router_options.prefill_workers = {kPrefillName};
    router_options.decode_workers = {kDecodeName};
    router_options.limits.worker_wait = absl::Hours(1);
    const ChannelFactory reach = [this](const WorkerAddress& address) {
      return address == kPrefillName ? prefill->server().InProcessChannel() : decode->server().InProcessChannel();
    };
    return RouterNode::Start(router_options, LoadServedModels({options.model}).value(), reach, clock, metrics).value();
  }
};

struct Answer {
  std::vector<int32_t> tokens;
  int32_t cached_tokens = 0;
  v1::Timings timings;
  absl::Status status;
};

v1::GenerateRequest RequestOf(int32_t first_token = 3) {
  v1::GenerateRequest request;
  auto& prompt = *request.mutable_segments()->add_segments()->mutable_token_ids();
  for (int32_t id = 0; id < 50; ++id) prompt.add_ids(first_token + id % 7);
  request.mutable_sampling()->set_max_tokens(12);
  request.mutable_sampling()->set_temperature(0);
  request.mutable_sampling()->set_ignore_eos(true);
  return request;
}

// A call that its client may cancel. The trace of the workflow "w" has it.
class LiveCall {
 public:
  LiveCall(Nodes& nodes, const std::string& id, int32_t first_token) : id_(id), nodes_(nodes) {
    v1::GenerateRequest request = RequestOf(first_token);
    request.set_request_id(id);
    request.set_workflow("w");
    reader_ = nodes.stub->Generate(&context_, request);
  }
  absl::Status Cancel() {
    context_.TryCancel();
    v1::GenerateResponse response;
    while (reader_->Read(&response)) continue;
    Await("the end of the request", [this] { return Traced().over(); });
    return FromGrpc(reader_->Finish());
  }
  v1::TracedRequest Traced() {
    v1::TraceRequest asked;
    asked.set_workflow("w");
    v1::TraceResponse trace;
    grpc::ClientContext context;
    if (!nodes_.stub->Trace(&context, asked, &trace).ok()) return {};
    for (const v1::TracedRequest& request : trace.requests()) {
      if (request.request_id() == id_) return request;
    }
    return {};
  }
  absl::Duration TimeIn(v1::Span::Phase phase) {
    absl::Duration time;
    const v1::TracedRequest traced = Traced();
    for (const v1::Span& span : traced.spans()) {
      if (span.phase() == phase) time += absl::Microseconds(span.end_us() - span.begin_us());
    }
    return time;
  }

 private:
  const std::string id_;
  Nodes& nodes_;
  grpc::ClientContext context_{};
  std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>> reader_;
};

Answer Generate(v1::Inference::Stub& stub) {
  grpc::ClientContext context;
  const auto reader = stub.Generate(&context, RequestOf());
  Answer answer;
  v1::GenerateResponse response;
  while (reader->Read(&response)) {
    answer.tokens.insert(answer.tokens.end(), response.token_ids().begin(), response.token_ids().end());
    if (!response.has_final()) continue;
    answer.cached_tokens = response.final().usage().cached_tokens();
    answer.timings = response.final().timings();
  }
  answer.status = FromGrpc(reader->Finish());
  return answer;
}

}  // namespace

TEST_CASE("Three nodes answer a request and answer it again from the cache") {
  Nodes nodes;
  const Answer first = Generate(*nodes.stub), again = Generate(*nodes.stub);
  INFO(first.status.ToString());
  REQUIRE(first.status.ok());
  REQUIRE(again.status.ok());
  CHECK(first.tokens.size() == 12);
  CHECK(first.tokens == again.tokens);
  CHECK(first.cached_tokens == 0);
  CHECK(again.cached_tokens == 48);  // three full blocks of [0, 49)
}

TEST_CASE("The wait for a place in the decode batch is a queue and not prefill") {
  Nodes nodes{.options = TinyWorker(/*max_batch=*/2)};
  nodes.held_decode.Hold();
  std::vector<std::future<Answer>> calls(10);
  for (std::future<Answer>& call : calls) {
    call = std::async(std::launch::async, [&nodes] { return Generate(*nodes.stub); });
  }
  const std::string started =
      absl::StrCat("baton_worker_requests{model=\"", nodes.name, "\",role=\"decode\",state=\"running\"}");
  Await("the start of all requests at the decode worker", [&] { return MetricValue(nodes.metrics, started) == 10; });
  nodes.clock.Advance(absl::Seconds(1));
  nodes.held_decode.Release();

  double queues = 0, prefill = 0;
  int64_t waited = 0;
  for (std::future<Answer>& call : calls) {
    const Answer answer = call.get();
    REQUIRE(answer.status == absl::OkStatus());
    const v1::Timings& timings = answer.timings;
    // One or two requests are in the step that is held. The others wait for a place.
    CHECK(timings.decode_queue_ms() + timings.first_step_ms() == 1000);
    CHECK(timings.total_ms() == 1000);
    waited += timings.decode_queue_ms() == 1000;
    queues += timings.queue_ms() + timings.decode_queue_ms();
    prefill += timings.prefill_ms() + timings.handoff_ms() + timings.first_step_ms();
  }
  CHECK(waited >= 8);
  const auto sum = [&](const char* metric) {
    return 1000 * MetricValue(nodes.metrics, absl::StrCat(metric, "_sum{model_name=\"", nodes.name, "\"}"));
  };
  CHECK(sum("vllm:request_queue_time_seconds") == queues);
  CHECK(sum("vllm:request_prefill_time_seconds") == prefill);
}

TEST_CASE("The wait of a call that ends in a prefill worker's queue is no prefill") {
  Nodes nodes;
  nodes.held_prefill.Hold();
  LiveCall computing(nodes, "computing", 3);
  Await("the start of a step", [&] {
    nodes.clock.Advance(absl::Milliseconds(1));  // the trace shows no empty spans
    return computing.TimeIn(v1::Span::PHASE_PREFILL) > absl::ZeroDuration();
  });
  const absl::Duration before = computing.TimeIn(v1::Span::PHASE_PREFILL);
  LiveCall waiting(nodes, "waiting", 4);
  const std::string queued = absl::StrCat("baton_worker_queued_tokens{model=\"", nodes.name, "\",role=\"prefill\"}");
  Await("a prompt in the queue", [&] { return MetricValue(nodes.metrics, queued) == 49; });
  nodes.clock.Advance(absl::Seconds(1));
  for (LiveCall* call : {&computing, &waiting}) CHECK(absl::IsCancelled(call->Cancel()));
  nodes.held_prefill.Release();
  CHECK(computing.TimeIn(v1::Span::PHASE_PREFILL) == before + absl::Seconds(1));
  CHECK(waiting.TimeIn(v1::Span::PHASE_QUEUED) == absl::Seconds(1));
  CHECK(waiting.TimeIn(v1::Span::PHASE_PREFILL) == absl::ZeroDuration());
}

TEST_CASE("Tokens count once when the client leaves while a decode worker has no room") {
  WorkerOptions options = TinyWorker();
  options.kv_blocks = 6;  // a call of 50 prompt tokens and 12 new ones needs 4
  Nodes nodes{.options = options};
  const auto tokens = [&](const char* source) {
    return MetricValue(nodes.metrics,
                       absl::StrCat("baton_worker_tokens_total{role=\"prefill\",source=\"", source, "\"}"));
  };
  nodes.held_decode.Hold();
  LiveCall runs(nodes, "runs", 3);
  Await("the end of its prefill", [&] { return tokens("computed") == 49; });
  LiveCall refused(nodes, "refused", 4);
  Await("a refusal", [&] { return MetricValue(nodes.metrics, "baton_waiting_requests") == 1; });
  CHECK(absl::IsCancelled(refused.Cancel()));
  CHECK(tokens("computed") + tokens("not_reached") == 2 * 49);
  CHECK(MetricValue(nodes.metrics, "baton_refused_tokens_total") == tokens("computed") - 49);
  CHECK(MetricValue(nodes.metrics, "baton_wasted_tokens_total") == 0);
  CHECK(tokens("dropped") == 0);
  nodes.held_decode.Release();
}

TEST_CASE("Each node accepts more than one shutdown after it has served") {
  Nodes nodes;
  REQUIRE(Generate(*nodes.stub).status.ok());
  for (int i = 0; i < 2; ++i) {
    nodes.router->Shutdown(absl::ZeroDuration());
    nodes.prefill->Shutdown(absl::ZeroDuration());
    nodes.decode->Shutdown(absl::ZeroDuration());
  }
}

}  // namespace baton
