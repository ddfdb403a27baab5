// Golden scenarios in plain text, after etcd/raft's testdata. A scenario has commands, a line
// "----", and the output of the commands.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace baton {

// One command line: "add A tokens=0..47" is name "add", words {"A"}, options {"tokens=0..47"}.
struct ScenarioCommand {
  explicit ScenarioCommand(const std::string& line);
  std::string Option(const std::string& option, std::string otherwise = "") const;
  int64_t Number(const std::string& option, int64_t otherwise = 0) const;

  std::string name;
  std::vector<std::string> words;
  std::vector<std::string> options;
};

// Runs the commands of each paragraph with `run`, which returns their output (lines that end in
// \n), and compares the output. If the environment has BATON_UPDATE_SCENARIOS, rewrites the file
// with the new output. Review the difference then.
void RunScenario(const std::string& path, const std::function<std::string(const ScenarioCommand&)>& run);

// Paths of the files of test/scenario whose names begin with one of the prefixes, in alphabetical
// order.
std::vector<std::string> ScenarioFiles(std::initializer_list<std::string_view> prefixes);

// Runs each of these files, with a new Scenario for each. Returns the number of files.
// Scenario::Run takes a command and returns its output.
template <typename Scenario>
int RunScenarios(std::initializer_list<std::string_view> prefixes) {
  const std::vector<std::string> files = ScenarioFiles(prefixes);
  for (const std::string& path : files) {
    Scenario scenario;
    RunScenario(path, [&](const ScenarioCommand& command) { return scenario.Run(command); });
  }
  return static_cast<int>(files.size());
}

// Parses tokens: "0..47,99" is the tokens 0 to 47 and then 99.
std::vector<int32_t> ParseTokens(const std::string& text);

}  // namespace baton
