#include "programs.h"

#include <csignal>
#include <optional>

#include "absl/strings/str_cat.h"
#include "await.h"
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

void Worker::AwaitUsed(bool some) {
  const std::string used = absl::StrCat("baton_kv_blocks{role=\"", role, "\",state=\"used\"}");
  Await(absl::StrCat("the ", role, " worker at ", address, " to use ", some ? "a block" : "no block"), [&] {
    if (process.HasEnded()) FAIL("the " << role << " worker has ended:\n" << process.Output());
    const std::optional<double> blocks = Scrape(metrics, used);
    return blocks.has_value() && (*blocks > 0) == some;
  });
}

v1::GenerateRequest MakeRequest(int max_tokens, int prompt_tokens) {
  v1::GenerateRequest request;
  auto& ids = *request.mutable_segments()->add_segments()->mutable_token_ids()->mutable_ids();
  for (int i = 0; i < prompt_tokens; ++i) ids.Add(2 + (i * 7) % 250);
  request.mutable_sampling()->set_temperature(0);
  request.mutable_sampling()->set_max_tokens(max_tokens);
  request.mutable_sampling()->set_ignore_eos(true);
  return request;
}

v1::GetServerInfoResponse ServerInfoOf(v1::Inference::Stub& stub) {
  grpc::ClientContext context;
  v1::GetServerInfoResponse info;
  REQUIRE(stub.GetServerInfo(&context, {}, &info).ok());
  return info;
}

// Returns the router's count of generated tokens after the router has read all that workers had
// sent. Each of the calls makes the router look at all of its connections again.
int64_t SettledTokens(v1::Inference::Stub& stub) {
  int64_t count = ServerInfoOf(stub).completion_tokens();
  for (int equal = 0; equal < 20;) {
    const int64_t next = ServerInfoOf(stub).completion_tokens();
    equal = next == count ? equal + 1 : 0;
    count = next;
  }
  return count;
}

std::unique_ptr<Call> StopWhileItDecodes(Worker& decode, v1::Inference::Stub& stub,
                                         const v1::GenerateRequest& request) {
  while (true) {
    const int64_t before = ServerInfoOf(stub).completion_tokens();
    auto call = std::make_unique<Call>(stub, request);
    REQUIRE(call->Read());
    decode.process.Signal(SIGSTOP);
    if (SettledTokens(stub) - before < request.sampling().max_tokens() / 2) return call;
    decode.process.Signal(SIGCONT);
    REQUIRE(call->Finish().ok());
  }
}

}  // namespace baton
