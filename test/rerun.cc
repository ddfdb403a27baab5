#include "rerun.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "seeds.h"

// Part of the sanitizers' runtime. Null in other builds.
extern "C" __attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)());

namespace baton {
namespace {

const std::string* running_command = nullptr;

void PrintRunningCommand() {
  if (running_command == nullptr) return;
  std::fputs("rerun: ", stderr);
  if (const auto seed = RunningSeed()) std::fprintf(stderr, "BATON_SEED=%llu ", static_cast<unsigned long long>(*seed));
  std::fprintf(stderr, "%s\n", running_command->c_str());
}

}  // namespace

std::string ThisBinary() { return std::filesystem::read_symlink("/proc/self/exe").string(); }

// Escapes the name, because Catch2 reads a comma in a name as "or" and a bracket as a tag.
std::string RerunCommand(const std::string& name, std::optional<uint64_t> seed) {
  const std::string spec = absl::StrReplaceAll(
      name, {{"\\", "\\\\\\\\"}, {",", "\\,"}, {"[", "\\["}, {"\"", "\\\""}, {"$", "\\$"}, {"`", "\\`"}});
  std::string command = seed ? absl::StrCat("BATON_SEED=", *seed, " ") : "";
  // These are the variables that ctest sets.
  for (const char* variable : {"HOST_DEVICE_RUNS", "UCX_MEM_EVENTS", "UCX_MEM_MMAP_HOOK_MODE"}) {
    if (const char* value = std::getenv(variable)) absl::StrAppend(&command, variable, "=", value, " ");
  }
  return absl::StrCat(command, ThisBinary(), " \"", spec, "\"");
}

void PrintIfSanitizerEndsIt(const std::string* command) {
  running_command = command;
  if (__sanitizer_set_death_callback != nullptr) __sanitizer_set_death_callback(PrintRunningCommand);
}

}  // namespace baton
