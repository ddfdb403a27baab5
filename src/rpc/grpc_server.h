// How every process listens and dials: sizes, keepalive, health and reflection in one place.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "grpcpp/grpcpp.h"

namespace baton {

// Of a client's message. A prompt of a million token ids fits.
inline constexpr int kMaxMessageBytes = 8 << 20;
// gRPC itself refuses larger ones, with RESOURCE_EXHAUSTED and before it reads them. There is room for messages that
// are too large, so that clients are told why, and for jobs, which say more than the message that they come from.
inline constexpr int kMaxWireBytes = 2 * kMaxMessageBytes;

// Opens a channel to a worker: over TCP, or within this process.
using ChannelFactory = std::function<std::shared_ptr<grpc::Channel>(const WorkerAddress& address)>;

// A machine that is gone is noticed within 20 s, a process at once. Never waits for readiness.
std::shared_ptr<grpc::Channel> DialTcp(const WorkerAddress& address);
grpc::ChannelArguments InternalChannelArguments();

class GrpcServer {
 public:
  enum class Audience {
    kClients,  // with reflection
    kWorkers,
  };
  // Listens on host:port (port 0: a free one) and serves. An empty address listens nowhere: in-process only.
  // UNAVAILABLE: the address cannot be bound. The services must outlive it.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(
      const std::string& listen, Audience audience, const std::vector<grpc::Service*>& services,
      std::shared_ptr<grpc::ServerCredentials> credentials = grpc::InsecureServerCredentials());
  ~GrpcServer();  // Stop with no grace

  const std::string& address() const { return address_; }  // host:port with the port that was chosen
  std::shared_ptr<grpc::Channel> InProcessChannel();
  // What grpc.health.v1 answers: for the whole server and, to clients, for "baton.v1.Inference". At first: not serving.
  void SetServing(bool serving);
  // Accepts no new call, gives the running ones `grace` to end, then cancels them. Blocks until all are done.
  void Stop(absl::Duration grace);

 private:
  Audience audience_ = Audience::kWorkers;
  std::string address_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace baton
