#include "transport/ucx/log.h"

#include <ucs/debug/log_def.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "base/logging.h"

namespace baton {
namespace {

struct Users {
  std::mutex mutex;
  int count = 0;  // existing UcxLog objects
};

Users& AllUsers() {
  static Users users;
  return users;
}

spdlog::level::level_enum LevelOf(ucs_log_level_t level) {
  switch (level) {
    case UCS_LOG_LEVEL_FATAL:
      return spdlog::level::critical;
    case UCS_LOG_LEVEL_ERROR:
      return spdlog::level::err;
    case UCS_LOG_LEVEL_WARN:
      return spdlog::level::warn;
    case UCS_LOG_LEVEL_DIAG:
    case UCS_LOG_LEVEL_INFO:
    case UCS_LOG_LEVEL_PRINT:
      return spdlog::level::info;
    case UCS_LOG_LEVEL_DEBUG:
      return spdlog::level::debug;
    default:
      return spdlog::level::trace;
  }
}

ucs_log_func_rc_t Log(const char*, unsigned, const char*, ucs_log_level_t level, const ucs_log_component_config_t*,
                      const char* format, va_list arguments) {
  std::array<char, 1024> text;
  std::vsnprintf(text.data(), text.size(), format, arguments);
  spdlog::log(LevelOf(level), "UCX: {}", text.data());
  return UCS_LOG_FUNC_RC_STOP;
}

}  // namespace

UcxLog::UcxLog() {
  if (std::getenv("UCX_LOG_FILE") != nullptr) return;
  const std::lock_guard lock(AllUsers().mutex);
  if (AllUsers().count++ == 0) ucs_log_push_handler(Log);
}

UcxLog::~UcxLog() {
  const std::lock_guard lock(AllUsers().mutex);
  if (AllUsers().count > 0 && --AllUsers().count == 0) ucs_log_pop_handler();
}

}  // namespace baton
