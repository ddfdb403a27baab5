#include "rpc/grpc_server.h"

#include <utility>

#include "absl/base/internal/sysinfo.h"
#include "absl/strings/str_cat.h"
#include "base/listen_error.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/resource_quota.h"
#include "rpc/grpc_deadline.h"

namespace baton {
namespace {

// Period of pings on an idle connection.
constexpr int kKeepaliveMs = 10000;
constexpr int kMaxStreams = 8192;  // per connection
// Upper bound on memory for unread messages of all clients, in bytes.
constexpr size_t kMaxClientBytes = size_t{1} << 30;
// A busy machine may need seconds to accept a connection.
constexpr int kConnectTimeoutMs = 5000;
// A connection is given up if a ping gets no answer for this long.
constexpr int kKeepaliveTimeoutMs = 10000;

void SetKeepalive(grpc::ServerBuilder& builder) {
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kKeepaliveMs / 2);
}

}  // namespace

grpc::ChannelArguments InternalChannelArguments() {
  // gRPC 1.51 locks a mutex between connect() and its read of errno. The first contended mutex of a
  // process reads the CPU's frequency from a file that few machines have, and leaves ENOENT. The
  // connection then fails. This call reads the file earlier.
  absl::base_internal::NominalCPUFrequency();
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxWireBytes);
  arguments.SetMaxSendMessageSize(kMaxWireBytes);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  // gRPC also uses this value as the timeout of a connection attempt.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectTimeoutMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2000);
  // Channels with different purposes do not share a connection to the same worker, so that one
  // channel's failure does not break another.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return arguments;
}

std::shared_ptr<grpc::Channel> DialTcp(const WorkerAddress& address) {
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), InternalChannelArguments());
}

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(const std::string& listen, Audience audience,
                                                              const std::vector<grpc::Service*>& services,
                                                              std::shared_ptr<grpc::ServerCredentials> credentials) {
  // Both switches are global and apply to servers that are built later.
  grpc::EnableDefaultHealthCheckService(true);
  if (audience == Audience::kClients) grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  int port = 0;
  if (!listen.empty()) {
    builder.AddListeningPort(listen, std::move(credentials), &port);
    // Without SO_REUSEPORT, a port that is in use gives an error.
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  }
  builder.SetMaxReceiveMessageSize(kMaxWireBytes);
  // The size limit applies to compressed messages. A compressed message of a few KiB could inflate
  // to gigabytes.
  for (const auto algorithm : {GRPC_COMPRESS_DEFLATE, GRPC_COMPRESS_GZIP}) {
    builder.SetCompressionAlgorithmSupportStatus(algorithm, false);
  }
  builder.SetMaxSendMessageSize(kMaxWireBytes);
  SetKeepalive(builder);
  if (audience == Audience::kClients) {
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreams);
    builder.SetResourceQuota(grpc::ResourceQuota("clients").Resize(kMaxClientBytes));
  }
  for (grpc::Service* service : services) builder.RegisterService(service);
  auto result = std::make_unique<GrpcServer>();
  result->audience_ = audience;
  result->server_ = builder.BuildAndStart();
  if (result->server_ == nullptr || (!listen.empty() && port == 0)) {
    const std::string error = ListenError(listen);
    return absl::UnavailableError(absl::StrCat("cannot listen on '", listen,
                                               "': ", error.empty() ? "gRPC refused the address" : error,
                                               "; choose another address with --listen HOST:PORT"));
  }
  if (!listen.empty()) result->address_ = absl::StrCat(listen.substr(0, listen.rfind(':')), ":", port);
  result->SetServing(false);
  return result;
}

GrpcServer::~GrpcServer() { Stop(absl::ZeroDuration()); }

std::shared_ptr<grpc::Channel> GrpcServer::InProcessChannel() {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxWireBytes);
  arguments.SetMaxSendMessageSize(kMaxWireBytes);
  return server_->InProcessChannel(arguments);
}

void GrpcServer::SetServing(bool serving) {
  grpc::HealthCheckServiceInterface* health = server_->GetHealthCheckService();
  if (health == nullptr) return;
  // This sets the whole server and all services that are registered with the health service.
  health->SetServingStatus(serving);
  if (audience_ == Audience::kClients) health->SetServingStatus("baton.v1.Inference", serving);
}

void GrpcServer::Stop(absl::Duration grace) {
  if (server_ == nullptr) return;
  server_->Shutdown(DeadlineAfter(grace));
  server_->Wait();
}

}  // namespace baton
