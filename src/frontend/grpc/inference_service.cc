#include "frontend/grpc/inference_service.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "frontend/grpc/generate_stream.h"
#include "frontend/grpc/message_check.h"
#include "frontend/grpc/prefill_only_call.h"
#include "frontend/grpc/put_output_call.h"
#include "frontend/server_info.h"
#include "frontend/trace_convert.h"
#include "rpc/grpc_deadline.h"
#include "rpc/grpc_status.h"

namespace baton {
namespace {

// Converts a call's deadline to a time of the router's clock.
absl::Time DeadlineOf(const grpc::CallbackServerContext& context, const Clock& clock) {
  return clock.Now() + TimeUntil(context.raw_deadline());
}

// Returns the header "authorization", or an empty text if the call has none.
std::string_view AuthorizationOf(const grpc::CallbackServerContext& context) {
  const auto it = context.client_metadata().find("authorization");
  return it == context.client_metadata().end() ? std::string_view()
                                               : std::string_view(it->second.data(), it->second.size());
}

// Returns the traceparent, or an empty text if the call has none or more than one. With more than
// one, it is unclear which of them is right.
std::string_view TraceparentOf(const grpc::CallbackServerContext& context) {
  const auto [begin, end] = context.client_metadata().equal_range("traceparent");
  if (std::distance(begin, end) != 1) return {};
  return {begin->second.data(), begin->second.size()};
}

grpc::ServerUnaryReactor* Finished(grpc::CallbackServerContext* context, const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpc(status));
  return reactor;
}

}  // namespace

InferenceService::InferenceService(Router& router, ServedModels& models, const Clock& clock, ClientAdmission& admission)
    : router_(router), models_(models), clock_(clock), admission_(admission) {}

absl::StatusOr<Caller> InferenceService::CallerOf(const grpc::CallbackServerContext& context, std::string_view method) {
  return admission_.callers().Authenticate(AuthorizationOf(context), {"gRPC", context.peer(), method});
}

absl::Status InferenceService::CheckOperator(const grpc::CallbackServerContext& context, std::string_view method) {
  return admission_.callers().AuthenticateOperator(AuthorizationOf(context), {"gRPC", context.peer(), method}).status();
}

template <typename Message>
void InferenceService::Accept(grpc::CallbackServerContext& context, std::string_view method,
                              const grpc::ByteBuffer& bytes, const std::shared_ptr<CallSink>& sink) {
  TraceContext span = BeginSpan(TraceparentOf(context));
  context.AddInitialMetadata("traceparent", ToTraceparent(span));
  absl::StatusOr<Caller> caller = CallerOf(context, method);
  if (!caller.ok()) return admission_.Refuse(*sink, caller.status());
  if (const auto why = admission_.RefusalFor(*caller)) {
    // Prompts may wait for the request that a refused message names. gRPC keeps `bytes` until the
    // call ends.
    const auto refuse = [this, &bytes, sink, caller = *caller, why] {
      Message message;
      (void)Parse(bytes, message);
      admission_.Refuse(*sink, caller, AsGenerate(std::move(message)), why->status, why->retry_after);
    };
    const absl::Status run = admission_.Run(**caller, bytes.Length(), refuse);
    if (!run.ok()) admission_.Refuse(*sink, why->status, why->retry_after);
    return;
  }
  Message message;
  const absl::Status parsed = Parse(bytes, message);
  if (!parsed.ok()) return admission_.Refuse(*sink, parsed);
  auto request = std::make_shared<v1::GenerateRequest>(AsGenerate(std::move(message)));
  const absl::Time now = clock_.Now();
  const absl::Time deadline = std::min(DeadlineOf(context, clock_), now + TimeoutOf(*request));
  // The id of the call is empty: it is a header of HTTP.
  admission_.Accept(std::move(request), {*std::move(caller), "", std::move(span), deadline, now}, sink);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* InferenceService::Generate(grpc::CallbackServerContext* context,
                                                                       const grpc::ByteBuffer* request) {
  const auto stream = GenerateStream::Make(context, &router_);
  Accept<v1::GenerateRequest>(*context, "Generate", *request, stream);
  return stream.get();  // owns itself until OnDone
}

grpc::ServerUnaryReactor* InferenceService::PrefillOnly(grpc::CallbackServerContext* context,
                                                        const grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
  const auto call = PrefillOnlyCall::Make(context, response, &router_);
  Accept<v1::PrefillOnlyRequest>(*context, "PrefillOnly", *request, call);
  return call.get();
}

grpc::ServerReadReactor<grpc::ByteBuffer>* InferenceService::PutOutput(grpc::CallbackServerContext* context,
                                                                       grpc::ByteBuffer* response) {
  context->AddInitialMetadata("traceparent", ToTraceparent(BeginSpan(TraceparentOf(*context))));
  absl::StatusOr<Caller> caller = CallerOf(*context, "PutOutput");
  const absl::Status known = caller.status();
  const auto call = PutOutputCall::Make(context, response, {router_, models_, admission_, caller.value_or(nullptr)});
  known.ok() ? call->Start() : call->Refuse(known);
  return call.get();  // owns itself until OnDone
}

grpc::ServerUnaryReactor* InferenceService::ListModels(grpc::CallbackServerContext* context,
                                                       const v1::ListModelsRequest*, v1::ListModelsResponse* response) {
  const absl::Status known = CallerOf(*context, "ListModels").status();
  if (!known.ok()) return Finished(context, known);
  admission_.JoinDecoders();
  for (const ServedModel* model : models_.all()) {
    v1::Model shared;
    shared.set_context(model->context);
    shared.set_vocabulary(model->vocab);
    shared.set_has_chat_template(model->chat_template != nullptr);
    shared.set_ready(router_.Readiness(model->name).ok());
    for (const std::string& name : model->listed_names) {
      v1::Model& out = *response->add_models();
      out = shared;
      out.set_name(name);
    }
  }
  return Finished(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* InferenceService::GetServerInfo(grpc::CallbackServerContext* context,
                                                          const v1::GetServerInfoRequest*,
                                                          v1::GetServerInfoResponse* response) {
  const absl::Status known = CheckOperator(*context, "GetServerInfo");
  if (!known.ok()) return Finished(context, known);
  *response = ServerInfo(router_, admission_.callers());
  return Finished(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* InferenceService::Trace(grpc::CallbackServerContext* context, const v1::TraceRequest* request,
                                                  v1::TraceResponse* response) {
  const absl::StatusOr<Caller> caller = CallerOf(*context, "Trace");
  if (!caller.ok()) return Finished(context, caller.status());
  const auto trace = router_.TraceOf(request->workflow(), CacheDomainOf(**caller, request->cache_salt()));
  if (trace.ok()) *response = ToProto(*trace);
  return Finished(context, trace.status());
}

grpc::ServerUnaryReactor* InferenceService::DrainWorker(grpc::CallbackServerContext* context,
                                                        const v1::DrainWorkerRequest* request,
                                                        v1::DrainWorkerResponse* response) {
  const absl::Status known = CheckOperator(*context, "DrainWorker");
  if (!known.ok()) return Finished(context, known);
  const absl::StatusOr<int32_t> remaining = router_.Drain(request->worker(), !request->undo());
  if (remaining.ok()) response->set_remaining_requests(*remaining);
  return Finished(context, remaining.status());
}

grpc::ServerUnaryReactor* InferenceService::CancelWorkflow(grpc::CallbackServerContext* context,
                                                           const v1::CancelWorkflowRequest* request,
                                                           v1::CancelWorkflowResponse* response) {
  const absl::StatusOr<Caller> caller = CallerOf(*context, "CancelWorkflow");
  if (!caller.ok()) return Finished(context, caller.status());
  v1::GenerateRequest names;
  names.set_workflow(request->workflow());
  names.set_cache_salt(request->cache_salt());
  if (absl::Status status = CheckNames(names); !status.ok()) return Finished(context, status);
  const auto cancelled = router_.CancelWorkflow(request->workflow(), CacheDomainOf(**caller, request->cache_salt()));
  if (cancelled.ok()) response->set_cancelled_requests(*cancelled);
  return Finished(context, cancelled.status());
}

}  // namespace baton
