// Python's jinja2, with which tests compare our interpreter.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>

#include "base/strings.h"
#include "catch.h"
#include "nlohmann/json.hpp"
#include "source_path.h"

namespace baton {

// Renders each of `cases`, {"template": source, "input": variables}. Returns {"text": the rendered
// text} or {"error": reason} for each case. If jinja2 is not installed, it prints that and returns
// nothing.
inline nlohmann::ordered_json AskJinja2(const nlohmann::ordered_json& cases) {
  const std::string root = SourcePath(""), python = root + ".venv/bin/python";
  const std::filesystem::path input =
      std::filesystem::temp_directory_path() / StrCat("baton_jinja_", getpid(), ".json");
  if (!std::filesystem::exists(python)) {
    std::cout << "SKIPPED: comparison with jinja2: no .venv (run tools/setup)\n";
    return {};
  }
  std::ofstream(input) << cases;
  FILE* pipe = popen(StrCat(python, " ", root, "test/text/jinja/render_jinja.py < ", input.string()).c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::string output;
  char buffer[4096];
  while (const size_t n = fread(buffer, 1, sizeof buffer, pipe)) output.append(buffer, n);
  REQUIRE(pclose(pipe) == 0);
  std::filesystem::remove(input);
  return nlohmann::ordered_json::parse(output);
}

}  // namespace baton
