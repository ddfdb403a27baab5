#include "base/logging.h"

#include <algorithm>
#include <span>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/stderr_sink.h"
#include "nlohmann/json.hpp"
#include "spdlog/pattern_formatter.h"

namespace baton {
namespace {

using Json = nlohmann::ordered_json;

// Fields and message of the line that this thread is writing. spdlog passes only the message to a
// formatter and calls the formatter on the logging thread. A sink may add lines of its own. Those
// lines have another message and therefore no fields.
thread_local std::span<const LogField> line_fields;
thread_local const char* line_message = nullptr;

std::span<const LogField> FieldsOf(const spdlog::details::log_msg& message) {
  return message.payload.data() == line_message ? line_fields : std::span<const LogField>();
}

bool IsEmpty(const LogField& field) {
  const auto* text = std::get_if<std::string_view>(&field.value);
  return text != nullptr && text->empty();
}

// Returns `json` on one line. Replaces invalid UTF-8.
std::string ToText(const Json& json) {
  return json.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

std::string ToText(const LogField& field) {
  const Json json = std::visit([](const auto& value) { return Json(value); }, field.value);
  const auto* text = std::get_if<std::string_view>(&field.value);
  const auto is_plain = [](char c) { return '!' <= c && c <= '~' && c != '"' && c != '\\'; };
  return text != nullptr && std::ranges::all_of(*text, is_plain) ? std::string(*text) : ToText(json);
}

class FieldsFlag final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&, spdlog::memory_buf_t& line) override {
    std::string text;
    for (const LogField& field : FieldsOf(message)) {
      if (!IsEmpty(field)) text += " " + std::string(field.name) + "=" + ToText(field);
    }
    line.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<custom_flag_formatter> clone() const override { return std::make_unique<FieldsFlag>(); }
};

class JsonFormatter final : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& line) override {
    const auto level = spdlog::level::to_string_view(message.level);
    const absl::Time time = absl::FromChrono(message.time);
    Json json = {{"time", absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", time, absl::UTCTimeZone())},
                 {"level", std::string_view(level.data(), level.size())},
                 {"where", std::string_view(message.logger_name.data(), message.logger_name.size())},
                 {"message", std::string_view(message.payload.data(), message.payload.size())}};
    for (const LogField& field : FieldsOf(message)) {
      if (IsEmpty(field)) continue;
      std::visit([&](const auto& value) { json[std::string(field.name)] = value; }, field.value);
    }
    const std::string text = ToText(json) + "\n";
    line.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<formatter> clone() const override { return std::make_unique<JsonFormatter>(); }
};

}  // namespace

std::unique_ptr<spdlog::formatter> MakeLogFormatter(LogFormat format) {
  if (format == LogFormat::kJson) return std::make_unique<JsonFormatter>();
  auto text = std::make_unique<spdlog::pattern_formatter>();
  text->add_flag<FieldsFlag>('*').set_pattern("%Y-%m-%d %H:%M:%S.%e %n %^%l%$ %v%*");
  return text;
}

absl::Status InitLogging(const std::string& program, const std::string& level, LogFormat format) {
  const spdlog::level::level_enum parsed = spdlog::level::from_str(level);
  if (parsed == spdlog::level::off && level != "off") {
    return absl::InvalidArgumentError(
        absl::StrCat("log level: expected trace, debug, info, warn, error or off, got '", level, "'"));
  }
  spdlog::set_default_logger(std::make_shared<spdlog::logger>(program, std::make_shared<StderrSink>()));
  spdlog::set_level(parsed);
  spdlog::set_formatter(MakeLogFormatter(format));
  return absl::OkStatus();
}

void LogFields(spdlog::level::level_enum level, std::string_view message, std::initializer_list<LogField> fields) {
  if (!spdlog::should_log(level)) return;
  line_fields = {fields.begin(), fields.size()};
  line_message = message.data();
  spdlog::default_logger_raw()->log(level, spdlog::string_view_t(message.data(), message.size()));
  line_fields = {};
  line_message = nullptr;
}

}  // namespace baton
