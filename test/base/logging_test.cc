#include "base/logging.h"

#include <unistd.h>

#include <algorithm>
#include <sstream>

#include "base/stderr_sink.h"
#include "catch.h"
#include "nlohmann/json.hpp"
#include "spdlog/sinks/ostream_sink.h"

namespace baton {
namespace {

using Json = nlohmann::json;

// Replaces the default log during its lifetime.
class Captured {
 public:
  explicit Captured(LogFormat format) : before_(spdlog::default_logger()) {
    auto sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(stream_);
    auto logger = std::make_shared<spdlog::logger>("baton-test", sink);
    logger->set_formatter(MakeLogFormatter(format));
    spdlog::set_default_logger(logger);
  }
  ~Captured() { spdlog::set_default_logger(before_); }

  std::string Take() {
    std::string text = stream_.str();
    stream_.str("");
    return text;
  }

 private:
  std::shared_ptr<spdlog::logger> before_;
  std::ostringstream stream_;
};

TEST_CASE("A JSON log line is one object with time, level, source, message and fields") {
  Captured log(LogFormat::kJson);
  LogFields(spdlog::level::warn, "a request ended",
            {{"request", "r-1"}, {"tenant", ""}, {"tokens", int64_t{7}}, {"total_ms", 1.5}});
  const std::string line = log.Take();
  CHECK(line.find('\n') == line.size() - 1);
  const Json json = Json::parse(line);
  CHECK(json.size() == 7);
  CHECK(json.at("level") == "warning");
  CHECK(json.at("where") == "baton-test");
  CHECK(json.at("message") == "a request ended");
  CHECK(json.at("request") == "r-1");
  CHECK(json.at("tokens") == 7);
  CHECK(json.at("total_ms") == 1.5);
  const std::string time = json.at("time");
  CHECK(time.size() == std::string("2026-01-02T03:04:05.678Z").size());
  CHECK(time.ends_with("Z"));

  spdlog::info("without fields: those of the line before are gone");
  CHECK(Json::parse(log.Take()).size() == 4);
}

TEST_CASE("StderrSink drops lines when stderr is full and logs their number later") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const auto before_it = spdlog::default_logger();
  spdlog::set_default_logger(std::make_shared<spdlog::logger>("baton-test", std::make_shared<StderrSink>(ends[1])));
  spdlog::logger& logger = *spdlog::default_logger();
  logger.set_formatter(MakeLogFormatter(LogFormat::kJson));
  const std::string filler(1000, 'x');
  for (int i = 0; i < 1000; ++i) logger.info("{} {}", i, filler);  // a pipe holds 64 KiB

  const auto read_all = [&] {
    std::string text(1 << 20, 0);
    text.resize(static_cast<size_t>(read(ends[0], text.data(), text.size())));
    return text;
  };
  const std::string before = read_all();
  const auto kept = std::count(before.begin(), before.end(), '\n');
  CHECK(kept > 10);
  CHECK(before.back() == '\n');
  LogFields(spdlog::level::info, "again", {{"request", "r-1"}});
  const std::string after = read_all();
  // The line about lost lines carries no request.
  CHECK(after.find("r-1") == after.rfind("r-1"));
  CHECK(after.find("again") != std::string::npos);
  CHECK(after.find("because stderr was full: " + std::to_string(1000 - kept)) != std::string::npos);
  logger.info("and on");
  CHECK(read_all().find("dropped") == std::string::npos);
  spdlog::set_default_logger(before_it);
  close(ends[0]);
  close(ends[1]);
}

TEST_CASE("StderrSink completes a partly written line before the next line") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  spdlog::logger logger("baton-test", std::make_shared<StderrSink>(ends[1]));
  logger.set_formatter(MakeLogFormatter(LogFormat::kJson));
  logger.info("{}", std::string(200'000, 'x'));  // more than a pipe holds
  std::string text(1 << 20, 0);
  REQUIRE(read(ends[0], text.data(), text.size()) > 0);
  logger.info("whole");
  text.resize(static_cast<size_t>(read(ends[0], text.data(), text.size())));
  CHECK(text.starts_with("\n{"));
  CHECK(Json::parse(text.substr(1, text.find('\n', 1))).at("message") == "whole");
  close(ends[0]);
  close(ends[1]);
}

TEST_CASE("A JSON log line stays one valid line for any message") {
  Captured log(LogFormat::kJson);
  const std::string hostile = "a\"b\\c\nd\r\x01\xff\xc3 \xe2\x80\xa8{\"level\":\"error\"}";
  LogFields(spdlog::level::info, hostile, {{"request", hostile}});
  const std::string line = log.Take();
  CHECK(line.find('\n') == line.size() - 1);
  const Json json = Json::parse(line);
  CHECK(json.at("level") == "info");
  CHECK(json.at("request") == json.at("message"));
  CHECK(json.at("request").get<std::string>().starts_with("a\"b\\c\nd\r\x01\xef\xbf\xbd"));
}

TEST_CASE("A text log line has quoted fields after the message") {
  Captured log(LogFormat::kText);
  LogFields(spdlog::level::info, "a request ended",
            {{"request", "r-1"}, {"tenant", ""}, {"model", "a b\n\"c\""}, {"tokens", int64_t{7}}, {"total_ms", 1.5}});
  CHECK(log.Take().ends_with(
      " baton-test info a request ended request=r-1 model=\"a b\\n\\\"c\\\"\" tokens=7 total_ms=1.5\n"));
  spdlog::info("plain");
  CHECK(log.Take().ends_with(" baton-test info plain\n"));
}

TEST_CASE("The logger writes nothing below its level") {
  Captured log(LogFormat::kJson);
  LogFields(spdlog::level::debug, "detail", {{"request", "r"}});
  CHECK(log.Take().empty());
}

}  // namespace
}  // namespace baton
