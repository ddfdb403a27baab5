#include "node/program.h"

#include <iostream>

#include "catch.h"
#include "child_process.h"

namespace baton {
namespace {

TEST_CASE("Option --check states only what was checked") {
  const ChildEnd end = RunInChild([] {
    std::cout.rdbuf(std::cerr.rdbuf());
    CommonOptions common;
    common.check = true;
    RunProgram("baton-test", common, "options and keys", [] { return absl::OkStatus(); });
  });
  CHECK(end.stderr_text == "baton-test: options and keys are valid\n");
}

}  // namespace
}  // namespace baton
