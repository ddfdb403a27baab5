// A child process that waits to be killed, and its name.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>

#include "base/process_name.h"
#include "catch.h"

namespace baton {

class NamedChild {
 public:
  NamedChild() {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    pid_ = fork();
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      const std::string name = OwnProcessName();
      if (write(ends[1], name.data(), name.size()) != static_cast<ssize_t>(name.size())) _exit(1);
      close(ends[1]);
      while (true) pause();
    }
    close(ends[1]);
    char bytes[256];
    for (ssize_t got; (got = read(ends[0], bytes, sizeof bytes)) > 0;) {
      name_.append(bytes, static_cast<size_t>(got));
    }
    close(ends[0]);
    REQUIRE_FALSE(name_.empty());
  }
  ~NamedChild() {
    if (pid_ < 0) return;
    Kill();
    Reap();
  }
  NamedChild(const NamedChild&) = delete;
  NamedChild& operator=(const NamedChild&) = delete;

  const std::string& name() const { return name_; }
  void Kill() { kill(pid_, SIGKILL); }
  void Stop() {
    kill(pid_, SIGSTOP);
    siginfo_t change{};
    waitid(P_PID, static_cast<id_t>(pid_), &change, WSTOPPED | WNOWAIT);
  }
  // Waits until the child has ended, and leaves it to Reap.
  void AwaitZombie() {
    siginfo_t end{};
    waitid(P_PID, static_cast<id_t>(pid_), &end, WEXITED | WNOWAIT);
  }
  void Reap() {
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  pid_t pid_ = -1;
  std::string name_;
};

}  // namespace baton
