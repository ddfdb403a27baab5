// Tests of which peers certificates admit, over real sockets.
#include "rpc/tls.h"

#include <string>

#include "absl/strings/match.h"
#include "base/strings.h"
#include "catch.h"
#include "certificates.h"
#include "grpcpp/generic/generic_stub.h"
#include "inference.grpc.pb.h"
#include "rpc/grpc_status.h"

namespace baton {
namespace {

class Echo final : public v1::Inference::Service {
 public:
  grpc::Status ListModels(grpc::ServerContext*, const v1::ListModelsRequest*, v1::ListModelsResponse*) override {
    return grpc::Status::OK;
  }
};

// Returns whether a call on this channel is answered. Checks that other calls end with UNAVAILABLE.
bool IsAnswered(const std::shared_ptr<grpc::Channel>& channel) {
  grpc::ClientContext context;
  v1::ListModelsResponse response;
  const grpc::Status status = v1::Inference::NewStub(channel)->ListModels(&context, {}, &response);
  INFO(status.error_message());
  if (!status.ok()) CHECK(status.error_code() == grpc::StatusCode::UNAVAILABLE);
  return status.ok();
}

std::unique_ptr<GrpcServer> Serve(grpc::Service& service, const TlsFiles& files) {
  auto server = GrpcServer::Start("127.0.0.1:0", GrpcServer::Audience::kWorkers, {&service}, ServerCredentials(files));
  REQUIRE(server.ok());
  return *std::move(server);
}

TEST_CASE("Peers with certificates of one authority reach each other and no others") {
  Authority ours("ours"), others("others");
  Echo service;
  const auto server = Serve(service, ours.Issue("worker"));
  CHECK(IsAnswered(DialBy(ours.Issue("router"))(server->address())));
  CHECK_FALSE(IsAnswered(DialTcp(server->address())));  // without TLS
  // A peer is refused if another authority signed its certificate, even if it trusts ours. A peer
  // is also refused if it trusts another authority.
  TlsFiles foreign = others.Issue("router");
  CHECK_FALSE(IsAnswered(DialBy(foreign)(server->address())));
  foreign.authority = ours.path();
  CHECK_FALSE(IsAnswered(DialBy(foreign)(server->address())));
  TlsFiles foreign_trust = ours.Issue("foreign_trust");
  foreign_trust.authority = others.path();
  CHECK_FALSE(IsAnswered(DialBy(foreign_trust)(server->address())));
}

TEST_CASE("A client refuses a certificate for another host") {
  Authority ours("ours");
  Echo service;
  const auto server = Serve(service, ours.Issue("worker"));
  const std::string port = server->address().substr(server->address().rfind(':'));
  const ChannelFactory dial = DialBy(ours.Issue("router"));
  // The test avoids "localhost", because c-ares 1.18 leaks that name.
  CHECK(IsAnswered(dial("127.0.0.1" + port)));
  // The same process has another address here, which its certificate does not name.
  CHECK_FALSE(IsAnswered(dial("127.0.0.2" + port)));
}

TEST_CASE("A server without client certificates serves clients that trust its own") {
  Authority ours("ours");
  TlsFiles files = ours.Issue("router");
  files.authority.clear();
  Echo service;
  const auto server = Serve(service, files);
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = [&] {
    std::ifstream file(ours.path());
    return std::string(std::istreambuf_iterator<char>(file), {});
  }();
  CHECK(IsAnswered(grpc::CreateChannel(server->address(), grpc::SslCredentials(options))));
  CHECK_FALSE(IsAnswered(DialTcp(server->address())));
}

TEST_CASE("Check refuses missing TLS files and mismatched pairs by name") {
  Authority ours("ours");
  const TlsFiles good = ours.Issue("a"), other = ours.Issue("b");
  const auto refusal = [](const TlsFiles& files) { return std::string(Message(Check(files, "peer"))); };
  CHECK(Check({}, "peer").ok());
  CHECK(Check(good, "peer").ok());
  CHECK(refusal({good.certificate, "", good.authority}) == "peer-cert, peer-key: expected both");
  CHECK(refusal({good.certificate, "/nowhere", ""}) == "peer-key: /nowhere: cannot be read");
  CHECK(absl::StrContains(refusal({good.certificate, other.key, ""}), "expected the private key of the certificate"));
  CHECK(absl::StrContains(refusal({good.key, good.key, ""}), "expected a certificate in PEM"));
  CHECK(absl::StrContains(refusal({good.certificate, good.certificate, ""}), "expected a private key in PEM"));
  CHECK(absl::StrContains(refusal({good.certificate, good.key, good.key}), "peer-ca: "));
}

}  // namespace
}  // namespace baton
