#include "node/shutdown.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <iostream>

#include "catch.h"
#include "child_process.h"

namespace baton {
namespace {

TEST_CASE("A write beyond the limit on file size fails and the process goes on") {
  FILE* const file = std::tmpfile();
  REQUIRE(file != nullptr);
  const ChildEnd end = RunInChild([&] {
    const ShutdownSignal signals;
    const rlimit limit{.rlim_cur = 1, .rlim_max = 1};
    setrlimit(RLIMIT_FSIZE, &limit);
    if (pwrite(fileno(file), "x", 1, 1) == -1 && errno == EFBIG) std::cerr << "refused";
  });
  CHECK(end.stderr_text == "refused");
  std::fclose(file);
}

}  // namespace
}  // namespace baton
