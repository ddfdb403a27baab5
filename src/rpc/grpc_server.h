// The gRPC server and the channels of all processes. Message sizes, keepalive, health and
// reflection are set here.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "grpcpp/grpcpp.h"

namespace baton {

// Upper bound on the message of a client, in bytes. A prompt of a million token ids fits.
inline constexpr int kMaxMessageBytes = 8 << 20;
// gRPC refuses larger messages with RESOURCE_EXHAUSTED before it reads them. The limit is higher
// than kMaxMessageBytes for two reasons. A client whose message is too large receives a descriptive
// error. A job is larger than the client's message from which it was made.
inline constexpr int kMaxWireBytes = 2 * kMaxMessageBytes;

// Opens a channel to a worker, either over TCP or within this process.
using ChannelFactory = std::function<std::shared_ptr<grpc::Channel>(const WorkerAddress& address)>;

// Opens a channel without encryption and without waiting for the connection. The channel detects a
// lost machine within 20 s, and a lost process at once.
std::shared_ptr<grpc::Channel> DialTcp(const WorkerAddress& address);
grpc::ChannelArguments InternalChannelArguments();

class GrpcServer {
 public:
  enum class Audience {
    // with reflection
    kClients,
    kWorkers,
  };
  // Listens on host:port and serves `services`. Port 0 selects a free port. With an empty `listen`,
  // the server accepts only in-process channels. Returns UNAVAILABLE if the address cannot be
  // bound. REQUIRES: the services outlive the server.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(
      const std::string& listen, Audience audience, const std::vector<grpc::Service*>& services,
      std::shared_ptr<grpc::ServerCredentials> credentials = grpc::InsecureServerCredentials());
  // Calls Stop without a grace period.
  ~GrpcServer();

  // The host:port on which the server listens, with the selected port.
  const std::string& address() const { return address_; }
  std::shared_ptr<grpc::Channel> InProcessChannel();
  // Sets the answer of grpc.health.v1 for the whole server. With Audience::kClients also sets it
  // for "baton.v1.Inference". A new server is not serving.
  void SetServing(bool serving);
  // Refuses new calls, waits up to `grace` for running calls, then cancels them. Blocks until all
  // calls have ended.
  void Stop(absl::Duration grace);

 private:
  Audience audience_ = Audience::kWorkers;
  std::string address_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace baton
