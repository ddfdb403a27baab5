// Tests of a prefill node, a decode node and a router node in one process, with a tiny random
// checkpoint.
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "catch.h"
#include "inference.grpc.pb.h"
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

WorkerOptions TinyWorker() {
  WorkerOptions options;
  options.model = SourcePath("test/golden/tiny_llama3_bf16");
  options.device = "cpu";
  options.threads = 1;
  options.kv_memory_mb = 8;
  return options;
}

LoadedModel Load(WorkerOptions& options) {
  absl::StatusOr<LoadedModel> model = LoadModel(options, {.prefill = 1, .decode = 1});
  INFO(model.status().ToString());
  REQUIRE(model.ok());
  return *std::move(model);
}

// Three nodes. Each member comes after the members that it uses.
struct Nodes {
  WorkerOptions options = TinyWorker();
  LoadedModel model = Load(options);
  const std::string name = ModelName(options.model);
  const ModelConfig config = model.weights->config;
  const Digest digest = model.weights->digest;
  const SteadyClock clock{};
  Metrics metrics{};
  const std::shared_ptr<InProcessNetwork> network = std::make_shared<InProcessNetwork>();
  const Transports prefill_transports = MakeInProcessTransports(options, network);
  const Transports decode_transports = MakeInProcessTransports(options, network);
  // Only the decode backend has an LM head.
  const WorkerBackend prefill_backend = MakeBackend(model, options, false, prefill_transports).value();
  const WorkerBackend decode_backend = MakeBackend(model, options, true, decode_transports).value();
  const std::unique_ptr<Tokenizer> tokenizer = Tokenizer::Load(options.model).value();
  std::unique_ptr<DecodeNode> decode =
      DecodeNode::Start(Parts(decode_backend), {*tokenizer, digest, nullptr}, "", kDecodeName).value();
  std::unique_ptr<PrefillNode> prefill =
      PrefillNode::Start(Parts(prefill_backend), "", kPrefillName, [this](const WorkerAddress&) {
        return decode->server().InProcessChannel();
      }).value();
  std::unique_ptr<RouterNode> router = StartRouter();
  std::unique_ptr<v1::Inference::Stub> stub = v1::Inference::NewStub(router->server().InProcessChannel());

  NodeParts Parts(const WorkerBackend& made) {
    return {options, name, config, digest, *made.backend, *made.connector, clock, metrics};
  }
  std::unique_ptr<RouterNode> StartRouter() {
    RouterOptions router_options;
    router_options.listen = "";
    router_options.http = "off";
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
  absl::Status status;
};

Answer Generate(v1::Inference::Stub& stub) {
  v1::GenerateRequest request;
  auto& prompt = *request.mutable_segments()->add_segments()->mutable_token_ids();
  for (int32_t id = 0; id < 50; ++id) prompt.add_ids(3 + id % 7);
  request.mutable_sampling()->set_max_tokens(12);
  request.mutable_sampling()->set_temperature(0);
  request.mutable_sampling()->set_ignore_eos(true);
  grpc::ClientContext context;
  const auto reader = stub.Generate(&context, request);
  Answer answer;
  v1::GenerateResponse response;
  while (reader->Read(&response)) {
    answer.tokens.insert(answer.tokens.end(), response.token_ids().begin(), response.token_ids().end());
    if (response.has_final()) answer.cached_tokens = response.final().usage().cached_tokens();
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
