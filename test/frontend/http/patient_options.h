// Options of an HTTP server with timeouts that are longer than any test.
#pragma once

#include "absl/time/time.h"
#include "frontend/http/http_server.h"

namespace baton {

inline HttpOptions PatientOptions() {
  HttpOptions options;
  options.listen = "127.0.0.1:0";
  options.handshake_patience = options.longest_handshake_patience = absl::Hours(1);
  options.handshake_timeout = options.header_timeout = options.body_timeout = options.idle_timeout = absl::Hours(1);
  options.linger_timeout = options.max_read_pause = options.max_silence = absl::Hours(1);
  return options;
}

}  // namespace baton
