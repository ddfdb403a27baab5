// The objects that the routes of the HTTP front end use.
#pragma once

#include <memory>

#include "base/clock.h"
#include "frontend/admission.h"
#include "frontend/gateway/chat_log.h"
#include "frontend/gateway/http_call.h"
#include "frontend/openai/reasoning_effort.h"
#include "metrics/metrics.h"
#include "model/served_model.h"
#include "shell/router.h"

namespace baton {

// All objects must outlive every copy of this struct, on any thread.
struct GatewayParts {
  Router& router;
  ServedModels& models;
  const Clock& clock;
  Metrics& metrics;
  ClientAdmission& admission;
  ChatLog& chats;
  absl::Time started;  // wall-clock time
  ThinkingBudgets thinking{};
};

using SharedCall = std::shared_ptr<const HttpCall>;

}  // namespace baton
