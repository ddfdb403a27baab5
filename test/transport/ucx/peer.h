// Starts ucx_peer_main.cc as a process of its own and talks to it.
#pragma once

#include <fcntl.h>
#include <openssl/sha.h>
#include <spawn.h>
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
    std::string program = BATON_UCX_PEER;
    std::string bytes = absl::StrCat(slab_bytes);
    char* arguments[] = {program.data(), bytes.data(), nullptr};
    setenv("UCX_LOG_FILE", "stderr", 1);  // its standard output is ours to read
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
    std::fclose(to_);  // the end of its input ends it
    if (!ended_) waitpid(pid_, nullptr, 0);
    std::fclose(from_);
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
  // True once UCX has aborted the process; another end of it is a failure.
  bool Aborted() {
    int state = 0;
    if (ended_ || waitpid(pid_, &state, WNOHANG) != pid_) return false;
    ended_ = true;
    BATON_CHECK(WIFSIGNALED(state) && WTERMSIG(state) == SIGABRT, absl::StrCat("ucx_peer ended with status ", state));
    return true;
  }
  pid_t pid() const { return pid_; }

 private:
  std::string ReadLine() {
    std::string line;
    for (int c = std::fgetc(from_); c != EOF && c != '\n'; c = std::fgetc(from_)) line.push_back(static_cast<char>(c));
    return line;
  }

  pid_t pid_ = 0;
  std::FILE* to_ = nullptr;
  std::FILE* from_ = nullptr;
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
