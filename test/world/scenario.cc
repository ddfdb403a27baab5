#include "world/scenario.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "catch.h"
#include "source_path.h"

namespace baton {

ScenarioCommand::ScenarioCommand(const std::string& line) {
  for (const auto& part : absl::StrSplit(line, ' ', absl::SkipEmpty())) {
    if (name.empty()) {
      name = std::string(part);
    } else if (absl::StrContains(part, "=")) {
      options.emplace_back(part);
    } else {
      words.emplace_back(part);
    }
  }
}

std::string ScenarioCommand::Option(const std::string& option, std::string otherwise) const {
  for (const std::string& o : options) {
    if (absl::StartsWith(o, option + "=")) return o.substr(option.size() + 1);
  }
  return otherwise;
}

int64_t ScenarioCommand::Number(const std::string& option, int64_t otherwise) const {
  const std::string text = Option(option);
  return text.empty() ? otherwise : std::stoll(text);
}

void RunScenario(const std::string& path, const std::function<std::string(const ScenarioCommand&)>& run) {
  std::ifstream in(path);
  REQUIRE(in.good());
  std::ostringstream rewritten;
  std::string line, printed, commands;
  const auto run_line = [&](const std::string& command) {
    rewritten << command << "\n";
    if (command.empty() || command[0] == '#') return;
    absl::StrAppend(&commands, command, "\n");
    printed += run(ScenarioCommand(command));
  };
  while (std::getline(in, line)) {
    if (line != "----") {
      run_line(line);
      continue;
    }
    std::string expected;
    while (std::getline(in, line) && !line.empty()) absl::StrAppend(&expected, line, "\n");
    rewritten << "----\n" << printed << "\n";
    INFO(path << "\n" << commands);
    if (std::getenv("BATON_UPDATE_SCENARIOS") == nullptr) CHECK(printed == expected);
    printed.clear();
    commands.clear();
  }
  if (std::getenv("BATON_UPDATE_SCENARIOS") != nullptr) {
    in.close();
    std::string text = rewritten.str();
    if (absl::EndsWith(text, "\n\n")) text.pop_back();
    std::ofstream(path) << text;
  }
}

std::vector<std::string> ScenarioFiles(std::initializer_list<std::string_view> prefixes) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(SourcePath("test/scenario"))) {
    const std::string name = entry.path().filename().string();
    const auto begins = [&](std::string_view prefix) { return name.starts_with(prefix); };
    if (std::ranges::any_of(prefixes, begins)) paths.push_back(entry.path().string());
  }
  std::ranges::sort(paths);
  return paths;
}

std::vector<int32_t> ParseTokens(const std::string& text) {
  std::vector<int32_t> tokens;
  for (const std::string& part : std::vector<std::string>(absl::StrSplit(text, ',', absl::SkipEmpty()))) {
    const size_t dots = part.find("..");
    const int first = std::stoi(part);
    const int last = dots == std::string::npos ? first : std::stoi(part.substr(dots + 2));
    for (int token = first; token <= last; ++token) tokens.push_back(token);
  }
  return tokens;
}

}  // namespace baton
