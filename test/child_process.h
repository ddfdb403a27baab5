// A child process for code that aborts.
#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "absl/functional/function_ref.h"
#include "catch.h"

namespace baton {

struct ChildEnd {
  bool aborted = false;
  std::string stderr_text;
};

// Forks and runs `work` in the child. REQUIRES: `work` needs no running thread, because fork()
// copies only the calling one.
inline ChildEnd RunInChild(absl::FunctionRef<void()> work) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    signal(SIGABRT, SIG_DFL);  // Catch2 handles it otherwise
    dup2(ends[1], STDERR_FILENO);
    work();
    _exit(0);
  }
  close(ends[1]);
  ChildEnd end;
  char buffer[1024];
  for (ssize_t got; (got = read(ends[0], buffer, sizeof buffer)) > 0;) {
    end.stderr_text.append(buffer, static_cast<size_t>(got));
  }
  close(ends[0]);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  end.aborted = WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
  return end;
}

}  // namespace baton
