#include "server/attach_server.h"

#include <algorithm>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "catch.h"
#include "worker.grpc.pb.h"

namespace baton {
namespace {

using worker::v1::DecodeCommand;
using worker::v1::DecodeEvent;
constexpr int kUpdates = 160;
constexpr size_t kText = 100'000;  // all of them: 16 MB, four times what gRPC takes as one message

// Sends all at once to whoever attaches.
class Talkative final : public worker::v1::DecodeWorker::CallbackService {
 public:
  grpc::ServerBidiReactor<DecodeCommand, DecodeEvent>* Attach(grpc::CallbackServerContext* context) override {
    auto* stream = new AttachServer<DecodeCommand, DecodeEvent>(context, {[](auto*, auto&) {}, [](auto*) {}});
    for (int i = 0; i < kUpdates; ++i) {
      DecodeEvent event;
      auto* update = event.mutable_updates()->add_updates();
      update->set_request_id(absl::StrCat(i));
      update->set_text(std::string(kText, 'x'));
      stream->Send(std::move(event));
    }
    stream->Start();
    return stream;
  }
};

TEST_CASE("updates for a router that is slow to read are merged, to a size that it can take") {
  Talkative service;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  const auto stub = worker::v1::DecodeWorker::NewStub(
      grpc::CreateChannel(absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  const auto stream = stub->Attach(&context);
  int updates = 0;
  int events = 0;
  size_t largest = 0;
  for (DecodeEvent event; updates < kUpdates && stream->Read(&event); ++events) {
    largest = std::max(largest, event.ByteSizeLong());
    for (const auto& update : event.updates().updates()) CHECK(update.request_id() == absl::StrCat(updates++));
  }
  CHECK(updates == kUpdates);
  CHECK(events < kUpdates / 2);
  CHECK(largest > 2 * kText);
  CHECK(largest <= size_t{1} << 20);
  stream->WritesDone();
  CHECK(stream->Finish().ok());
  server->Shutdown();
}

}  // namespace
}  // namespace baton
