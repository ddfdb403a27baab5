// A connection to a decode worker that guards its blocks (WriteGuard). It writes by gRPC, and thus
// under the certificates of gRPC.
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

// The two ends of a connection.
struct KvWritePeer {
  Slab source{};  // the slab of this worker
  // The bytes of the K or V of one layer of a block. Messages have whole planes, because the ranks
  // on the two sides may share planes differently.
  int64_t plane_bytes = 0;
  int64_t target_bytes = 0;  // the size of the peer's slab
  WorkerAddress address{};   // of the peer, for logs
  // The deadline of one message, from its sending. If the peer takes longer, the push ends with
  // UNAVAILABLE. The time that a message waits in the queue does not count.
  std::chrono::milliseconds write_within = std::chrono::seconds(10);
};

// Its threads read the pushed blocks and send them, each thread one message at a time.
class KvWriteLink final : public Link {
 public:
  KvWriteLink(std::shared_ptr<grpc::Channel> channel, KvWritePeer peer);
  // Cancels the messages in flight at once. A connection is destroyed when its peer is lost or
  // replaced, or when nothing is in flight.
  ~KvWriteLink() override;

  // Calls `done` with FAILED_PRECONDITION at once, because the peer takes no write without a write
  // key.
  void Push(std::span<const BlockCopy> copies, absl::AnyInvocable<void(absl::Status)> done) override;
  void PushUnder(const WriteKey& write_key, std::span<const BlockCopy> copies,
                 absl::AnyInvocable<void(absl::Status)> done) override;
  std::string Description() const override;

 private:
  // One push.
  struct Job {
    WriteKey write_key;
    absl::AnyInvocable<void(absl::Status)> done;
    size_t messages = 0;  // messages without an answer
    absl::Status status{};
  };
  struct Message {
    std::shared_ptr<Job> job;
    std::vector<BlockCopy> copies;
    int64_t bytes = 0;
  };

  std::vector<Message> Cut(const std::shared_ptr<Job>& job, std::span<const BlockCopy> copies) const;
  void Run();
  // Sends one message and returns the peer's answer. Fails with UNAVAILABLE if the peer cannot be
  // reached or this connection is closed. Also fails if this worker's slab cannot be read.
  absl::Status Send(const Message& message);
  absl::Status Write(grpc::ClientContext& context, const Message& message);
  // Records an answer and returns the jobs that end with it. After a failure, drops the other
  // messages of the push from the queue. After a refusal (PERMISSION_DENIED), drops all messages
  // with the same write key. REQUIRES: the caller holds mutex_.
  std::vector<std::shared_ptr<Job>> Settle(const Message& sent, const absl::Status& status);

  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<kv::v1::KvTransfer::Stub> stub_;
  const KvWritePeer peer_;
  std::mutex mutex_;  // guards queue_, calls_, closed_ and the jobs
  std::condition_variable changed_;
  std::deque<Message> queue_;
  std::set<grpc::ClientContext*> calls_;  // the running calls
  bool closed_ = false;
  std::vector<std::thread> threads_;  // the last member, because the threads use the others
};

}  // namespace baton
