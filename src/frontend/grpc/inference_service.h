// The server of baton.v1.Inference. It decodes and checks messages, submits requests to the router,
// and answers.
#pragma once

#include <memory>
#include <string_view>

#include "base/clock.h"
#include "frontend/admission.h"
#include "inference.grpc.pb.h"
#include "model/served_model.h"
#include "shell/router.h"

namespace baton {

// Calls with prompts take raw bytes. A message that does not parse is then answered with
// INVALID_ARGUMENT and the name of the wrong field. gRPC's own parser would answer UNIMPLEMENTED.
using InferenceServiceBase = v1::Inference::WithRawCallbackMethod_Generate<
    v1::Inference::WithRawCallbackMethod_PrefillOnly<v1::Inference::WithRawCallbackMethod_PutOutput<
        v1::Inference::WithCallbackMethod_ListModels<v1::Inference::WithCallbackMethod_GetServerInfo<
            v1::Inference::WithCallbackMethod_Trace<v1::Inference::WithCallbackMethod_DrainWorker<
                v1::Inference::WithCallbackMethod_CancelWorkflow<v1::Inference::Service>>>>>>>>;

class InferenceService final : public InferenceServiceBase {
 public:
  // The arguments must outlive this object, and this object the server that serves it.
  InferenceService(Router& router, ServedModels& models, const Clock& clock, ClientAdmission& admission);

  grpc::ServerWriteReactor<grpc::ByteBuffer>* Generate(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* request) override;
  grpc::ServerUnaryReactor* PrefillOnly(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                        grpc::ByteBuffer* response) override;
  grpc::ServerReadReactor<grpc::ByteBuffer>* PutOutput(grpc::CallbackServerContext* context,
                                                       grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* ListModels(grpc::CallbackServerContext* context, const v1::ListModelsRequest* request,
                                       v1::ListModelsResponse* response) override;
  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context, const v1::GetServerInfoRequest* request,
                                          v1::GetServerInfoResponse* response) override;
  grpc::ServerUnaryReactor* Trace(grpc::CallbackServerContext* context, const v1::TraceRequest* request,
                                  v1::TraceResponse* response) override;
  grpc::ServerUnaryReactor* DrainWorker(grpc::CallbackServerContext* context, const v1::DrainWorkerRequest* request,
                                        v1::DrainWorkerResponse* response) override;
  grpc::ServerUnaryReactor* CancelWorkflow(grpc::CallbackServerContext* context,
                                           const v1::CancelWorkflowRequest* request,
                                           v1::CancelWorkflowResponse* response) override;

 private:
  // Returns the tenant of the call's key. `method` is the call's name, for the log.
  absl::StatusOr<Caller> CallerOf(const grpc::CallbackServerContext& context, std::string_view method);
  absl::Status CheckOperator(const grpc::CallbackServerContext& context, std::string_view method);
  // Reads `bytes` as a Message and submits it. Message is the request of Generate or PrefillOnly.
  template <typename Message>
  void Accept(grpc::CallbackServerContext& context, std::string_view method, const grpc::ByteBuffer& bytes,
              const std::shared_ptr<CallSink>& sink);

  Router& router_;
  ServedModels& models_;
  const Clock& clock_;
  ClientAdmission& admission_;
};

}  // namespace baton
