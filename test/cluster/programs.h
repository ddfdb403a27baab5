// The programs that cluster tests start with a tiny model, and requests to them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "inference.grpc.pb.h"
#include "process.h"
#include "rpc/grpc_deadline.h"
#include "rpc/grpc_server.h"
#include "rpc/grpc_status.h"
#include "source_path.h"

namespace baton {

inline const std::string kModel = SourcePath("test/golden/tiny_llama3_bf16");

std::vector<std::string> Small(std::vector<std::string> arguments, const std::string& model = kModel);

// Returns the address at which a router serves HTTP.
std::string HttpOf(Process& process);
// Returns the address at which a program serves its metrics.
std::string MetricsOf(Process& process);

struct Worker {
  Process process;
  const std::string role, address, metrics;
  explicit Worker(const std::string& role_name, const std::string& listen = "127.0.0.1:0");
  Worker(const std::string& role_name, const std::vector<std::string>& arguments);
  ~Worker();

  // Waits until a request holds blocks at the worker.
  void AwaitBlocksUsed() { AwaitUsed(true); }
  // Waits until no request holds a block at the worker.
  void AwaitBlocksFree() { AwaitUsed(false); }

 private:
  void AwaitUsed(bool some);
};

// Returns a greedy request for exactly `max_tokens` tokens.
v1::GenerateRequest MakeRequest(int max_tokens, int prompt_tokens = 40);

struct Call {
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>> reader;
  std::vector<int32_t> ids;
  std::vector<float> logprobs;
  v1::Final final;

  Call(v1::Inference::Stub& stub, const v1::GenerateRequest& request,
       grpc_compression_algorithm compression = GRPC_COMPRESS_NONE, absl::Duration timeout = absl::InfiniteDuration()) {
    context.set_deadline(DeadlineAfter(timeout));
    context.set_compression_algorithm(compression);
    reader = stub.Generate(&context, request);
  }
  bool Read() {
    v1::GenerateResponse response;
    if (!reader->Read(&response)) return false;
    ids.insert(ids.end(), response.token_ids().begin(), response.token_ids().end());
    for (const v1::TokenLogprobs& entry : response.logprobs()) logprobs.push_back(entry.logprob());
    if (response.has_final()) final = response.final();
    return true;
  }
  absl::Status Finish() {
    while (Read()) continue;
    return FromGrpc(reader->Finish());
  }
};

// The state of a router that requires no keys.
v1::GetServerInfoResponse ServerInfoOf(v1::Inference::Stub& stub);

// Starts a request, and stops its decode worker after the first tokens, so that the request does
// not end. The router then has less than half of the tokens. If a request is faster, the function
// lets it end and starts another one. REQUIRES: no other request generates tokens meanwhile.
std::unique_ptr<Call> StopWhileItDecodes(Worker& decode, v1::Inference::Stub& stub, const v1::GenerateRequest& request);

}  // namespace baton
