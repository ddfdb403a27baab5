#include "node/http_flags.h"

#include <string>

#include "base/status.h"
#include "frontend/gateway/allowed_origins.h"
#include "frontend/gateway/host_check.h"
#include "node/flags.h"

namespace baton {
namespace {

const CLI::Validator kHttpAddress([](std::string& text)
                                      -> std::string { return text.empty() || text == "off" ? "" : HostPort()(text); },
                                  "HOST:PORT|off");

CLI::Validator Checked(absl::Status (*check)(std::string_view text), const char* form) {
  return CLI::Validator([check](const std::string& text) { return std::string(Message(check(text))); }, form);
}

}  // namespace

void AddHttpFlags(CLI::App& app, RouterOptions& o) {
  app.add_option("--http", o.http,
                 "address to listen on for clients of OpenAI's API (HTTPS with --tls-cert); port 0 selects a free port")
      ->check(kHttpAddress)
      ->capture_default_str();
  app.add_option("--host-name", o.host_names,
                 "names, beside IP addresses and localhost, under which HTTP clients may call the router; other names "
                 "get 403, except from /health. Default: without --keys and on loopback none, otherwise any")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(Checked(CheckHostName, "NAME"));
  app.add_option("--allow-origin", o.allow_origins,
                 "origins of web pages that may call the router over HTTP (CORS); * for all pages, null for sandboxed "
                 "pages and files; default: only its own page")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(Checked(CheckOrigin, "SCHEME://HOST[:PORT]|null|*"));
  app.add_option("--max-connections", o.max_connections,
                 "upper bound on HTTP connections (docs/openai.md#connections); further ones get 503")
      ->check(CLI::Range(16, 1 << 20))
      ->capture_default_str();
  app.add_option("--stream-silence", o.stream_silence,
                 "seconds after which an idle HTTP stream sends a comment, so that load balancers keep it open")
      ->check(CLI::Range(0.05, 3600.0))
      ->capture_default_str();
}

}  // namespace baton
