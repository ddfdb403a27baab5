#include "frontend/name_headers.h"

#include <map>
#include <string>

#include "catch.h"

namespace baton {
namespace {

HeaderNames Read(const std::map<std::string_view, std::string>& headers) {
  return ReadNameHeaders([&](std::string_view header) -> std::string_view {
    const auto found = headers.find(header);
    return found == headers.end() ? std::string_view() : found->second;
  });
}

TEST_CASE("ReadNameHeaders takes each header alone") {
  for (const std::string_view header : NameHeaders()) {
    CAPTURE(std::string(header));
    const HeaderNames names = Read({{header, "x"}});
    CHECK(names.session_id + names.agent + names.workflow == "x");
    CHECK(names.agent.empty() == (header.find("agent") == std::string_view::npos));
    CHECK(names.workflow.empty() == (header != "x-workflow"));
    CHECK(names.ignored.empty());
  }
}

TEST_CASE("ReadNameHeaders takes the first header with a usable value") {
  HeaderNames names = Read({{"session-id", "b"},
                            {"x-session-id", "a"},
                            {"x-claude-code-session-id", "c"},
                            {"x-claude-code-agent-id", "z"},
                            {"x-openai-subagent", "y"}});
  CHECK(names.session_id == "a");
  CHECK(names.agent == "y");
  names = Read({{"x-session-id", "a\x01"}, {"session-id", std::string(257, 's')}, {"x-claude-code-session-id", "c"}});
  CHECK(names.session_id == "c");
  CHECK(names.ignored == std::vector<std::string_view>{"x-session-id", "session-id"});
}

TEST_CASE("ReadNameHeaders ignores values that the fields may not have") {
  for (const char* bad : {"\t", "a\x7f", "a\nb", "\xff", "\xc3", "\xed\xa0\x80"}) {
    CAPTURE(bad);
    const HeaderNames names = Read({{"x-session-id", bad}, {"x-agent-name", bad}});
    CHECK(names.session_id + names.agent == "");
    CHECK(names.ignored == std::vector<std::string_view>{"x-session-id", "x-agent-name"});
  }
  CHECK(Read({{"x-session-id", std::string(256, 's')}}).session_id.size() == 256);
  CHECK(Read({{"x-agent-name", std::string(128, 's')}}).agent.size() == 128);
  CHECK(Read({{"x-agent-name", std::string(129, 's')}}).agent == "");
  CHECK(Read({{"x-agent-name", "Pr\u00fcfer"}}).agent == "Pr\u00fcfer");
}

TEST_CASE("HeaderNames leaves the fields of a request as they are") {
  const HeaderNames names = Read({{"x-session-id", "s"}, {"x-agent-name", "a"}});
  v1::GenerateRequest request;
  request.set_session_id("own");
  names.ApplyTo(request);
  CHECK(request.session_id() == "own");
  CHECK(request.agent() == "a");
}

}  // namespace
}  // namespace baton
