// A workflow's lives → the protocol's trace.
#pragma once

#include "inference.pb.h"
#include "server/router.h"

namespace baton {

v1::TraceResponse ToProto(const Router::Trace& trace);

}  // namespace baton
