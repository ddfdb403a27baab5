// The command that reruns one test alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace baton {

// The path of the running test binary.
std::string ThisBinary();

// A command for a shell that runs the test `name` alone, with `seed` if there is one.
std::string RerunCommand(const std::string& name, std::optional<uint64_t> seed);

// From now on, a sanitizer that ends the process prints `*command` and the running seed first: it ends the process at
// its first report, so Catch2 does not report the test. Null: it prints nothing. Does nothing in other builds.
void PrintIfSanitizerEndsIt(const std::string* command);

}  // namespace baton
