// The table of refusals in docs/openai.md. Each row is checked against the table of the code, and
// provoked over HTTP and gRPC where fake workers can do so.
#include <deque>
#include <fstream>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/notification.h"
#include "await.h"
#include "http_client.h"
#include "nlohmann/json.hpp"
#include "rpc/grpc_status.h"
#include "rpc/proto_json.h"
#include "rpc/status_table.h"
#include "shell/router_cluster.h"
#include "source_path.h"
#include "temp_dir.h"

namespace baton {
namespace {

struct Row {
  std::string grpc;  // name of the code, or "-"
  int http = 0;
  std::string code, retry_after;
};

std::map<std::string, Row> RowsOfDocument() {
  std::ifstream file(SourcePath("docs/openai.md"));
  std::map<std::string, Row> rows;
  bool is_here = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("## ")) is_here = line == "## Overload";
    if (!is_here || !line.starts_with("| ") || line.starts_with("| refusal")) continue;
    const std::vector<std::string> cells = absl::StrSplit(line, " | ");
    REQUIRE(cells.size() == 6);
    Row row{.grpc = cells[1], .http = 0, .code = cells[3].substr(1, cells[3].size() - 2), .retry_after = cells[4]};
    REQUIRE(absl::SimpleAtoi(cells[2], &row.http));
    rows[cells[0].substr(2)] = row;
  }
  return rows;
}

// The answers to one request over both protocols. A protocol that was not used has no answer.
struct Answers {
  std::optional<HttpAnswer> http{};
  std::optional<absl::Status> grpc{};
  absl::Duration grpc_delay{};
};

// The options of one exchange.
struct Exchanged {
  std::string key{};
  absl::Duration timeout = absl::InfiniteDuration();
  std::function<void()> when_sent = [] {};
};

Answers Send(Cluster& c, const v1::GenerateRequest& request, const Exchanged& how = {}) {
  const bool is_keyed = !how.key.empty(), is_timed = how.timeout != absl::InfiniteDuration();
  HttpClient client(c.node->http()->address());
  client.Post(is_timed ? absl::StrCat("/generate?timeout_ms=", absl::ToInt64Milliseconds(how.timeout)) : "/generate",
              ToJson(request), is_keyed ? "authorization: Bearer " + how.key + "\r\n" : "");
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + how.timeout));
  if (is_keyed) context.AddMetadata("authorization", "Bearer " + how.key);
  GenerateReader reader(c, context, request);
  how.when_sent();
  v1::GenerateResponse response;
  while (reader.Read(&response)) continue;
  Answers answers{.http = client.Read(), .grpc = FromGrpc(reader.Finish())};
  answers.grpc_delay = RetryAfterOf(context);
  return answers;
}

Answers SendHttp(Cluster& c, const std::string& bytes) {
  HttpClient client(c.node->http()->address());
  client.Send(bytes);
  return {.http = client.Read()};
}

const v1::GenerateRequest kRequest = Call::Request("", "hello");

// Sends a request of a tenant that has a live request and this quota.
Answers BeyondQuota(const std::string& quota) {
  const TempDir directory;
  const NewKey key = DrawKey();
  directory.Write("keys.toml", "[alpha]\nkeys = [\"" + key.hash + "\"]\n" + quota);
  Cluster c(PatientLimits(), Schedule::kFirstCome, directory / "keys.toml");
  HttpClient first(c.node->http()->address());
  first.Post("/generate", ToJson(kRequest), "authorization: Bearer " + key.key + "\r\n");
  c.prefill->Next();
  return Send(c, kRequest, {.key = key.key});
}

void AwaitNoWorkers(Cluster& c) {
  c.prefill->Die();
  c.decode->Die();
  Await("the router to lose its workers", [&] {
    HttpClient client(c.node->http()->address());
    client.Get("/health");
    return client.Read().status == 503;
  });
}

// Waits at each text until the gate opens.
class GatedTokenizer final : public ByteTokenizer {
 public:
  explicit GatedTokenizer(absl::Notification& gate) : gate_(gate) {}
  std::vector<TokenId> Encode(std::string_view, SpecialTokens) const override {
    gate_.WaitForNotification();
    return {1};
  }
  int64_t max_bytes_per_token() const override { return 1 << 20; }

 private:
  absl::Notification& gate_;
};

// Two long prompts are being tokenised, and 256 wait. Further ones are refused.
Answers BeyondLongPrompts() {
  absl::Notification gate;
  Cluster c;
  ServedModel model = ByteModel("bytes");
  model.tokenizer = std::make_unique<GatedTokenizer>(gate);
  c.Serve(std::move(model));
  const auto request = [](const std::string& id) { return Call::Request(id, std::string(17 << 10, 'x')); };
  std::deque<Call> calls;
  for (int i = 0; i < 260; ++i) calls.emplace_back(c, request(absl::StrCat(i)));
  Await("two calls to be refused", [&] {
    int refused = 0;
    for (int i = 0; i < 260; ++i) refused += c.ended_calls.StatusOf(absl::StrCat(i)).has_value();
    return refused == 2;
  });
  Answers answers = Send(c, request(""));
  gate.Notify();
  return answers;
}

Answers AfterShutdown() {
  Cluster c;
  Call first(c, "first");
  c.prefill->Next();
  const auto shutdown = std::async(std::launch::async, [&] { c.node->Shutdown(absl::Hours(1)); });
  Await("the router to refuse requests", [&] {
    HttpClient client(c.node->http()->address());
    client.Get("/health");
    return client.Read().status == 503;
  });
  Answers answers = Send(c, kRequest);
  // The port of gRPC closes. The client's library refuses the call without a delay, or gRPC cancels
  // a call that has just arrived (proto/inference.proto).
  INFO(*answers.grpc);
  CHECK((absl::IsUnavailable(*answers.grpc) || absl::IsCancelled(*answers.grpc)));
  answers.grpc.reset();
  first.context.TryCancel();
  return answers;
}

// The rows of the document, and how this test provokes them.
const std::map<std::string, std::function<Answers()>> kProvoked = {
    {"`--max-requests`, `--max-waiting`, or a tenant's share of one",
     [] {
       Cluster c({.live_requests = 1, .worker_wait = absl::Hours(1)});
       const Call first(c, "first");
       c.prefill->Next();
       return Send(c, kRequest);
     }},
    {"a tenant's quota of requests or sessions", [] { return BeyondQuota("max_requests = 1\n"); }},
    {"a tenant's tokens per minute", [] { return BeyondQuota("tokens_per_minute = 1\n"); }},
    {"long prompts wait for the tokenizer", BeyondLongPrompts},
    {"the router shuts down", AfterShutdown},
    {"no room on workers in `--capacity-wait`",
     [] {
       Cluster c({.worker_wait = absl::Hours(1), .capacity_wait = absl::ZeroDuration()});
       const auto refuse_both = [&c] {
         for (int i = 0; i < 2; ++i) {
           const RequestId id = c.prefill->Next().prefill().request_id();
           c.prefill->Send(FailedEvent<worker::v1::PrefillEvent>(id, absl::ResourceExhaustedError("full")));
         }
       };
       return Send(c, kRequest, {.when_sent = refuse_both});
     }},
    {"no worker in `--worker-wait`",
     [] {
       Cluster c({.worker_wait = absl::Milliseconds(1)});
       AwaitNoWorkers(c);
       return Send(c, kRequest);
     }},
    {"`/health` of a router without workers",
     [] {
       Cluster c;
       AwaitNoWorkers(c);
       return SendHttp(c, "GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
     }},
    {"all connections, or a tenant's share, are in use",
     [] {
       Cluster c;
       c.options.max_connections = 1;
       c.Serve(ByteModel("bytes"));
       HttpClient first(c.node->http()->address());
       first.Post("/generate", ToJson(kRequest));
       c.prefill->Next();
       return SendHttp(c, "GET /version HTTP/1.1\r\nHost: x\r\n\r\n");
     }},
    {"the deadline passed",
     [] {
       Cluster c;
       return Send(c, kRequest, {.timeout = absl::Milliseconds(20)});
     }},
    {"a workflow's limit of tokens is reached",
     [] {
       Cluster c;
       v1::GenerateRequest request = Call::Request("r", "hello");
       request.set_workflow("w");
       request.mutable_workflow_limits()->set_max_tokens(1);
       Call first(c, request);
       PassPrefill(c);
       c.decode->Send(TokensEvent("r", "x", FinishReason::kStop));
       CHECK(first.Finish().status.ok());
       request.clear_request_id();
       return Send(c, request);
     }},
    {"the request id is in use",
     [] {
       Cluster c;
       const Call first(c, "first");
       c.prefill->Next();
       return Send(c, Call::Request("first", "hello"));
     }},
    {"the body is too long",
     [] {
       Cluster c;
       return Send(c, Call::Request("", std::string(9 << 20, 'x')));
     }},
    {"the head is too long",
     [] {
       Cluster c;
       return SendHttp(c, "GET /version HTTP/1.1\r\nHost: x\r\na: " + std::string(20 << 10, 'x') + "\r\n\r\n");
     }},
    {"the prompt is too long for the model",
     [] {
       Cluster c;  // the model's context has 64 tokens
       return Send(c, Call::Request("", std::string(70, 'x')));
     }},
    {"`max_tokens` exceeds the KV memory of every decode worker",
     [] {
       Cluster c;
       c.ShrinkDecode(2);  // blocks
       v1::GenerateRequest request = kRequest;
       request.mutable_sampling()->set_max_tokens(50);
       return Send(c, request);
     }},
};

// Rows that http_limits_test and http_server_test provoke. In a router they need 256 MiB, and 10 s.
const std::set<std::string> kElsewhere = {"bodies or unread answers fill their memory",
                                          "the head or the body arrives too slowly"};

TEST_CASE("Each refusal in the table of the document arrives as the table states") {
  for (const auto& [name, row] : RowsOfDocument()) {
    INFO(name);
    const auto provoked = kProvoked.find(name);
    if (provoked == kProvoked.end()) {
      CHECK(kElsewhere.contains(name));
      continue;
    }
    const Answers answers = provoked->second();
    const bool has_delay = row.retry_after != "none" && row.retry_after != "never";
    REQUIRE(answers.http.has_value());
    const auto& headers = answers.http->headers;
    INFO(answers.http->body);
    CHECK(answers.http->status == row.http);
    CHECK(nlohmann::json::parse(answers.http->body)["error"]["code"] == row.code);
    CHECK(headers.contains("retry-after") == has_delay);
    if (row.retry_after == "1 s") CHECK(headers.at("retry-after") == "1");
    CHECK(headers.contains("x-should-retry") == (row.retry_after == "never"));
    if (!answers.grpc) continue;
    CHECK(absl::StatusCodeToString(answers.grpc->code()) == row.grpc);
    CHECK((answers.grpc_delay > absl::ZeroDuration()) == has_delay);
  }
}

TEST_CASE("The document's table of refusals has a row for each of the tests") {
  const std::map<std::string, Row> rows = RowsOfDocument();
  CHECK(rows.size() == kProvoked.size() + kElsewhere.size());
  for (const auto& [name, provoke] : kProvoked) CHECK(rows.contains(name));
  for (const StatusRow& status : StatusTable()) {
    for (const auto& [name, row] : rows) {
      INFO(name);
      if (row.grpc != absl::StatusCodeToString(status.code) || row.http == 413) continue;
      CHECK(row.http == status.http);
      CHECK((row.retry_after == "never") == (status.retry == Retry::kNever));
    }
  }
}

}  // namespace
}  // namespace baton
