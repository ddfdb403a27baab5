#include "frontend/tools/tool_parser.h"

#include <utility>

#include "frontend/tools/hermes_tools.h"
#include "frontend/tools/llama_tools.h"

namespace baton {

std::unique_ptr<ToolParser> MakeToolParser(ToolFormat format, std::vector<std::string> names) {
  switch (format) {
    case ToolFormat::kHermes:
      return std::make_unique<HermesTools>(std::move(names));
    case ToolFormat::kLlama:
      return std::make_unique<LlamaTools>(std::move(names));
    case ToolFormat::kNone:
      break;
  }
  return nullptr;
}

}  // namespace baton
