#include "shell/kv_transfer_service.h"

#include "base/logging.h"
#include "base/status.h"
#include "rpc/grpc_status.h"
#include "rpc/kv_convert.h"

namespace baton {

// `handle(worker)` does the work and returns its status. It waits only for locks. A call that
// revokes a write key also waits until writes with that key have ended.
template <typename Handle>
grpc::ServerUnaryReactor* KvTransferService::Answer(grpc::CallbackServerContext* context, Handle handle) {
  DecodeWorker* worker = worker_;
  const absl::Status status =
      worker == nullptr ? absl::UnavailableError("the decode worker is not ready") : handle(*worker);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpc(status));
  return reactor;
}

// If the process cannot be watched, its blocks stay in quarantine until their leases have passed.
void KvTransferService::WatchWriter(const baton::LinkRequest& link) {
  ProcessWatch* watch = watch_;
  if (watch == nullptr || link.process.empty()) return;
  const absl::Status status = watch->Watch(link.process);
  if (status.ok()) return;
  spdlog::info("the end of prefill worker {} is not watched: {}", link.prefill_address, status.ToString());
}

grpc::ServerUnaryReactor* KvTransferService::Link(grpc::CallbackServerContext* context,
                                                  const kv::v1::LinkRequest* request, kv::v1::LinkReply* reply) {
  return Answer(context, [&](DecodeWorker& worker) -> absl::Status {
    ASSIGN_OR_RETURN(const LinkRequest link, FromProto(*request));
    ASSIGN_OR_RETURN(const LinkReply answer, worker.OnLink(link));
    WatchWriter(link);
    *reply = ToProto(answer);
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* KvTransferService::Reserve(grpc::CallbackServerContext* context,
                                                     const kv::v1::ReserveRequest* request,
                                                     kv::v1::ReserveReply* reply) {
  return Answer(context, [&](DecodeWorker& worker) -> absl::Status {
    ASSIGN_OR_RETURN(ReserveRequest reserve, FromProto(*request));
    ASSIGN_OR_RETURN(const ReserveReply answer, worker.OnReserve(std::move(reserve)));
    *reply = ToProto(answer);
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* KvTransferService::Commit(grpc::CallbackServerContext* context,
                                                    const kv::v1::CommitRequest* request, kv::v1::CommitReply*) {
  return Answer(context, [&](DecodeWorker& worker) -> absl::Status {
    ASSIGN_OR_RETURN(const baton::Commit commit, FromProto(*request));
    return worker.OnCommit(commit);
  });
}

grpc::ServerUnaryReactor* KvTransferService::Release(grpc::CallbackServerContext* context,
                                                     const kv::v1::ReleaseRequest* request, kv::v1::ReleaseReply*) {
  return Answer(context, [&](DecodeWorker& worker) {
    worker.OnRelease(FromProto(*request));
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* KvTransferService::Heartbeat(grpc::CallbackServerContext* context,
                                                       const kv::v1::HeartbeatRequest* request,
                                                       kv::v1::HeartbeatReply* reply) {
  return Answer(context, [&](DecodeWorker& worker) -> absl::Status {
    ASSIGN_OR_RETURN(const HeartbeatReply answer, worker.OnHeartbeat(FromProto(*request)));
    *reply = ToProto(answer);
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* KvTransferService::Write(grpc::CallbackServerContext* context,
                                                   const kv::v1::WriteRequest* request, kv::v1::WriteReply*) {
  const auto write = [&]() -> absl::Status {
    WriteGuard* guard = guard_;
    if (guard == nullptr) {
      return absl::FailedPreconditionError("this decode worker accepts KV blocks over gRPC only with --guard-kv");
    }
    if (!request->has_right()) return guard->Write({}, {}, {});
    const absl::StatusOr<WriteKey> write_key = FromProto(request->right());
    if (!write_key.ok()) return guard->Refuse(write_key.status());
    const absl::StatusOr<std::vector<BlockCopy>> copies = CopiesOf(*request);
    if (!copies.ok()) return guard->Refuse(copies.status());
    return guard->Write(*write_key, *copies, request->data());
  };
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpc(write()));
  return reactor;
}

}  // namespace baton
