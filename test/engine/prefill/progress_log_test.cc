#include "engine/prefill/progress_log.h"

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "catch.h"
#include "engine/prefill/prompts.h"

namespace baton {
namespace {

// Returns the progress since the last call, as "id [begin, end)".
std::string Taken(ProgressLog& log) {
  std::string taken;
  for (const PrefillProgress& progress : log.Take()) {
    absl::StrAppend(&taken, progress.request_id, " [", progress.begin, ", ", progress.end, ")");
  }
  return taken;
}

}  // namespace

TEST_CASE("ProgressLog reports each position of a closed prompt once") {
  ProgressLog log;
  const auto prompt = MakePrompt("a", 1, 4);
  log.SetDone(*prompt, 16);
  log.SetDone(*prompt, 16);
  CHECK(Taken(log) == "a [0, 16)");
  log.SetDone(*prompt, 64);
  CHECK(prompt->done == 64);
  CHECK(Taken(log) == "a [16, 64)");
  CHECK(log.TakeStreaming().empty());
}

TEST_CASE("ProgressLog reports a streaming prompt from position 0 when it closes") {
  ProgressLog log;
  const auto prompt = MakePrompt("a", 1, 4);
  prompt->streaming = true;
  prompt->progress_reported = false;
  log.SetDone(*prompt, 32);
  log.ReportAll(*prompt);
  CHECK(Taken(log).empty());
  CHECK(log.TakeStreaming() == std::vector<RequestId>{"a"});
  prompt->streaming = false;
  log.ReportAll(*prompt);
  log.ReportAll(*prompt);
  CHECK(Taken(log) == "a [0, 32)");
}

TEST_CASE("ProgressLog drops untaken progress of a prompt that gives its blocks back") {
  ProgressLog log;
  const auto prompt = MakePrompt("a", 1, 4);
  const auto other = MakePrompt("b", 2, 4);
  log.SetDone(*prompt, 64);
  log.SetDone(*other, 16);
  log.Withdraw(*prompt);
  CHECK(Taken(log) == "b [0, 16)");
  prompt->done = 0;
  log.SetDone(*prompt, 64);
  CHECK(Taken(log) == "a [0, 64)");
}

TEST_CASE("ProgressLog reports a closed prompt when it is complete, admitted or not") {
  ProgressLog log;
  const auto prompt = MakePrompt("a", 1, 4);
  prompt->progress_reported = false;
  log.SetDone(*prompt, 48);
  CHECK(Taken(log).empty());
  log.SetDone(*prompt, 64);
  CHECK(Taken(log) == "a [0, 64)");
}

TEST_CASE("ProgressLog reports nothing when the prompt is stopped") {
  ProgressLog log;
  const auto prompt = MakePrompt("a", 1, 4);
  prompt->stopped = true;
  log.SetDone(*prompt, 64);
  CHECK(prompt->done == 64);
  CHECK(Taken(log).empty());
}

}  // namespace baton
