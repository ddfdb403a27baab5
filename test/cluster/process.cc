#include "process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "await.h"
#include "catch.h"

namespace baton {

Process::Process(const std::string& program, const std::vector<std::string>& arguments, const std::string& input) {
  directory_.Write("in", input);
  const std::string in = directory_ / "in", out = directory_ / "out";
  const std::string path = program.starts_with('/') ? program : absl::StrCat(BATON_BIN_DIR, "/", program);
  std::vector<char*> argv{const_cast<char*>(path.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 0, in.c_str(), O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, 1, out.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);
  posix_spawn_file_actions_adddup2(&files, 1, 2);
  const int error = posix_spawn(&pid_, path.c_str(), &files, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  INFO(path);
  REQUIRE(error == 0);
}

Process::~Process() {
  if (!HasEnded()) {
    Signal(SIGKILL);
    Wait();
  }
}

std::string Process::Output() const {
  std::ostringstream out;
  out << std::ifstream(directory_ / "out").rdbuf();
  return out.str();
}

std::string Process::Await(const std::string& marker) {
  std::string rest;
  baton::Await(absl::StrCat("'", marker, "' in the output of process ", pid_), [&] {
    // Checks for the end before it reads the output, so that it misses no output.
    const bool ended = HasEnded();
    const std::string output = Output();
    const size_t at = output.find(marker);
    const size_t end = at == std::string::npos ? at : output.find('\n', at);
    if (end == std::string::npos) {
      INFO("waiting for '" << marker << "' in:\n" << output);
      REQUIRE_FALSE(ended);
      return false;
    }
    rest = output.substr(at + marker.size(), end - at - marker.size());
    return true;
  });
  return rest;
}

void Process::Signal(int signal) {
  if (pid_ <= 0) return;
  kill(pid_, signal);
  // Threads run until one of them has taken the signal, which may be late on a busy machine.
  int state = 0;
  if (signal == SIGSTOP) REQUIRE((waitpid(pid_, &state, WUNTRACED) == pid_ && WIFSTOPPED(state)));
}

bool Process::HasEnded() {
  int status = 0;
  if (pid_ > 0 && waitpid(pid_, &status, WNOHANG) == pid_) {
    pid_ = -1;
    exit_ = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  return pid_ < 0;
}

int Process::Wait() {
  baton::Await(absl::StrCat("the end of process ", pid_), [this] { return HasEnded(); });
  return exit_;
}

}  // namespace baton
