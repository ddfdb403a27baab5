#include "programs.h"

#include <thread>

#include "absl/strings/str_cat.h"
#include "catch.h"
#include "scrape.h"

namespace baton {

std::vector<std::string> Small(std::vector<std::string> arguments, const std::string& model) {
  for (const char* word : {"--model", model.c_str(), "--threads", "1", "--kv-memory-mb", "8", "--grace", "1"}) {
    arguments.push_back(word);
  }
  return arguments;
}

std::string MetricsOf(Process& process) {
  const std::string url = process.Await("metrics on http://");
  return url.substr(0, url.find('/'));
}

std::string HttpOf(Process& process) { return process.Await("HTTP on http://"); }

Worker::Worker(const std::string& role_name, const std::string& listen)
    : Worker(role_name, Small({"--listen", listen})) {}

Worker::Worker(const std::string& role_name, const std::vector<std::string>& arguments)
    : process("baton-" + role_name, arguments),
      role(role_name),
      address(process.Await("listening on ")),
      metrics(MetricsOf(process)) {}

Worker::~Worker() = default;

bool Worker::AwaitUsed(bool some) {
  const std::string used = absl::StrCat("baton_kv_blocks{role=\"", role, "\",state=\"used\"}");
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(50);
  std::optional<double> last;
  while (std::chrono::steady_clock::now() < until) {
    last = Scrape(metrics, used);
    if (last.has_value() && (*last > 0) == some) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  UNSCOPED_INFO(role << " still uses " << last.value_or(-1) << " blocks:\n" << process.Output());
  return false;
}

v1::GenerateRequest Request(int max_tokens, int prompt_tokens) {
  v1::GenerateRequest request;
  auto& ids = *request.mutable_segments()->add_segments()->mutable_token_ids()->mutable_ids();
  for (int i = 0; i < prompt_tokens; ++i) ids.Add(2 + (i * 7) % 250);
  request.mutable_sampling()->set_temperature(0);
  request.mutable_sampling()->set_max_tokens(max_tokens);
  request.mutable_sampling()->set_ignore_eos(true);
  return request;
}

}  // namespace baton
