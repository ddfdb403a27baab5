// A router in its own process for bench_router, so that its CPU time and memory can be measured.
#pragma once

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/logging.h"
#include "bench/allocations.h"
#include "bench/instant_workers.h"
#include "model/byte_model.h"
#include "node/router_node.h"

extern char** environ;

namespace baton {

// Runs the router's process. It prints its addresses. For each byte of standard input, it then
// prints its number of allocations. It ends at the end of standard input.
inline int BeRouter(const std::vector<std::string>& workers, int64_t max_requests) {
  // The process prints only addresses and counts.
  spdlog::set_level(spdlog::level::off);
  RouterOptions options;
  options.listen = "127.0.0.1:0";
  options.http = "127.0.0.1:0";
  options.prefill_workers = {workers.at(0)};
  options.decode_workers = {workers.at(1)};
  options.limits.live_requests = max_requests;
  std::vector<ServedModel> models;
  models.push_back(ByteModel("bytes"));
  models.back().context = kContext;
  SteadyClock clock;
  Metrics metrics;
  auto node = RouterNode::Start(options, std::move(models), DialTcp, clock, metrics);
  BATON_CHECK(node.ok(), node.status().ToString());
  std::printf("%s %s\n", (*node)->server().address().c_str(), (*node)->http()->address().c_str());
  std::fflush(stdout);
  while (std::getchar() != EOF) {
    std::printf("%lld\n", static_cast<long long>(Allocations()));
    std::fflush(stdout);
  }
  return 0;
}

class RouterProcess {
 public:
  explicit RouterProcess(const Workers& workers, int64_t max_requests = RouterLimits().live_requests) {
    int in[2], out[2];
    BATON_CHECK(pipe(in) == 0 && pipe(out) == 0, "no pipe");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], 0);
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    posix_spawn_file_actions_addclose(&actions, in[1]);
    std::vector<std::string> words = {"bench_router",   "--router-of",    workers.prefill(),
                                      workers.decode(), "--max-requests", absl::StrCat(max_requests)};
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    BATON_CHECK(posix_spawn(&pid_, "/proc/self/exe", &actions, nullptr, argv.data(), environ) == 0, "no process");
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    stdin_ = in[1];
    lines_ = fdopen(out[0], "r");
    const std::string addresses = ReadLine();
    address_ = addresses.substr(0, addresses.find(' '));
    http_ = addresses.substr(addresses.find(' ') + 1);
  }
  ~RouterProcess() {
    close(stdin_);
    waitpid(pid_, nullptr, 0);
    std::fclose(lines_);
  }
  const std::string& address() const { return address_; }
  const std::string& http() const { return http_; }
  double CpuMicroseconds() const {
    clockid_t clock;
    timespec time{};
    BATON_CHECK(clock_getcpuclockid(pid_, &clock) == 0 && clock_gettime(clock, &time) == 0, "no clock of the router");
    return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) / 1e3;
  }
  // Calls of operator new in the router's process so far.
  double AllocationCount() const {
    BATON_CHECK(write(stdin_, "\n", 1) == 1, "the router's standard input is closed");
    return std::stod(ReadLine());
  }
  double ResidentBytes() const {
    std::ifstream file(absl::StrCat("/proc/", pid_, "/statm"));
    int64_t size = 0, resident = 0;
    file >> size >> resident;
    BATON_CHECK(resident > 0, "no memory of the router");
    return static_cast<double>(resident * sysconf(_SC_PAGESIZE));
  }

 private:
  std::string ReadLine() const {
    char line[256] = {};
    BATON_CHECK(std::fgets(line, sizeof line, lines_) != nullptr, "the router's process has ended");
    return std::string(line, std::strcspn(line, "\n"));
  }

  pid_t pid_ = -1;
  int stdin_ = -1;
  FILE* lines_ = nullptr;
  std::string address_, http_;
};

}  // namespace baton
