#include "cli/drain_command.h"

#include <iostream>

#include "absl/strings/str_cat.h"
#include "cli/printable.h"
#include "cli/router_call.h"
#include "rpc/grpc_status.h"

namespace baton {

void AddDrainFlags(CLI::App& app, DrainOptions& o) {
  app.add_option("worker", o.worker, "address of the worker, as `baton status` shows it")->required();
  app.add_flag("--undo", o.undo, "give the worker requests again");
  AddServerFlags(app, o.server);
}

std::string DrainText(const DrainOptions& options, const v1::DrainWorkerResponse& response) {
  const std::string worker = Printable(options.worker);
  if (options.undo) return absl::StrCat("worker ", worker, " gets requests again\n");
  if (response.remaining_requests() == 0) {
    return absl::StrCat("worker ", worker, " is drained: it has no request of this router\n");
  }
  return absl::StrCat("worker ", worker, " is drained: it still runs ", response.remaining_requests(),
                      " requests of this router, which move or end later\n");
}

int RunDrain(const DrainOptions& options) {
  const auto stub = Connect(options.server);
  grpc::ClientContext context;
  Authorize(context, options.server);
  v1::DrainWorkerRequest request;
  request.set_worker(options.worker);
  request.set_undo(options.undo);
  v1::DrainWorkerResponse response;
  const grpc::Status status = stub->DrainWorker(&context, request, &response);
  if (!status.ok()) return PrintError(Explain(FromGrpc(status), options.server), RetryAfterOf(context));
  std::cout << DrainText(options, response);
  return 0;
}

}  // namespace baton
