// The router's HTTP front: which path means what (kRoutes), and what all answers have in common.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/log_limit.h"
#include "base/loopback.h"
#include "frontend/gateway/parts.h"
#include "frontend/http/http_server.h"

namespace baton {

class OpenAiGateway final : public HttpHandler {
 public:
  // `listen`: host:port of --http. `encrypted`: it speaks HTTPS.
  OpenAiGateway(const GatewayParts& parts, const std::string& listen, bool encrypted)
      : parts_(parts), encrypted_(encrypted), checks_host_(!parts.admission.callers().asks() && IsLoopback(listen)) {}

  // Who may not call, or calls what is not there, is answered before its body is read.
  std::optional<HttpResponse> OnHead(HttpRequest& head) override;
  void OnRequest(HttpRequest request, std::shared_ptr<HttpReply> reply) override;
  HttpResponse Refusal(int status, const std::string& message) override;

 private:
  using Serve = void (*)(const GatewayParts& parts, const SharedCall& call);
  struct Route {
    std::string_view method;
    std::string_view path;  // one that ends with a slash: and what follows
    Serve serve;
    enum class For { kTenants, kOperators, kAll } audience = For::kTenants;
    bool takes_query = false;
  };
  struct Decision {
    std::optional<HttpResponse> refusal{};  // else what follows is there
    const Route* route = nullptr;
    Caller caller{};  // also of a refused call, where it has a key
  };
  static const Route kRoutes[];

  static const Route* Find(std::string_view path);
  absl::StatusOr<Caller> CallerOf(const HttpRequest& request, const Route* route) const;
  bool IsOtherSites(const HttpRequest& request) const;
  Decision Decide(const HttpRequest& head, const CallId& id);
  // Why this is no call of the route, which may be null.
  static std::optional<HttpResponse> WhyNot(const Route* route, const HttpRequest& head, const CallId& id);
  // The answer to a method that is not the route's.
  static HttpResponse OtherMethod(const Route& route, const HttpRequest& request, const CallId& id);
  CallId IdOf(const HttpRequest& request);
  void WarnOfKey(const HttpRequest& head, const Route* route);  // that it is none

  const GatewayParts parts_;
  LogLimit wrong_keys_{};
  const bool encrypted_;
  // Where anyone of this machine may call, a page must not. Whoever opens a router to other machines has names for it,
  // and no page is needed to reach it.
  const bool checks_host_;
};

}  // namespace baton
