#include "server/inference_service.h"

#include <random>
#include <utility>

#include "absl/strings/str_format.h"
#include "server/grpc_status.h"
#include "server/message_check.h"
#include "server/prefill_only_call.h"
#include "server/request_reader.h"
#include "server/trace_convert.h"
#include "server/version.h"

namespace baton {
namespace {

constexpr size_t kLongPrompt = 16 << 10;  // bytes of text; tokenising less takes well under a millisecond
constexpr size_t kLongPromptsWaiting = 256;
constexpr absl::Duration kRetryHint = absl::Seconds(1);

// The calls' deadlines are wall-clock times; ours are the router's clock's.
absl::Time DeadlineOf(const grpc::CallbackServerContext& context, const Clock& clock) {
  const absl::Duration left = absl::FromChrono(context.deadline()) - absl::Now();
  return left > absl::Hours(24 * 365) ? absl::InfiniteFuture() : clock.Now() + left;
}

absl::Status Parse(const grpc::ByteBuffer& bytes, google::protobuf::Message& message) {
  if (bytes.Length() > kMaxMessageBytes) {
    return absl::InvalidArgumentError(absl::StrCat("message: ", bytes.Length(), " bytes, limit ", kMaxMessageBytes));
  }
  grpc::Slice slice;
  if (!bytes.DumpToSingleSlice(&slice).ok()) return absl::InvalidArgumentError("the message has no content");
  if (message.ParseFromArray(slice.begin(), static_cast<int>(slice.size()))) return absl::OkStatus();
  return ExplainParseError({reinterpret_cast<const char*>(slice.begin()), slice.size()}, message);
}

template <typename Request>
size_t PromptBytes(const Request& request) {
  return request.has_chat() ? TextBytes(request.chat()) : TextBytes(request.segments());
}

std::string RandomPrefix() {
  std::random_device random;
  return absl::StrFormat("%08x%08x-", random(), random());
}

void Fill(const Router::WorkerView& view, v1::Worker& out) {
  out.set_role(view.role == WorkerRole::kPrefill ? v1::Worker::ROLE_PREFILL : v1::Worker::ROLE_DECODE);
  out.set_address(view.link);
  out.set_attached(view.attached.has_value());
  if (!view.attached) return;
  const WorkerInfo& info = view.attached->info;
  const WorkerLoad& load = view.attached->load;
  out.set_model(info.model);
  out.set_numerics_id(info.numerics_id);
  out.set_incarnation(absl::StrFormat("%016x", info.incarnation.value()));
  out.set_running_requests(load.running_requests);
  out.set_queued_requests(load.queued_requests);
  out.set_queued_tokens(load.queued_tokens);
  out.set_blocks_total(info.blocks_total);
  out.set_blocks_free(load.blocks_free);
  out.set_blocks_cached(load.blocks_cached);
}

}  // namespace

InferenceService::InferenceService(Router& router, ServedModels& models, const Clock& clock, Metrics& metrics)
    : router_(router),
      models_(models),
      clock_(clock),
      metrics_(metrics),
      id_prefix_(RandomPrefix()),
      long_prompts_(/*threads=*/2, kLongPromptsWaiting) {}

RequestId InferenceService::DrawId() { return absl::StrCat(id_prefix_, next_id_++); }

void InferenceService::JoinDecoders() {
  for (const auto& [decoder, module] : router_.Decoders()) models_.Join(decoder, module);
}

template <typename Request, typename Sink>
void InferenceService::Accept(grpc::CallbackServerContext* context, const grpc::ByteBuffer& bytes,
                              std::shared_ptr<Sink> sink) {
  if (draining_) return Refuse(sink, absl::UnavailableError("the router shuts down"), kRetryHint);
  auto request = std::make_shared<Request>();
  if (absl::Status status = Parse(bytes, *request); !status.ok()) return Refuse(sink, status);
  const absl::Time deadline = DeadlineOf(*context, clock_);
  if (PromptBytes(*request) <= kLongPrompt) return Admit(*request, deadline, sink);
  const bool queued = long_prompts_.TryRun([this, request, deadline, sink] { Admit(*request, deadline, sink); });
  if (!queued) {
    Refuse(sink,
           absl::ResourceExhaustedError(
               absl::StrCat("overloaded: ", kLongPromptsWaiting, " long prompts wait to be tokenised")),
           kRetryHint);
  }
}

template <typename Request, typename Sink>
void InferenceService::Admit(const Request& proto, absl::Time deadline, const std::shared_ptr<Sink>& sink) {
  // A long prompt may have waited: what nobody waits for any more is not tokenised.
  if (sink->handle().cancelled()) return Refuse(sink, absl::CancelledError("the client cancelled"));
  if (clock_.Now() >= deadline) {
    return Refuse(sink, absl::DeadlineExceededError("the deadline passed before the prompt was read"));
  }
  if (!models_.Contains(proto.model())) JoinDecoders();
  absl::StatusOr<ClientRequest> request = ReadRequest(proto, models_, absl::Now());
  if (!request.ok()) return Refuse(sink, request.status());
  request->deadline = deadline;
  if (request->id.empty()) request->id = DrawId();
  sink->SetId(request->id);
  const absl::StatusOr<RequestTicket> ticket = router_.Submit(*std::move(request), sink);
  if (ticket.ok()) return sink->handle().Submitted(*ticket);
  Refuse(sink, ticket.status(), absl::IsResourceExhausted(ticket.status()) ? kRetryHint : absl::ZeroDuration());
}

template <typename Sink>
void InferenceService::Refuse(const std::shared_ptr<Sink>& sink, const absl::Status& status,
                              absl::Duration retry_after) {
  CountRequest(metrics_, status.code());
  sink->Refuse(status, retry_after);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* InferenceService::Generate(grpc::CallbackServerContext* context,
                                                                       const grpc::ByteBuffer* request) {
  const auto stream = GenerateStream::Make(context, &router_);
  Accept<v1::GenerateRequest>(context, *request, stream);
  return stream.get();  // keeps itself until OnDone
}

grpc::ServerUnaryReactor* InferenceService::PrefillOnly(grpc::CallbackServerContext* context,
                                                        const grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
  const auto call = PrefillOnlyCall::Make(context, response, &router_);
  Accept<v1::PrefillOnlyRequest>(context, *request, call);
  return call.get();
}

grpc::ServerUnaryReactor* InferenceService::ListModels(grpc::CallbackServerContext* context,
                                                       const v1::ListModelsRequest*, v1::ListModelsResponse* response) {
  JoinDecoders();
  for (const ServedModel* model : models_.all()) {
    v1::Model& out = *response->add_models();
    out.set_name(model->name);
    out.set_context(model->context);
    out.set_vocabulary(model->vocab);
    out.set_has_chat_template(model->chat_template != nullptr);
    out.set_ready(router_.Readiness(model->name).ok());
  }
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerUnaryReactor* InferenceService::GetServerInfo(grpc::CallbackServerContext* context,
                                                          const v1::GetServerInfoRequest*,
                                                          v1::GetServerInfoResponse* response) {
  response->set_version(kVersion);
  for (const Router::WorkerView& view : router_.Workers()) Fill(view, *response->add_workers());
  response->set_live_requests(router_.live_requests());
  response->set_waiting_requests(router_.waiting_requests());
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerUnaryReactor* InferenceService::Trace(grpc::CallbackServerContext* context, const v1::TraceRequest* request,
                                                  v1::TraceResponse* response) {
  const auto trace = router_.TraceOf(request->workflow(), request->cache_salt());
  if (trace.ok()) *response = ToProto(*trace);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpc(trace.status()));
  return reactor;
}

}  // namespace baton
