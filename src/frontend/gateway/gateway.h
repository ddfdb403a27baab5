// The router's HTTP front end: the table of routes (kRoutes), and the checks that all calls share.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/loopback.h"
#include "frontend/gateway/allowed_origins.h"
#include "frontend/gateway/parts.h"
#include "frontend/http/http_server.h"

namespace baton {

// The hosts and web pages that a gateway answers to.
struct GatewayAccess {
  std::string listen;                     // host:port of --http
  bool encrypted = false;                 // the port speaks HTTPS
  std::vector<std::string> host_names{};  // as CheckHost
  std::vector<std::string> origins{};     // as AllowedOrigins
};

class OpenAiGateway final : public HttpHandler {
 public:
  OpenAiGateway(const GatewayParts& parts, const GatewayAccess& access)
      : parts_(parts),
        encrypted_(access.encrypted),
        host_names_(access.host_names),
        origins_(access.origins),
        checks_host_(!host_names_.empty() || (!parts.admission.callers().asks() && IsLoopback(access.listen))) {}

  // Answers calls without a valid key, calls of unknown paths, and preflights of browsers, before
  // their body is read.
  std::optional<HttpResponse> OnHead(HttpRequest& head) override;
  void OnRequest(HttpRequest request, std::shared_ptr<HttpReply> reply) override;
  // Returns the headers of CORS.
  HttpHeaders AnswerHeaders(const HttpRequest& head) override;
  HttpResponse Refusal(int status, const std::string& message) override;

 private:
  using Serve = void (*)(const GatewayParts& parts, const SharedCall& call);
  struct Route {
    std::string_view method;
    // A path that ends with a slash matches all paths that begin with it, except "/" itself.
    std::string_view path;
    Serve serve;
    enum class For { kTenants, kOperators, kAll } audience = For::kTenants;
  };
  struct Decision {
    // If unset, the members below are set.
    std::optional<HttpResponse> refusal{};
    const Route* route = nullptr;
    Caller caller{};  // set for a refused call too, if it has a valid key
  };
  static const Route kRoutes[];

  // Returns null if the path is unknown. Ignores a slash at the end, except that of /ui/.
  static const Route* Find(std::string_view path);
  // Returns the path of a route that an unknown path probably means, or "".
  static std::string_view NearestPath(std::string_view path);
  // GET /: names the routes.
  static void ServeIndex(const GatewayParts& parts, const SharedCall& call);
  absl::StatusOr<Caller> CallerOf(const HttpRequest& request, const Route* route);
  bool IsOtherSites(const HttpRequest& request) const;
  // Returns an error if the request comes from a page, or is for a host, that is not allowed.
  absl::Status CheckAccess(const HttpRequest& head, const Route* route) const;
  Decision Decide(const HttpRequest& head, const CallId& id);
  // Returns a refusal if the request is not a valid call of the route. `route` may be null.
  static std::optional<HttpResponse> RefusalFor(const Route* route, const HttpRequest& head, const CallId& id);
  // Returns the answer to a request with a method that the route does not have.
  static HttpResponse OtherMethod(const Route& route, const HttpRequest& request, const CallId& id);
  CallId IdOf(const HttpRequest& request);

  const GatewayParts parts_;
  const bool encrypted_;
  const std::vector<std::string> host_names_;
  const AllowedOrigins origins_;
  // Whether the "host" header is checked. Without --host-name, it is checked if no API keys are
  // required and the router listens on loopback, because a web page must not reach such a router.
  // Otherwise the names of the router are unknown, and an attacker reaches it directly.
  const bool checks_host_;
};

}  // namespace baton
