// The command that reruns one test alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace baton {

// The path of the running test binary.
std::string ThisBinary();

// Returns a shell command that runs the test `name` alone, with `seed` if it is set.
std::string RerunCommand(const std::string& name, std::optional<uint64_t> seed);

// Sets the command that is printed, with the running seed, when a sanitizer ends the process. A
// sanitizer ends the process at its first report, so Catch2 does not report the test. With null,
// nothing is printed. Does nothing in builds without a sanitizer. The caller keeps `*command`
// alive.
void PrintIfSanitizerEndsIt(const std::string* command);

}  // namespace baton
