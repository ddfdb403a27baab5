// The server of baton.kv.v1.KvTransfer, the control side of the hand-off. Prefill workers call it.
#pragma once

#include <atomic>

#include "engine/decode/worker.h"
#include "kv_transfer.grpc.pb.h"
#include "shell/process_watch.h"
#include "transport/write_guard.h"

namespace baton {

using KvTransferServiceBase = kv::v1::KvTransfer::CallbackService;

class KvTransferService final : public KvTransferServiceBase {
 public:
  // Lets Write write the worker's blocks. REQUIRES: the server does not listen yet.
  void Guard(WriteGuard& guard) { guard_ = &guard; }
  // Watches the processes of prefill workers that link. REQUIRES: the server does not listen yet,
  // or Open was not called.
  void Watch(ProcessWatch& watch) { watch_ = &watch; }
  // Accepts calls from now on. Earlier calls get UNAVAILABLE. The worker must outlive the server's
  // calls.
  void Open(DecodeWorker& worker) { worker_ = &worker; }

  grpc::ServerUnaryReactor* Link(grpc::CallbackServerContext* context, const kv::v1::LinkRequest* request,
                                 kv::v1::LinkReply* reply) override;
  grpc::ServerUnaryReactor* Reserve(grpc::CallbackServerContext* context, const kv::v1::ReserveRequest* request,
                                    kv::v1::ReserveReply* reply) override;
  grpc::ServerUnaryReactor* Commit(grpc::CallbackServerContext* context, const kv::v1::CommitRequest* request,
                                   kv::v1::CommitReply* reply) override;
  grpc::ServerUnaryReactor* Release(grpc::CallbackServerContext* context, const kv::v1::ReleaseRequest* request,
                                    kv::v1::ReleaseReply* reply) override;
  grpc::ServerUnaryReactor* Heartbeat(grpc::CallbackServerContext* context, const kv::v1::HeartbeatRequest* request,
                                      kv::v1::HeartbeatReply* reply) override;
  grpc::ServerUnaryReactor* Write(grpc::CallbackServerContext* context, const kv::v1::WriteRequest* request,
                                  kv::v1::WriteReply* reply) override;

 private:
  void WatchWriter(const baton::LinkRequest& link);
  template <typename Handle>
  grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context, Handle handle);

  std::atomic<DecodeWorker*> worker_ = nullptr;
  std::atomic<WriteGuard*> guard_ = nullptr;
  std::atomic<ProcessWatch*> watch_ = nullptr;
};

}  // namespace baton
