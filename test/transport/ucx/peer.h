// A process that runs peer_main.cc, and its pipes.
#pragma once

#include <fcntl.h>
#include <openssl/sha.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"

extern char** environ;

namespace baton {

class UcxPeer {
 public:
  explicit UcxPeer(int64_t slab_bytes) {
    int to[2];
    int from[2];
    BATON_CHECK(pipe2(to, O_CLOEXEC) == 0 && pipe2(from, O_CLOEXEC) == 0, "pipe");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, to[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, from[1], STDOUT_FILENO);
    errors_ = memfd_create("ucx_peer's standard error", MFD_CLOEXEC);
    BATON_CHECK(errors_ >= 0, "memfd_create");
    posix_spawn_file_actions_adddup2(&actions, errors_, STDERR_FILENO);
    std::string program = BATON_UCX_PEER;
    std::string bytes = absl::StrCat(slab_bytes);
    char* arguments[] = {program.data(), bytes.data(), nullptr};
    setenv("UCX_LOG_FILE", "stderr", 1);  // the test reads its standard output
    BATON_CHECK(posix_spawn(&pid_, program.c_str(), &actions, nullptr, arguments, environ) == 0,
                "cannot start ucx_peer");
    unsetenv("UCX_LOG_FILE");
    posix_spawn_file_actions_destroy(&actions);
    close(to[0]);
    close(from[1]);
    to_ = fdopen(to[1], "w");
    from_ = fdopen(from[0], "r");
    descriptor_ = absl::HexStringToBytes(ReadLine());
  }
  ~UcxPeer() {
    std::fclose(to_);  // the end of its input ends the process
    if (!ended_) waitpid(pid_, nullptr, 0);
    std::fclose(from_);
    std::fputs(Errors().c_str(), stderr);
    close(errors_);
  }

  const std::string& descriptor() const { return descriptor_; }
  std::string Sha(int64_t offset, int64_t bytes) {
    std::fprintf(to_, "sha %lld %lld\n", static_cast<long long>(offset), static_cast<long long>(bytes));
    std::fflush(to_);
    return ReadLine();
  }
  void Kill() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    ended_ = true;
  }
  // Returns true after UCX has aborted the process because an acknowledgement met a closed
  // connection. Any other end of the process is a failure.
  bool Aborted() {
    int state = 0;
    if (ended_ || waitpid(pid_, &state, WNOHANG) != pid_) return false;
    ended_ = true;
    const bool is_known = Errors().find("unexpected error: Endpoint timeout") != std::string::npos;
    BATON_CHECK(is_known && WIFSIGNALED(state) && WTERMSIG(state) == SIGABRT,
                absl::StrCat("ucx_peer ended with status ", state, ": ", Errors()));
    return true;
  }
  pid_t pid() const { return pid_; }

 private:
  // The text that the process has written to its standard error.
  std::string Errors() const {
    std::string text;
    char buffer[4096];
    for (ssize_t got; (got = pread(errors_, buffer, sizeof buffer, static_cast<off_t>(text.size()))) > 0;) {
      text.append(buffer, static_cast<size_t>(got));
    }
    return text;
  }
  std::string ReadLine() {
    std::string line;
    for (int c = std::fgetc(from_); c != EOF && c != '\n'; c = std::fgetc(from_)) line.push_back(static_cast<char>(c));
    return line;
  }

  pid_t pid_ = 0;
  std::FILE* to_ = nullptr;
  std::FILE* from_ = nullptr;
  int errors_ = -1;
  std::string descriptor_;
  bool ended_ = false;
};

inline std::string ShaOf(std::span<const std::byte> bytes) {
  std::string sha(SHA256_DIGEST_LENGTH, '\0');
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
         reinterpret_cast<unsigned char*>(sha.data()));
  return absl::BytesToHexString(sha);
}

}  // namespace baton
