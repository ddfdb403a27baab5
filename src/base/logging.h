// Structured logging to stderr, one line per message. Callers never log prompts, texts or tokens.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <variant>

#include "absl/status/status.h"
#include "spdlog/spdlog.h"

namespace baton {

enum class LogFormat {
  kText,
  // One JSON object per line with `time` (UTC), `level`, `where` (the program), `message` and the
  // fields of the line.
  kJson,
};

// Sets up the process-wide logger. `level` is trace, debug, info, warn, error or off. Each line
// names `program`. Returns INVALID_ARGUMENT for another level.
absl::Status InitLogging(const std::string& program, const std::string& level, LogFormat format);
// Returns a formatter that writes lines in `format`.
std::unique_ptr<spdlog::formatter> MakeLogFormatter(LogFormat format);

// A named value that a line carries in addition to its message.
struct LogField {
  std::string_view name;
  // An empty string is omitted from the line.
  std::variant<std::string_view, int64_t, double> value;
};
// Logs a line with fields. LogFormat::kText shows each field as name=value.
void LogFields(spdlog::level::level_enum level, std::string_view message, std::initializer_list<LogField> fields);

}  // namespace baton
