// A gRPC call whose messages are bytes. Tests use it for malformed messages and for services
// without a generated header.
#pragma once

#include <memory>
#include <string>

#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"

namespace baton {

// Makes one unary call and waits for its end. Sets `response` if the call succeeds.
inline grpc::Status RawCall(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                            const std::string& request, std::string& response) {
  grpc::GenericStub stub(channel);
  grpc::CompletionQueue queue;
  grpc::ClientContext context;
  grpc::Slice slice(request);
  const grpc::ByteBuffer bytes(&slice, 1);
  const auto call = stub.PrepareUnaryCall(&context, method, bytes, &queue);
  call->StartCall();
  grpc::ByteBuffer reply;
  grpc::Status status;
  call->Finish(&reply, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  grpc::Slice out;
  if (status.ok() && reply.DumpToSingleSlice(&out).ok()) response.assign(out.begin(), out.end());
  return status;
}

}  // namespace baton
