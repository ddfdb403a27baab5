#include "rpc/attach_server.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "catch.h"
#include "rpc/grpc_server.h"
#include "rpc/router_streams.h"
#include "rpc/worker_convert.h"
#include "worker.grpc.pb.h"

namespace baton {
namespace {

using worker::v1::DecodeCommand;
using worker::v1::DecodeEvent;
constexpr int kUpdates = 160;
// The updates have 16 MB in total, four times gRPC's limit for one message.
constexpr size_t kText = 100'000;

// A worker that sends all updates at once to each router that attaches. It may close the stream
// after that.
class BurstWorker final : public worker::v1::DecodeWorker::CallbackService {
 public:
  explicit BurstWorker(bool closes) : closes_(closes) {}
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
    if (closes_) stream->Close(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the worker shuts down"));
    return stream;
  }

 private:
  const bool closes_;
};

struct Attached {
  explicit Attached(bool closes) : service(closes) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service);
    server = builder.BuildAndStart();
    stub = worker::v1::DecodeWorker::NewStub(
        grpc::CreateChannel(absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials()));
    stream = stub->Attach(&context);
  }
  ~Attached() { server->Shutdown(); }

  // Reads until all updates have arrived, or until the stream ends. Checks their order.
  void Read() {
    for (DecodeEvent event; updates < kUpdates && stream->Read(&event); ++events) {
      largest = std::max(largest, event.ByteSizeLong());
      for (const auto& update : event.updates().updates()) CHECK(update.request_id() == absl::StrCat(updates++));
    }
  }

  BurstWorker service;
  std::unique_ptr<grpc::Server> server;
  std::unique_ptr<worker::v1::DecodeWorker::Stub> stub;
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReaderWriter<DecodeCommand, DecodeEvent>> stream;
  int updates = 0;
  int events = 0;
  size_t largest = 0;
};

TEST_CASE("AttachServer merges updates for a slow router into events of at most 1 MiB") {
  Attached router(/*closes=*/false);
  router.Read();
  CHECK(router.updates == kUpdates);
  CHECK(router.events < kUpdates / 2);
  CHECK(router.largest > 2 * kText);
  CHECK(router.largest <= size_t{1} << 20);
  router.stream->WritesDone();
  CHECK(router.stream->Finish().ok());
}

TEST_CASE("AttachServer sends all updates to a slow router before it closes the stream") {
  Attached router(/*closes=*/true);
  router.Read();
  CHECK(router.updates == kUpdates);
  CHECK(router.stream->Finish().error_code() == grpc::StatusCode::UNAVAILABLE);
}

TokenUpdate UpdateOf(const std::string& request) {
  TokenUpdate update;
  update.request_id = request;
  if (request != "full") return update;
  update.tokens = {1, 2};
  update.logprobs = {{.logprob = -1, .top = {{1, -1}}}, {.logprob = -2}};
  update.text = "text";
  update.finish = FinishReason::kStop;
  return update;
}

// A worker that answers each cancellation with an update of the request.
class EchoWorker final : public worker::v1::DecodeWorker::CallbackService {
 public:
  grpc::ServerBidiReactor<DecodeCommand, DecodeEvent>* Attach(grpc::CallbackServerContext* context) override {
    using Stream = AttachServer<DecodeCommand, DecodeEvent>;
    const auto answer = [this](Stream* stream, DecodeCommand& command) {
      DecodeEvent event = stream->NewEvent();
      recycled += event.has_updates();
      ToProto(UpdateOf(command.cancel().request_id()), *event.mutable_updates()->add_updates());
      stream->Send(std::move(event));
    };
    auto* stream = new Stream(context, {answer, [](auto*) {}});
    stream->Start();
    return stream;
  }
  std::atomic<int> recycled = 0;
};

TEST_CASE("AttachServer clears the memory of a sent event before it reuses it") {
  EchoWorker service;
  auto server = GrpcServer::Start("127.0.0.1:0", GrpcServer::Audience::kWorkers, {&service});
  REQUIRE(server.ok());
  grpc::ClientContext context;
  const auto stub = worker::v1::DecodeWorker::NewStub(DialTcp((*server)->address()));
  const auto stream = stub->Attach(&context);
  for (int round = 0; round < 100; ++round) {
    for (const char* request : {"full", "bare"}) {
      DecodeCommand command;
      command.mutable_cancel()->set_request_id(request);
      stream->Write(command);
      DecodeEvent event;
      REQUIRE(stream->Read(&event));
      REQUIRE(event.updates().updates_size() == 1);
      CHECK(event.updates().updates(0).SerializeAsString() == ToProto(UpdateOf(request)).SerializeAsString());
    }
  }
  CHECK(service.recycled > 0);
  stream->WritesDone();
  CHECK(stream->Finish().ok());
}

// A worker that reports its load when it takes up a command.
class ReportingWorker final : public worker::v1::DecodeWorker::CallbackService {
 public:
  grpc::ServerBidiReactor<DecodeCommand, DecodeEvent>* Attach(grpc::CallbackServerContext* context) override {
    using Stream = AttachServer<DecodeCommand, DecodeEvent>;
    DecodeEvent load;
    load.mutable_load();
    auto* stream = new Stream(context, {[this, load](Stream*, DecodeCommand&) { streams_.SendLoad(load); },
                                        [this](Stream* gone) { streams_.Remove(gone); }});
    streams_.Add(stream, {load});
    stream->Start();
    return stream;
  }

 private:
  RouterStreams<DecodeCommand, DecodeEvent> streams_;
};

TEST_CASE("RouterStreams reports to each router how many commands its stream has brought") {
  ReportingWorker service;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  const auto server = builder.BuildAndStart();
  const auto stub = worker::v1::DecodeWorker::NewStub(
      grpc::CreateChannel(absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials()));
  for (int router = 0; router < 2; ++router) {
    grpc::ClientContext context;
    const auto stream = stub->Attach(&context);
    DecodeEvent event;
    REQUIRE(stream->Read(&event));
    CHECK_FALSE(event.load().has_commands());
    for (int before = 0; before < 3; ++before) {
      DecodeCommand cancel;
      cancel.mutable_cancel()->set_request_id("r");
      REQUIRE(stream->Write(cancel));
      REQUIRE(stream->Read(&event));
      CHECK(event.load().commands() == before);
    }
    context.TryCancel();
    while (stream->Read(&event)) {
    }
    CHECK(stream->Finish().error_code() == grpc::StatusCode::CANCELLED);
  }
  server->Shutdown();
}

}  // namespace
}  // namespace baton
