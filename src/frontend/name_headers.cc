#include "frontend/name_headers.h"

#include <algorithm>

#include "frontend/request_reader.h"
#include "text/utf8.h"

namespace baton {
namespace {

struct NameHeader {
  std::string_view header;
  std::string HeaderNames::*field;
  size_t max_bytes;
};

constexpr NameHeader kHeaders[] = {
    {"x-session-id", &HeaderNames::session_id, kMaxNameBytes},
    {"session-id", &HeaderNames::session_id, kMaxNameBytes},                // OpenAI's Codex
    {"x-claude-code-session-id", &HeaderNames::session_id, kMaxNameBytes},  // Claude Code
    {"x-agent-name", &HeaderNames::agent, kMaxAgentBytes},
    {"x-openai-subagent", &HeaderNames::agent, kMaxAgentBytes},       // OpenAI's Codex
    {"x-claude-code-agent-id", &HeaderNames::agent, kMaxAgentBytes},  // Claude Code
    {"x-workflow", &HeaderNames::workflow, kMaxAgentBytes},
};

bool IsUsable(std::string_view value, size_t max_bytes) {
  return value.size() <= max_bytes && std::ranges::none_of(value, IsControlCharacter) &&
         ValidUtf8Prefix(value) == value.size();
}

}  // namespace

void HeaderNames::ApplyTo(v1::GenerateRequest& request) const {
  if (request.session_id().empty()) request.set_session_id(session_id);
  if (request.agent().empty()) request.set_agent(agent);
  if (request.workflow().empty()) request.set_workflow(workflow);
}

std::vector<std::string_view> NameHeaders() {
  std::vector<std::string_view> names;
  for (const NameHeader& row : kHeaders) names.push_back(row.header);
  return names;
}

HeaderNames ReadNameHeaders(absl::FunctionRef<std::string_view(std::string_view header)> value_of) {
  HeaderNames names;
  for (const NameHeader& row : kHeaders) {
    const std::string_view value = value_of(row.header);
    std::string& field = names.*row.field;
    if (!IsUsable(value, row.max_bytes)) {
      names.ignored.push_back(row.header);
    } else if (field.empty()) {
      field = value;
    }
  }
  return names;
}

}  // namespace baton
