// The router's HTTP front: which path means what (kRoutes), and what all answers have in common.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "server/gateway_parts.h"
#include "server/http/http_server.h"

namespace baton {

class OpenAiGateway final : public HttpHandler {
 public:
  explicit OpenAiGateway(const GatewayParts& parts) : parts_(parts) {}

  void OnRequest(HttpRequest request, std::shared_ptr<HttpReply> reply) override;
  HttpResponse Refusal(int status, const std::string& message) override;

 private:
  using Serve = void (*)(const GatewayParts& parts, const SharedCall& call);
  struct Route {
    std::string_view method;
    std::string_view path;  // one that ends with a slash: and what follows
    Serve serve;
    enum class For { kTenants, kOperators, kAll } audience = For::kTenants;
  };
  static const Route kRoutes[];

  static const Route* Find(std::string_view path);
  absl::StatusOr<Caller> CallerOf(const HttpRequest& request, const Route* route) const;
  std::string IdOf(const HttpRequest& request);

  const GatewayParts parts_;
};

}  // namespace baton
