// The main function of all test binaries. For a test that fails or runs for a minute, it prints the
// command that reruns the test alone, with its seed. With BATON_TEST_TIMES=FILE it appends the
// seconds of each test to FILE, for the summary of `tools/check`.
#ifdef BATON_CATCH2_V2
#define CATCH_CONFIG_RUNNER
#endif
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "catch.h"
#include "rerun.h"
#include "seeds.h"

namespace baton {
namespace {

// Prints the rerun command of the running test after a minute, then at doubling intervals. Without
// these lines, ctest's time-out ends a hanging test without output.
class Watch {
 public:
  void Start(std::string name) {
    const std::lock_guard lock(mutex_);
    name_ = std::move(name);
    ++tests_;
    if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
    changed_.notify_all();
  }
  ~Watch() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
      changed_.notify_all();
    }
    if (thread_.joinable()) thread_.join();
  }

 private:
  void Run() {
    std::unique_lock lock(mutex_);
    while (!over_) {
      const int test = tests_;
      for (auto wait = std::chrono::seconds(60); !over_ && test == tests_; wait *= 2) {
        if (changed_.wait_for(lock, wait, [&] { return over_ || test != tests_; })) break;
        std::cerr << "still running: " << RerunCommand(name_, RunningSeed()) << std::endl;
      }
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::string name_;
  int tests_ = 0;  // tests that have started
  bool over_ = false;
  std::thread thread_;
};

#ifdef BATON_CATCH2_V2
using ListenerBase = Catch::TestEventListenerBase;
const Catch::TestCaseInfo& InfoOf(const Catch::TestCaseStats& stats) { return stats.testInfo; }
#else
using ListenerBase = Catch::EventListenerBase;
const Catch::TestCaseInfo& InfoOf(const Catch::TestCaseStats& stats) { return *stats.testInfo; }
#endif

class TestReporter final : public ListenerBase {
 public:
  using ListenerBase::ListenerBase;

  void testCaseStarting(const Catch::TestCaseInfo& info) override {
    ListenerBase::testCaseStarting(info);
    SetRunningSeed(std::nullopt);
    watch_.Start(std::string(info.name));
    failed_seed_.reset();
    command_ = RerunCommand(std::string(info.name), std::nullopt);
    PrintIfSanitizerEndsIt(&command_);
    started_ = std::chrono::steady_clock::now();
  }

#ifdef BATON_CATCH2_V2
  bool assertionEnded(const Catch::AssertionStats& stats) override {
    RecordSeed(stats);
    return true;
  }
#else
  void assertionEnded(const Catch::AssertionStats& stats) override { RecordSeed(stats); }
#endif

  // Catch2 calls it after a fatal signal too.
  void testCaseEnded(const Catch::TestCaseStats& stats) override {
    const std::string name(InfoOf(stats).name);
    if (stats.totals.assertions.failed > 0) {
      std::cerr << "rerun: " << RerunCommand(name, failed_seed_) << std::endl;
    }
    if (const char* file = std::getenv("BATON_TEST_TIMES")) {
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - started_;
      const std::filesystem::path binary = ThisBinary();  // build/PRESET/bin/NAME
      const std::string preset = binary.parent_path().parent_path().filename().string();
      std::ofstream(file, std::ios::app) << absl::StrCat(seconds.count(), "\t", preset, ": ",
                                                         binary.filename().string(), ": ", name, "\n");
    }
    PrintIfSanitizerEndsIt(nullptr);
    ListenerBase::testCaseEnded(stats);
  }

 private:
  void RecordSeed(const Catch::AssertionStats& stats) {
    if (!stats.assertionResult.isOk() && !failed_seed_) failed_seed_ = RunningSeed();
  }

  Watch watch_;
  std::string command_;                  // reruns the running test
  std::optional<uint64_t> failed_seed_;  // the seed of the first failure
  std::chrono::steady_clock::time_point started_;
};
CATCH_REGISTER_LISTENER(TestReporter)

}  // namespace

}  // namespace baton

int main(int argc, char** argv) { return Catch::Session().run(argc, argv); }
