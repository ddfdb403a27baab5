#include "shell/process_watch.h"

#include <future>
#include <mutex>
#include <string>
#include <vector>

#include "await.h"
#include "base/process_name.h"
#include "catch.h"
#include "named_child.h"

namespace baton {
namespace {

// Records the ends that a watch reports.
class Ends {
 public:
  void Add(const std::string& process) {
    const std::lock_guard lock(mutex_);
    ended_.push_back(process);
  }
  std::vector<std::string> ended() {
    const std::lock_guard lock(mutex_);
    return ended_;
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> ended_;
};

TEST_CASE("ProcessWatch reports the processes that are killed, once each") {
  NamedChild killed, also_killed, alive;
  Ends ends;
  {
    ProcessWatch watch([&](const std::string& process) { ends.Add(process); });
    for (const NamedChild* child : {&killed, &also_killed, &alive, &killed}) REQUIRE(watch.Watch(child->name()).ok());
    killed.Kill();
    Await("the end of a killed process", [&] { return ends.ended().size() == 1; });
    CHECK(ends.ended() == std::vector{killed.name()});
    also_killed.Kill();
    Await("the end of another killed process", [&] { return ends.ended().size() == 2; });
    CHECK(ends.ended().back() == also_killed.name());
  }
  CHECK(ends.ended().size() == 2);
}

TEST_CASE("ProcessWatch refuses a process that has ended, and never reports it") {
  NamedChild dead, alive;
  dead.Kill();
  dead.AwaitZombie();
  Ends ends;
  ProcessWatch watch([&](const std::string& process) { ends.Add(process); });
  CHECK(watch.Watch(dead.name()).code() == absl::StatusCode::kNotFound);
  REQUIRE(watch.Watch(alive.name()).ok());
  alive.Kill();
  Await("the end of a killed process", [&] { return !ends.ended().empty(); });
  CHECK(ends.ended() == std::vector{alive.name()});
}

TEST_CASE("ProcessWatch does not take a stopped process for one that has ended") {
  NamedChild stopped, killed;
  Ends ends;
  ProcessWatch watch([&](const std::string& process) { ends.Add(process); });
  REQUIRE(watch.Watch(stopped.name()).ok());
  REQUIRE(watch.Watch(killed.name()).ok());
  stopped.Stop();
  killed.Kill();
  Await("the end of a killed process", [&] { return !ends.ended().empty(); });
  CHECK(ends.ended() == std::vector{killed.name()});
}

}  // namespace
}  // namespace baton
