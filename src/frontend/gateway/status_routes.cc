#include "frontend/gateway/status_routes.h"

#include <utility>

#include "absl/time/clock.h"
#include "base/json/json_body.h"
#include "frontend/openai/completion_call.h"
#include "frontend/openai/model_routes.h"
#include "frontend/prompt_reader.h"

namespace baton {
namespace {

constexpr std::string_view kModelPath = "/v1/models/";

void Answer(const HttpCall& call, absl::StatusOr<std::string> body) {
  call.reply->Send(body.ok() ? JsonResponse(call.id, *std::move(body)) : ErrorResponse(call.id, body.status()));
}

// `body_of` takes time linear in the body.
void ServeTokens(const GatewayParts& parts, const SharedCall& call,
                 absl::StatusOr<std::string> (*body_of)(const Json& body, const ServedModels& models)) {
  const absl::Status run = parts.admission.Run(*call->caller, call->request.body.size(), [parts, call, body_of] {
    if (call->reply->gone()) return;  // the client may have left while a long body waited
    const absl::StatusOr<Json> body = ParseJsonBody(call->request.body);
    Answer(*call, body.ok() ? body_of(*body, parts.models) : body.status());
  });
  if (!run.ok()) call->reply->Send(ErrorResponse(call->id, run));
}

absl::StatusOr<std::string> Tokenize(const Json& body, const ServedModels& models) {
  return TokenizeBody(body, models, [](const v1::Chat& chat, const ChatValues& values, const ServedModel& model) {
    return ChatTokens(chat, model, absl::Now(), OpenAiPaths(), &values);
  });
}

// Returns OK if at least one model can be served.
absl::Status Health(const GatewayParts& parts) {
  absl::Status why = parts.admission.Open();
  if (!why.ok()) return why;
  for (const ServedModel* model : parts.models.all()) {
    why = parts.router.Readiness(model->name);
    if (why.ok()) return why;
  }
  return absl::UnavailableError(why.message());
}

}  // namespace

void ServeModels(const GatewayParts& parts, const SharedCall& call) {
  Answer(*call, ModelsBody(parts.models, parts.started));
}

void ServeModel(const GatewayParts& parts, const SharedCall& call) {
  Answer(*call, ModelBody(parts.models, NameInPath(call->request.path, kModelPath), parts.started));
}

void ServeTokenize(const GatewayParts& parts, const SharedCall& call) { ServeTokens(parts, call, Tokenize); }

void ServeDetokenize(const GatewayParts& parts, const SharedCall& call) { ServeTokens(parts, call, DetokenizeBody); }

void ServeHealth(const GatewayParts& parts, const SharedCall& call) {
  absl::Status health = Health(parts);
  // Only callers with a key may see the names of models.
  if (!health.ok() && parts.admission.callers().asks()) health = absl::UnavailableError("not ready");
  call->reply->Send(health.ok() ? JsonResponse(call->id, "{\"status\":\"ok\"}") : ErrorResponse(call->id, health));
}

void ServeVersion(const GatewayParts&, const SharedCall& call) { Answer(*call, VersionBody()); }

void ServeMetricsText(const GatewayParts& parts, const SharedCall& call) {
  call->reply->Send(Response(200, call->id, "text/plain; version=0.0.4; charset=utf-8", parts.metrics.Text()));
}

}  // namespace baton
