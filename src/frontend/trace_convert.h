// Converts the workflows of a cache domain and the trace of one workflow to protobuf.
#pragma once

#include "inference.pb.h"
#include "shell/router.h"

namespace baton {

v1::TraceResponse ToProto(const Router::Trace& trace);
v1::ListWorkflowsResponse ToProto(const Router::Workflows& workflows);

}  // namespace baton
