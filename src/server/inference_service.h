// baton.v1.Inference: decodes and checks, hands to the router, answers.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "base/clock.h"
#include "inference.grpc.pb.h"
#include "model/served_model.h"
#include "server/generate_stream.h"
#include "server/router.h"
#include "server/work_queue.h"

namespace baton {

// Calls with prompts are taken raw, so that a message that does not parse is answered with INVALID_ARGUMENT and the
// field that is wrong, rather than with gRPC's UNIMPLEMENTED.
using InferenceServiceBase =
    v1::Inference::WithRawCallbackMethod_Generate<v1::Inference::WithRawCallbackMethod_PrefillOnly<
        v1::Inference::WithCallbackMethod_ListModels<v1::Inference::WithCallbackMethod_GetServerInfo<
            v1::Inference::WithCallbackMethod_Trace<v1::Inference::Service>>>>>;

class InferenceService final : public InferenceServiceBase {
 public:
  // All must outlive it, and it the server that serves it.
  InferenceService(Router& router, ServedModels& models, const Clock& clock, Metrics& metrics);

  grpc::ServerWriteReactor<grpc::ByteBuffer>* Generate(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* request) override;
  grpc::ServerUnaryReactor* PrefillOnly(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                        grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* ListModels(grpc::CallbackServerContext* context, const v1::ListModelsRequest* request,
                                       v1::ListModelsResponse* response) override;
  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context, const v1::GetServerInfoRequest* request,
                                          v1::GetServerInfoResponse* response) override;
  grpc::ServerUnaryReactor* Trace(grpc::CallbackServerContext* context, const v1::TraceRequest* request,
                                  v1::TraceResponse* response) override;

  // Accepts nothing any more: UNAVAILABLE.
  void Drain() { draining_ = true; }

 private:
  // Reads the request, here or, if it is long, on a thread of long_prompts_, and submits it for `sink`.
  template <typename Request, typename Sink>
  void Accept(grpc::CallbackServerContext* context, const grpc::ByteBuffer& bytes, std::shared_ptr<Sink> sink);
  template <typename Request, typename Sink>
  void Admit(const Request& request, absl::Time deadline, const std::shared_ptr<Sink>& sink);
  // For requests that the router has not accepted; it counts the others itself.
  template <typename Sink>
  void Refuse(const std::shared_ptr<Sink>& sink, const absl::Status& status, absl::Duration retry_after = {});
  RequestId DrawId();
  void JoinDecoders();  // those whose workers have attached since

  Router& router_;
  ServedModels& models_;
  const Clock& clock_;
  Metrics& metrics_;
  const std::string id_prefix_;  // random, so that ids of different routers differ
  std::atomic<uint64_t> next_id_ = 1;
  std::atomic<bool> draining_ = false;
  WorkQueue long_prompts_;
};

}  // namespace baton
