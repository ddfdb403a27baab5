// Keys and tenants over real sockets: which calls are accepted, and what a tenant can learn about
// another tenant.
#include "frontend/callers.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/synchronization/notification.h"
#include "await.h"
#include "base/strings.h"
#include "frontend/key_refusal.h"
#include "http_client.h"
#include "log_capture.h"
#include "metric_value.h"
#include "shell/router_cluster.h"
#include "temp_dir.h"

namespace baton {
namespace {

// A router with two tenants. One of them is an operator.
struct Tenants {
  TempDir directory;
  const NewKey alpha = DrawKey(), beta = DrawKey(), unknown = DrawKey();
  std::optional<Cluster> c;

  explicit Tenants(const std::string& alpha_quota = "") {
    directory.Write("keys.toml", "[alpha]\nkeys = [\"" + alpha.hash + "\"]\n" + alpha_quota +
                                     "\n[beta]\noperator = true\n" + "keys = [\"" + beta.hash + "\"]\n");
    c.emplace(PatientLimits(), Schedule::kFirstCome, directory / "keys.toml");
  }

  HttpAnswer Http(const std::string& method, const std::string& path, const std::string& body, const NewKey* key) {
    HttpClient client(c->node->http()->address());
    client.Send(absl::StrCat(method, " ", path, " HTTP/1.1\r\nHost: any.example\r\n", Header(key),
                             "Content-Length: ", body.size(), "\r\n\r\n", body));
    return client.Read();
  }
  static std::string Header(const NewKey* key) {
    return key == nullptr ? "" : "authorization: Bearer " + key->key + "\r\n";
  }
};

// A Generate call of a tenant.
struct KeyedCall {
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>> reader;

  KeyedCall(Tenants& t, const NewKey* key, const v1::GenerateRequest& request) {
    if (key != nullptr) context.AddMetadata("authorization", "Bearer " + key->key);
    reader = t.c->stub->Generate(&context, request);
  }
  absl::Status Finish() {
    v1::GenerateResponse response;
    while (reader->Read(&response)) continue;
    return FromGrpc(reader->Finish());
  }
};

void End(Cluster& c, const std::string& id) {
  c.prefill->Send(DoneEvent(id, Incarnation(22)));
  CHECK(c.decode->Next().decode().request_id() == id);
  c.decode->Send(TokensEvent(id, "x", FinishReason::kStop));
}

TEST_CASE("HTTP routes but /health and /ui give missing and wrong keys the same answer") {
  Tenants t;
  const std::vector<std::pair<std::string, std::string>> routes = {
      {"POST", "/v1/completions"}, {"POST", "/v1/chat/completions"},
      {"GET", "/v1/models"},       {"GET", "/v1/models/bytes"},
      {"POST", "/tokenize"},       {"POST", "/detokenize"},
      {"POST", "/generate"},       {"POST", "/prefill_only"},
      {"GET", "/version"},         {"GET", "/metrics"},
      {"GET", "/ui/status"},       {"POST", "/ui/workflows"},
      {"POST", "/ui/trace"},       {"GET", "/ui/trace"},
      {"GET", "/nothing"},         {"DELETE", "/v1/models"},
      {"OPTIONS", "/v1/models"}};
  for (const auto& [method, path] : routes) {
    INFO(method << " " << path);
    const HttpAnswer missing = t.Http(method, path, "{}", nullptr), wrong = t.Http(method, path, "{}", &t.unknown);
    CHECK(missing.status == 401);
    CHECK(wrong.status == 401);
    CHECK(missing.body == wrong.body);
    CHECK(missing.body.find("an API key") != std::string::npos);
    const int known = t.Http(method, path, "{}", &t.beta).status;
    CHECK((known >= 200 && known != 401));
  }
  const int health = t.Http("GET", "/health", "", nullptr).status;
  CHECK((health == 200 || health == 503));  // depends on whether workers have attached yet
  CHECK(t.Http("GET", "/v1/models", "", &t.alpha).status == 200);
}

TEST_CASE("A router reads no body when the call has no valid key or no route") {
  Tenants t;
  const auto answer_to = [&](const std::string& request, const NewKey* key) {
    HttpClient client(t.c->node->http()->address());
    client.Send(
        absl::StrCat(request, " HTTP/1.1\r\nHost: x\r\n", Tenants::Header(key), "Content-Length: 8000000\r\n\r\n"));
    const HttpAnswer answer = client.Read();
    CHECK(answer.headers.at("connection") == "close");
    CHECK(client.AtEnd());
    return answer.status;
  };
  CHECK(answer_to("POST /generate", nullptr) == 401);
  CHECK(answer_to("POST /generate", &t.unknown) == 401);
  CHECK(answer_to("GET /health", nullptr) == 400);
  CHECK(answer_to("GET /metrics", &t.alpha) == 403);
  CHECK(answer_to("POST /nothing", &t.alpha) == 404);
  CHECK(answer_to("DELETE /generate", &t.alpha) == 405);
}

TEST_CASE("A router with keys accepts any host name and hides models in /health") {
  Tenants t;
  t.c->prefill->Die();
  t.c->decode->Die();
  HttpAnswer health;
  Await("the router to lose its workers",
        [&] { return (health = t.Http("GET", "/health", "", nullptr)).status != 200; });
  CHECK(health.status == 503);
  CHECK(health.body.find("not ready") != std::string::npos);
  CHECK(health.body.find("bytes") == std::string::npos);
}

TEST_CASE("A router refuses a key that is removed while its request's body arrives") {
  Tenants t;
  HttpClient client(t.c->node->http()->address());
  client.Send(absl::StrCat("POST /tokenize HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n",
                           Tenants::Header(&t.alpha), "Content-Length: 2\r\n\r\n"));
  CHECK(client.ReadHead().status == 100);
  t.directory.Write("keys.toml", "[beta]\nkeys = [\"" + t.beta.hash + "\"]\n");
  t.c->node->ReloadKeys();
  client.Send("{}");
  CHECK(client.Read().status == 401);
}

TEST_CASE("Every gRPC method refuses missing and wrong keys") {
  Tenants t;
  for (const NewKey* key : {static_cast<const NewKey*>(nullptr), &t.unknown}) {
    const auto refused = [&](const auto& call) {
      grpc::ClientContext context;
      if (key != nullptr) context.AddMetadata("authorization", "Bearer " + key->key);
      const absl::Status status = FromGrpc(call(context));
      CHECK(status == absl::UnauthenticatedError(kKeyRefusal));
    };
    v1::Inference::Stub& stub = *t.c->stub;
    refused([&](grpc::ClientContext& context) {
      v1::ListModelsResponse response;
      return stub.ListModels(&context, {}, &response);
    });
    refused([&](grpc::ClientContext& context) {
      v1::GetServerInfoResponse response;
      return stub.GetServerInfo(&context, {}, &response);
    });
    refused([&](grpc::ClientContext& context) {
      v1::TraceResponse response;
      return stub.Trace(&context, {}, &response);
    });
    refused([&](grpc::ClientContext& context) {
      v1::PrefillOnlyResponse response;
      return stub.PrefillOnly(&context, {}, &response);
    });
    CHECK(KeyedCall(t, key, Call::Request("r", "hello")).Finish() == absl::UnauthenticatedError(kKeyRefusal));
  }
}

TEST_CASE("A wrong key over gRPC is logged with address and method, without the key") {
  const LogCapture log;
  Tenants t;
  for (int i = 0; i < 3; ++i) {
    CHECK(absl::IsUnauthenticated(KeyedCall(t, &t.unknown, Call::Request("r", "hello")).Finish()));
  }
  t.c->node.reset();
  CHECK(log.Count("gRPC: ipv4:127.0.0.1:") == 1);
  CHECK(log.Count("called Generate with an unknown key") == 1);
  CHECK(log.Count(t.unknown.key) == 0);
}

TEST_CASE("A router shows views of all tenants to operators only") {
  Tenants t;
  CHECK(t.Http("GET", "/metrics", "", &t.alpha).status == 403);
  CHECK(t.Http("GET", "/metrics", "", &t.beta).status == 200);
  grpc::ClientContext context;
  context.AddMetadata("authorization", "Bearer " + t.alpha.key);
  v1::GetServerInfoResponse response;
  CHECK(FromGrpc(t.c->stub->GetServerInfo(&context, {}, &response)).code() == absl::StatusCode::kPermissionDenied);
  CHECK(response.workers_size() == 0);
}

TEST_CASE("Tenants share no requests, workflows or KV") {
  Tenants t;
  v1::GenerateRequest request = Call::Request("r", "hello");
  request.set_cache_salt("salt");
  request.set_workflow("flow");
  KeyedCall first(t, &t.alpha, request);
  const std::string alpha_salt = t.c->prefill->Next().prefill().spec().cache_salt();

  // The same name and salt, and then another salt for the same prompt. The tenants' block keys must
  // differ in both cases.
  KeyedCall second(t, &t.beta, request);
  CHECK(t.c->prefill->Next().prefill().spec().cache_salt() != alpha_salt);

  // A reference to another tenant's request has the same result as one to an unknown request.
  v1::GenerateRequest reader = request;
  reader.set_request_id("reader");
  reader.set_cache_salt("");
  auto& upstream = *reader.mutable_segments()->mutable_segments(0)->mutable_output_of();
  upstream.set_request_id("r");
  const absl::Status of_other = KeyedCall(t, &t.beta, reader).Finish();
  upstream.set_request_id("s");
  const absl::Status of_unknown = KeyedCall(t, &t.beta, reader).Finish();
  CHECK(of_other.code() == absl::StatusCode::kNotFound);
  std::string words(Message(of_other));
  words.replace(words.find("'r'"), 3, "'s'");
  CHECK(words == Message(of_unknown));

  const auto trace = [&](const NewKey& key) {
    grpc::ClientContext context;
    context.AddMetadata("authorization", "Bearer " + key.key);
    v1::TraceRequest asked;
    asked.set_workflow("flow");
    asked.set_cache_salt("salt");
    v1::TraceResponse response;
    const absl::Status status = FromGrpc(t.c->stub->Trace(&context, asked, &response));
    return status.ok() ? response.requests_size() : -1;
  };
  CHECK(trace(t.alpha) == 1);
  CHECK(trace(t.beta) == 1);  // the tenant's own request
}

TEST_CASE("A router treats another tenant's output like that of an unknown request") {
  Tenants t;
  const auto refusal_of = [&](const std::string& upstream) {
    const std::string body = R"({"segments": {"segments": [{"output_of": {"request_id": ")" + upstream +
                             R"("}}]}, "request_id": "reader", "sampling": {"max_tokens": 8}})";
    const HttpAnswer answer = t.Http("POST", "/generate", body, &t.alpha);
    CHECK(answer.status == 404);
    std::string words = answer.body;
    words.replace(words.find("'" + upstream + "'"), upstream.size() + 2, "'it'");
    return words;
  };
  KeyedCall theirs(t, &t.beta, Call::Request("theirs", "hello"));
  REQUIRE(t.c->prefill->Next().prefill().request_id() == "theirs");
  CHECK(refusal_of("theirs") == refusal_of("nobodys"));
  // These are the next jobs that the workers receive, so the refused requests did not reach them.
  End(*t.c, "theirs");
  CHECK(theirs.Finish().ok());
  CHECK(refusal_of("theirs") == refusal_of("nobodys"));
  // The name is not taken for the other tenant either.
  KeyedCall last(t, &t.alpha, Call::Request("theirs", "hello"));
  CHECK(t.c->prefill->Next().prefill().request_id() == "theirs");
}

TEST_CASE("A reference to an announced request waits for the tenant's own request") {
  Tenants t;
  const auto wait_for = [&](const std::string& id, const std::string& upstream) {
    v1::GenerateRequest request = Call::Request(id, "0123456789abcdef");
    auto& output = *request.mutable_segments()->add_segments()->mutable_output_of();
    output.set_request_id(upstream);
    output.set_announced(true);
    return request;
  };
  const auto open_job = [&](const std::string& id) {
    worker::v1::PrefillJob job = t.c->prefill->Next().prefill();
    REQUIRE(job.request_id() == id);
    CHECK(job.open());
    CHECK(job.spec().tenant() == "alpha");
    job.clear_request_id();
    job.mutable_spec()->clear_traceparent();
    return job.SerializeAsString();
  };
  KeyedCall theirs(t, &t.beta, Call::Request("r", "hello"));
  REQUIRE(t.c->prefill->Next().prefill().request_id() == "r");
  KeyedCall reader(t, &t.alpha, wait_for("reader", "r"));
  const std::string job = open_job("reader");
  KeyedCall other(t, &t.alpha, wait_for("other", "nobodys"));
  CHECK(open_job("other") == job);

  End(*t.c, "r");
  CHECK(theirs.Finish().ok());
  KeyedCall own(t, &t.alpha, Call::Request("r", "hello"));
  // The first job: the downstream request does not start earlier.
  REQUIRE(t.c->prefill->Next().prefill().request_id() == "r");
  t.c->prefill->Send(DoneEvent("r", Incarnation(22)));
  const worker::v1::DecodeJob own_job = t.c->decode->Next().decode();
  REQUIRE(own_job.request_id() == "r");
  CHECK(own_job.spec().tenant() == "alpha");
  t.c->decode->Send(TokensEvent("r", "own", FinishReason::kStop));
  const worker::v1::PrefillAppend append = t.c->prefill->Next().append();
  CHECK(append.request_id() == "reader");
  CHECK(std::string(append.tokens().begin(), append.tokens().end()).ends_with("own"));
}

TEST_CASE("A router refuses a nearly right key like any wrong key") {
  Tenants t;
  const std::string refusal = t.Http("GET", "/v1/models", "", &t.unknown).body;
  const std::string& key = t.alpha.key;
  std::string first = key, last = key;
  first.front() ^= 1;
  last.back() ^= 1;
  for (const std::string& near : {first, last, key.substr(0, key.size() - 1), key + "x", std::string(4000, 'x')}) {
    const NewKey wrong{near, ""};
    const HttpAnswer answer = t.Http("GET", "/v1/models", "", &wrong);
    CHECK(answer.status == 401);
    CHECK(answer.body == refusal);
    CHECK(KeyedCall(t, &wrong, Call::Request("r", "hello")).Finish() == absl::UnauthenticatedError(kKeyRefusal));
  }
}

TEST_CASE("A tenant beyond its quota waits, and other tenants do not") {
  Tenants t("max_requests = 1\n");
  KeyedCall first(t, &t.alpha, Call::Request("first", "hello"));
  REQUIRE(t.c->prefill->Next().prefill().request_id() == "first");
  CHECK(KeyedCall(t, &t.alpha, Call::Request("second", "hello")).Finish() ==
        absl::ResourceExhaustedError("tenant 'alpha': the quota of 1 requests is used up"));
  const HttpAnswer over_http = t.Http("POST", "/v1/completions", R"({"prompt": "hello", "max_tokens": 8})", &t.alpha);
  CHECK(over_http.status == 429);
  CHECK(MetricValue(t.c->metrics, R"(baton_quota_refusals_total{tenant="alpha"})") >= 2);
  // An estimate of when one of the tenant's own requests ends.
  CHECK(over_http.headers.at("retry-after") == "1");
  KeyedCall other(t, &t.beta, Call::Request("other", "hello"));
  REQUIRE(t.c->prefill->Next().prefill().request_id() == "other");
  End(*t.c, "first");
  CHECK(first.Finish().ok());
  KeyedCall third(t, &t.alpha, Call::Request("third", "hello"));
  CHECK(t.c->prefill->Next().prefill().request_id() == "third");
}

TEST_CASE("A body counts in the share of the tenant of its key") {
  Tenants t;
  const auto keys = KeyRing::Load(t.directory / "keys.toml");
  REQUIRE(keys.ok());
  ServedModels models(std::vector<ServedModel>{});
  Callers callers(**keys, t.c->clock, t.c->metrics);
  Router router({}, t.c->clock, DialTcp, t.c->metrics);
  ClientAdmission admission(router, models, t.c->clock, callers);
  ChatLog chats(t.c->metrics, t.c->clock);
  OpenAiGateway gateway({router, models, t.c->clock, t.c->metrics, admission, chats, absl::Now()},
                        {.listen = "127.0.0.1:0"});
  HttpRequest head;
  head.method = "POST";
  head.path = "/tokenize";
  CHECK(gateway.OnHead(head).has_value());  // refused
  head.headers = {{"authorization", "Bearer " + t.beta.key}};
  CHECK_FALSE(gateway.OnHead(head).has_value());
  CHECK(head.account == "beta");
}

class Refused final : public CallSink {
 public:
  explicit Refused(Router& router) : handle_(&router) {}
  void OnUpdate(TokenUpdate) override {}
  void OnEnd(const RequestOutcome&) override {}
  RequestHandle& handle() override { return handle_; }
  void SetId(const RequestId&) override {}
  void Refuse(const absl::Status& status, absl::Duration) override { why = status; }

  absl::Status why;  // of the last call

 private:
  RequestHandle handle_;
};

TEST_CASE("A tenant's waiting messages leave as many bytes to other tenants") {
  Tenants t;
  ServedModels models(std::vector<ServedModel>{});
  const auto keys = KeyRing::Load(t.directory / "keys.toml");
  REQUIRE(keys.ok());
  Callers callers(**keys, t.c->clock, t.c->metrics);
  Router router({}, t.c->clock, DialTcp, t.c->metrics);
  absl::Notification go;
  Tenant busy;
  busy.name = "busy";
  ClientAdmission admission(router, models, t.c->clock, callers);
  for (int thread = 0; thread < 2; ++thread) {
    CHECK(admission.Run(busy, 1 << 20, [&go] { go.WaitForNotification(); }).ok());
  }
  auto request = std::make_shared<v1::GenerateRequest>();
  request->mutable_segments()->add_segments()->set_text(std::string(8'000'000, 'x'));
  const auto ask = [&](const NewKey& key) {
    const auto sink = std::make_shared<Refused>(router);
    admission.Accept(request, {.caller = callers.Authenticate("Bearer " + key.key, {}).value()}, sink);
    return sink->why;
  };
  for (int i = 0; i < 16; ++i) CHECK(ask(t.alpha).ok());  // 122 MiB of the tenant's 128
  const absl::Status refused = ask(t.alpha);
  CHECK(absl::IsResourceExhausted(refused));
  CHECK(absl::StrContains(ToAbsl(Message(refused)), "too many bytes of large requests"));
  CHECK(ask(t.beta).ok());
  go.Notify();
}

TEST_CASE("ClientAdmission chooses max_tokens when neither the client nor the API does") {
  Tenants t;
  const auto keys = KeyRing::Load(t.directory / "keys.toml");
  REQUIRE(keys.ok());
  std::vector<ServedModel> list;
  list.push_back(ByteModel("bytes"));
  ServedModels models(std::move(list));
  Callers callers(**keys, t.c->clock, t.c->metrics);
  Router router({}, t.c->clock, DialTcp, t.c->metrics);
  const CallContext context{.caller = callers.Authenticate("Bearer " + t.alpha.key, {}).value()};
  const auto chosen = [&](int32_t by_router, int32_t by_api, size_t prompt, std::optional<int32_t> by_client) {
    ClientAdmission admission(router, models, t.c->clock, callers, by_router);
    v1::GenerateRequest request = Call::Request("r", std::string(prompt, 'p'));
    request.mutable_sampling()->clear_max_tokens();
    if (by_client) request.mutable_sampling()->set_max_tokens(*by_client);
    const auto read = admission.Read(request, context, {.default_max_tokens = by_api});
    REQUIRE(read.ok());
    return read->spec.sampling.max_tokens;
  };
  CHECK(chosen(0, 0, 10, {}) == 54);  // the rest of the context length
  CHECK(chosen(20, 0, 10, {}) == 20);
  CHECK(chosen(20, 0, 60, {}) == 4);
  CHECK(chosen(5, 16, 10, {}) == 16);
  CHECK(chosen(5, 16, 10, 30) == 30);
}

TEST_CASE("A request counts its expected length until it ends, and its use afterwards") {
  Tenants t("tokens_per_minute = 17\n");
  const auto refusal = absl::ResourceExhaustedError("tenant 'alpha': the quota of 17 tokens per minute is used up");
  const auto ask = [&](const char* id) { return KeyedCall(t, &t.alpha, Call::Request(id, "hello")).Finish(); };
  // Six tokens of prompt, and eight of output: the limit, since no length is known.
  KeyedCall first(t, &t.alpha, Call::Request("first", "hello"));
  REQUIRE(t.c->prefill->Next().prefill().request_id() == "first");
  // If this request had counted, the quota would refuse the second one.
  CHECK(absl::IsAlreadyExists(ask("first")));
  KeyedCall second(t, &t.alpha, Call::Request("second", "hello"));
  REQUIRE(t.c->prefill->Next().prefill().request_id() == "second");
  CHECK(ask("third") == refusal);  // two running requests of 14 tokens each: 28
  End(*t.c, "first");
  CHECK(first.Finish().ok());
  CHECK(ask("third") == refusal);  // the tokens that the first used, and 14
  End(*t.c, "second");
  CHECK(second.Finish().ok());
  // Only the tokens that the first two used count.
  KeyedCall third(t, &t.alpha, Call::Request("third", "hello"));
  CHECK(t.c->prefill->Next().prefill().request_id() == "third");
}

TEST_CASE("A request uses up the quota while its output outgrows the expected length") {
  Tenants t("tokens_per_minute = 20\n");
  KeyedCall first(t, &t.alpha, Call::Request("first", "hello"));
  REQUIRE(t.c->prefill->Next().prefill().request_id() == "first");
  End(*t.c, "first");  // with one token, which is expected from now on
  CHECK(first.Finish().ok());
  v1::GenerateRequest request = Call::Request("second", "hello");
  request.mutable_sampling()->set_max_tokens(40);
  request.set_expected_tokens(1);
  KeyedCall second(t, &t.alpha, request);
  const worker::v1::PrefillJob job = t.c->prefill->Next().prefill();
  CHECK(job.spec().expected_tokens() == 1);
  t.c->prefill->Send(DoneEvent("second", Incarnation(22)));
  CHECK(t.c->decode->Next().decode().request_id() == "second");
  t.c->decode->Send(TokensEvent("second", std::string(20, 'y'), std::nullopt));
  v1::GenerateResponse response;
  while (response.token_ids_size() == 0) REQUIRE(second.reader->Read(&response));
  // 7 tokens of the first request, 6 of the prompt and 32 of the output: the doubled expectation.
  CHECK(KeyedCall(t, &t.alpha, Call::Request("third", "hello")).Finish() ==
        absl::ResourceExhaustedError("tenant 'alpha': the quota of 20 tokens per minute is used up"));
  t.c->decode->Send(TokensEvent("second", "x", FinishReason::kStop));
  CHECK(second.Finish().ok());
}

TEST_CASE("A router admits a call's choices together and does not read the next call") {
  Tenants t("tokens_per_minute = 20\n");
  HttpClient client(t.c->node->http()->address());
  const std::string body = R"({"prompt": "hello", "max_tokens": 8, "n": 2})";
  client.Post("/v1/completions", body, Tenants::Header(&t.alpha));
  for (int i = 0; i < 2; ++i) End(*t.c, t.c->prefill->Next().prefill().request_id());
  CHECK(client.Read().status == 200);
  HttpClient again(t.c->node->http()->address());
  again.Post("/v1/completions", body, Tenants::Header(&t.alpha));
  t.c->prefill->Next();
  t.c->prefill->Next();
  CHECK(t.Http("POST", "/v1/completions", "not JSON", &t.alpha).status == 429);
}

TEST_CASE("The tokens of a streaming prompt use up the quota before the prompt is complete") {
  class Ignored final : public RequestSink {
    void OnUpdate(TokenUpdate) override {}
    void OnEnd(const RequestOutcome&) override {}
  };
  Tenants t("tokens_per_minute = 100\n");
  const auto keys = KeyRing::Load(t.directory / "keys.toml");
  REQUIRE(keys.ok());
  Callers callers(**keys, t.c->clock, t.c->metrics);
  const auto alpha = callers.Authenticate("Bearer " + t.alpha.key, {});
  REQUIRE(alpha.ok());
  ClientRequest request;
  request.prefill_only = true;
  request.prompt.segments = {std::vector<TokenId>(30), Reference{.upstream = "up"}};
  const auto sink = callers.Count(*alpha, request, std::make_shared<Ignored>(), false).sink;
  sink->OnCharge({.prompt_tokens = 99});
  CHECK_FALSE(callers.Check(*alpha).has_value());
  sink->OnCharge({.prompt_tokens = 101});
  CHECK(callers.Check(*alpha).has_value());
  // It began again and failed. Its tokens were computed.
  RequestOutcome outcome;
  outcome.prompt_tokens = 0;
  sink->OnEnd(outcome);
  CHECK(callers.Check(*alpha).has_value());
}

TEST_CASE("A streaming prompt counts its expected output once it is complete") {
  Tenants t("tokens_per_minute = 60\n");
  v1::GenerateRequest request = Call::Request("open", "hello");
  request.mutable_sampling()->set_max_tokens(50);
  request.set_expected_tokens(50);
  auto& upstream = *request.mutable_segments()->add_segments()->mutable_output_of();
  upstream.set_request_id("later");
  upstream.set_announced(true);
  KeyedCall open(t, &t.alpha, request);
  REQUIRE(t.c->prefill->Next().prefill().open());
  // With its 50 tokens of output, the quota would refuse its own upstream request.
  KeyedCall further(t, &t.alpha, Call::Request("further", "hello"));
  REQUIRE(t.c->prefill->Next().prefill().request_id() == "further");
  KeyedCall later(t, &t.alpha, Call::Request("later", "hello"));
  REQUIRE(t.c->prefill->Next().prefill().request_id() == "later");
  End(*t.c, "later");
  CHECK(later.Finish().ok());
  REQUIRE(t.c->prefill->Next().append().last());
  const absl::Status status = KeyedCall(t, &t.alpha, Call::Request("second", "hello")).Finish();
  CHECK(status == absl::ResourceExhaustedError("tenant 'alpha': the quota of 60 tokens per minute is used up"));
}

TEST_CASE("A long call that is refused for a quota is in the trace of its workflow") {
  Tenants t("tokens_per_minute = 1\n");
  KeyedCall first(t, &t.alpha, Call::Request("first", "hello"));
  REQUIRE(t.c->prefill->Next().prefill().request_id() == "first");
  const std::string text(40'000, 'x');
  v1::GenerateRequest request = Call::Request("grpc", text);
  request.set_workflow("w");
  CHECK(absl::IsResourceExhausted(KeyedCall(t, &t.alpha, request).Finish()));
  const std::string body = absl::StrCat(R"({"request_id": "http", "workflow": "w", "prompt": ")", text, "\"}");
  CHECK(t.Http("POST", "/v1/completions", body, &t.alpha).status == 429);
  v1::TraceRequest query;
  query.set_workflow("w");
  grpc::ClientContext context;
  context.AddMetadata("authorization", "Bearer " + t.alpha.key);
  v1::TraceResponse trace;
  REQUIRE(t.c->stub->Trace(&context, query, &trace).ok());
  REQUIRE(trace.requests_size() == 2);
  for (int i = 0; i < 2; ++i) {
    CHECK(trace.requests(i).request_id() == (i == 0 ? "grpc" : "http"));
    CHECK(absl::StartsWith(trace.requests(i).error(), "RESOURCE_EXHAUSTED: tenant 'alpha'"));
  }
}

TEST_CASE("A tenant at its quota of requests may submit a request that waits") {
  Tenants t("max_requests = 1\n");
  KeyedCall first(t, &t.alpha, Call::Request("first", "hello"));
  REQUIRE(t.c->prefill->Next().prefill().request_id() == "first");
  v1::GenerateRequest request = Call::Request("open", "hello");
  request.mutable_segments()->add_segments()->mutable_output_of()->set_request_id("first");
  KeyedCall open(t, &t.alpha, request);
  REQUIRE(t.c->prefill->Next().prefill().open());
  CHECK(absl::IsResourceExhausted(KeyedCall(t, &t.alpha, Call::Request("second", "hello")).Finish()));
  End(*t.c, "first");
  CHECK(first.Finish().ok());
  CHECK(t.c->prefill->Next().append().last());
}

TEST_CASE("Sessions with one name and different salts are different sessions") {
  Tenants t("max_sessions = 1\n");
  v1::GenerateRequest request = Call::Request("first", "hello");
  request.set_session_id("s");
  KeyedCall first(t, &t.alpha, request);
  REQUIRE(t.c->prefill->Next().prefill().request_id() == "first");
  request.set_request_id("second");
  request.set_cache_salt("other");
  CHECK(KeyedCall(t, &t.alpha, request).Finish() ==
        absl::ResourceExhaustedError("tenant 'alpha': the quota of 1 sessions is used up"));
  request.set_cache_salt("");
  KeyedCall second(t, &t.alpha, request);
  CHECK(t.c->prefill->Next().prefill().request_id() == "second");
}

}  // namespace
}  // namespace baton
