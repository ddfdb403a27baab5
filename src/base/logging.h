// Logs go to stderr, one line each; prompts, texts and tokens are never logged.
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
  kJson,  // an object for each line: time (UTC), level, where (the program), message, and a line's fields
};

// `level`: trace, debug, info, warn, error or off. `program` starts each line.
absl::Status InitLogging(const std::string& program, const std::string& level, LogFormat format);
// How a logger of that name writes its lines.
std::unique_ptr<spdlog::formatter> MakeLogFormatter(LogFormat format);

// What a line tells beside its message.
struct LogField {
  std::string_view name;
  std::variant<std::string_view, int64_t, double> value;  // an empty text is left out
};
// A line with fields, which text shows as name=value.
void LogFields(spdlog::level::level_enum level, std::string_view message, std::initializer_list<LogField> fields);

}  // namespace baton
