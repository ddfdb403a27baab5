#include "shell/request_log.h"

#include <sstream>

#include "base/logging.h"
#include "base/strings.h"
#include "catch.h"
#include "nlohmann/json.hpp"
#include "spdlog/sinks/ostream_sink.h"

namespace baton {
namespace {

nlohmann::json LineOf(const RequestOutcome& outcome) {
  std::ostringstream line;
  const auto before = spdlog::default_logger();
  auto logger = std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_mt>(line));
  logger->set_formatter(MakeLogFormatter(LogFormat::kJson));
  spdlog::set_default_logger(std::move(logger));
  LogRequestEnd(outcome);
  spdlog::set_default_logger(before);
  return nlohmann::json::parse(line.str());
}
// Returns the JSON line of a request that ended with `status`.
nlohmann::json LineOf(const absl::Status& status) {
  RequestOutcome outcome;
  outcome.status = status;
  return LineOf(outcome);
}

TEST_CASE("LogRequestEnd logs the error of a failed request in bounded length") {
  CHECK(LineOf(absl::UnavailableError("worker \"p:1\" was lost\n")).at("error") == "worker \"p:1\" was lost\n");
  CHECK(LineOf(absl::UnavailableError("p")).at("code") == "UNAVAILABLE");
  CHECK_FALSE(LineOf(absl::OkStatus()).contains("error"));
  const std::string cut = LineOf(absl::InternalError(std::string(9000, 'x'))).at("error");
  CHECK(cut == std::string(500, 'x') + "...");
}

TEST_CASE("LogRequestEnd logs each stage of the table") {
  RequestOutcome outcome;
  int ms = 0;
  for (const StageRow& stage : kStageTable) outcome.times.*stage.time = absl::Milliseconds(++ms);
  const nlohmann::json line = LineOf(outcome);
  ms = 0;
  for (const StageRow& stage : kStageTable) CHECK(line.at(StrCat(stage.name, "_ms")) == ++ms);
}

}  // namespace
}  // namespace baton
