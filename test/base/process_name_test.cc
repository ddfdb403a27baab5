#include "base/process_name.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "catch.h"
#include "named_child.h"

namespace baton {
namespace {

absl::StatusCode CodeOf(const std::string& name) {
  const absl::StatusOr<int> opened = OpenProcess(name);
  if (opened.ok()) close(*opened);
  return opened.status().code();
}

TEST_CASE("OpenProcess opens a living process and reports its end") {
  NamedChild child;
  const absl::StatusOr<int> opened = OpenProcess(child.name());
  REQUIRE(opened.ok());
  pollfd end{*opened, POLLIN, 0};
  CHECK(poll(&end, 1, 0) == 0);
  child.Kill();
  CHECK(poll(&end, 1, -1) == 1);  // although the parent has not waited for the child
  close(*opened);
}

TEST_CASE("OpenProcess returns NOT_FOUND for processes that have ended") {
  NamedChild child;
  child.Kill();
  child.AwaitZombie();
  CHECK(CodeOf(child.name()) == absl::StatusCode::kNotFound);
  child.Reap();
  CHECK(CodeOf(child.name()) == absl::StatusCode::kNotFound);
}

TEST_CASE("OpenProcess refuses names that do not fit the process") {
  const std::string own = OwnProcessName();
  REQUIRE(CodeOf(own) == absl::StatusCode::kOk);
  const std::vector<std::string> parts = absl::StrSplit(own, '/');
  REQUIRE(parts.size() == 4);
  // A process that had this PID before.
  CHECK(CodeOf(absl::StrCat(parts[0], "/", parts[1], "/", parts[2], "/1")) == absl::StatusCode::kNotFound);
  CHECK(CodeOf(absl::StrCat("other-boot/", parts[1], "/", parts[2], "/", parts[3])) ==
        absl::StatusCode::kFailedPrecondition);
  CHECK(CodeOf(absl::StrCat(parts[0], "/1/", parts[2], "/", parts[3])) == absl::StatusCode::kFailedPrecondition);
  for (const std::string& malformed : {std::string(), absl::StrCat(own, "/1"), absl::StrCat(parts[0], "/a/b/c"),
                                       absl::StrCat(parts[0], "/", parts[1], "/-1/", parts[3])}) {
    INFO(malformed);
    CHECK(CodeOf(malformed) == absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace baton
