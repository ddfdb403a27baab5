// A way to write into a decode worker that guards its blocks (WriteGuard): by gRPC, and so under its certificates.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/ids.h"
#include "kv/slab.h"
#include "kv_transfer.grpc.pb.h"
#include "transport/transport.h"

namespace baton {

// Ours, and the peer's.
struct KvWritePeer {
  Slab source{};
  int64_t plane_bytes = 0;  // of a layer's K or V: ranks on the two sides may share planes differently
  int64_t target_bytes = 0;
  WorkerAddress address{};  // of the peer, for logs
  // That a message may take: a peer that hangs longer is UNAVAILABLE. Of a backlog each message has its own, however
  // long it waits for its turn.
  std::chrono::milliseconds write_within = std::chrono::seconds(10);
};

// Its threads read what is pushed and send it, each one message at a time.
class KvWriteLink final : public Link {
 public:
  KvWriteLink(std::shared_ptr<grpc::Channel> channel, KvWritePeer peer);
  // Breaks off at once what is in flight: the peer is lost, or another one is at its address, or nothing is.
  ~KvWriteLink() override;

  // FAILED_PRECONDITION, at once.
  void Push(std::span<const BlockCopy> copies, absl::AnyInvocable<void(absl::Status)> done) override;
  void PushUnder(const WriteRight& right, std::span<const BlockCopy> copies,
                 absl::AnyInvocable<void(absl::Status)> done) override;
  std::string Description() const override;

 private:
  // One push.
  struct Job {
    WriteRight right;
    absl::AnyInvocable<void(absl::Status)> done;
    size_t messages = 0;  // without answer
    absl::Status status{};
  };
  struct Message {
    std::shared_ptr<Job> job;
    std::vector<BlockCopy> copies;
    int64_t bytes = 0;
  };

  std::vector<Message> Cut(const std::shared_ptr<Job>& job, std::span<const BlockCopy> copies) const;
  void Run();
  // UNAVAILABLE: the peer cannot be reached, or this link is closed; else the peer's answer, or an error of reading our
  // own slab.
  absl::Status Send(const Message& message);
  absl::Status Write(grpc::ClientContext& context, const Message& message);
  // The jobs that end with this answer. After a failure the rest of the push need not go, nor after a refusal what else
  // is under its right. With the lock held.
  std::vector<std::shared_ptr<Job>> Settle(const Message& sent, const absl::Status& status);

  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<kv::v1::KvTransfer::Stub> stub_;
  const KvWritePeer peer_;
  std::mutex mutex_;  // guards what follows, and jobs
  std::condition_variable changed_;
  std::deque<Message> queue_;
  std::set<grpc::ClientContext*> calls_;  // under way
  bool closed_ = false;
  std::vector<std::thread> threads_;  // last: they use all of the above
};

}  // namespace baton
