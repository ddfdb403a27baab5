#include "base/logging.h"

#include "absl/strings/str_cat.h"
#include "spdlog/sinks/stdout_color_sinks.h"

namespace baton {

absl::Status InitLogging(const std::string& program, const std::string& level) {
  const spdlog::level::level_enum parsed = spdlog::level::from_str(level);
  if (parsed == spdlog::level::off && level != "off") {
    return absl::InvalidArgumentError(
        absl::StrCat("log level: expected trace, debug, info, warn, error or off, got '", level, "'"));
  }
  spdlog::set_default_logger(spdlog::stderr_color_mt(program));
  spdlog::set_level(parsed);
  spdlog::set_pattern("%Y-%m-%d %H:%M:%S.%e %n %^%l%$ %v");
  return absl::OkStatus();
}

}  // namespace baton
