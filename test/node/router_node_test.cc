// Tests of the router with real sockets on both sides. The workers are fakes that speak the worker
// protocol.
#include "node/router_node.h"

#include <thread>

#include "await.h"
#include "base/strings.h"
#include "catch.h"
#include "log_capture.h"
#include "metric_value.h"
#include "model/byte_model.h"
#include "raw_call.h"
#include "shell/fake_worker.h"
#include "shell/router_cluster.h"

namespace baton {
namespace {

TEST_CASE("A request passes both workers and its tokens reach the client") {
  Cluster c;
  Call call(c);
  const worker::v1::PrefillJob prefill = c.prefill->Next().prefill();
  CHECK(prefill.request_id() == "r");
  CHECK(std::vector<int32_t>(prefill.spec().tokens().begin(), prefill.spec().tokens().end()) ==
        std::vector<int32_t>{'h', 'e', 'l', 'l', 'o'});
  CHECK(prefill.decode_worker() == c.decode->address());
  CHECK(prefill.spec().sampling().max_tokens() == 8);
  c.prefill->Send(DoneEvent("r", Incarnation(22)));

  const DecodeJob decode = FromProto(c.decode->Next().decode());
  CHECK(decode.reservation == ReservationRef{ReservationId(5), Generation(6)});
  CHECK(decode.decode_incarnation == Incarnation(22));
  CHECK(decode.blocks == 2);
  CHECK(decode.spec.tokens.size() == 5);
  CHECK(decode.spec.sampling.seed == 99);
  CHECK(decode.spec.sampling.max_tokens == 8);
  c.decode->Send(TokensEvent("r", "wor", std::nullopt));
  Await("tokens to be counted before the end",
        [&] { return MetricValue(c.metrics, "baton_completion_tokens_total") >= 3; });
  c.decode->Send(TokensEvent("r", "ld", FinishReason::kLength));

  const Call::Result result = call.Finish();
  INFO(Message(result.status));
  CHECK(result.status.ok());
  CHECK(result.text == "world");
  CHECK(result.ids == std::vector<int32_t>{'w', 'o', 'r', 'l', 'd'});
  CHECK(result.final.finish_reason() == v1::FINISH_REASON_LENGTH);
  CHECK(result.final.usage().prompt_tokens() == 5);
  // [0, 4) without the one token that was computed.
  CHECK(result.final.usage().cached_tokens() == 3);
  CHECK(result.final.usage().shared_tokens() == 1);  // of these 3
  CHECK(result.final.usage().completion_tokens() == 5);
  CHECK(result.final.timings().total_ms() >= result.final.timings().first_token_ms());
  CHECK(MetricValue(c.metrics, R"(baton_requests_total{code="OK"})") == 1);
  CHECK(MetricValue(c.metrics, "baton_completion_tokens_total") == 5);
}

TEST_CASE("PrefillOnly computes and moves no KV to a decode worker") {
  Cluster c;
  std::thread worker([&] {
    const worker::v1::PrefillJob job = c.prefill->Next().prefill();
    CHECK(job.decode_worker().empty());
    c.prefill->Send(DoneEvent(job.request_id(), Incarnation()));
  });
  grpc::ClientContext context;
  v1::PrefillOnlyRequest request;
  request.mutable_segments()->add_segments()->set_text("hello");
  v1::PrefillOnlyResponse response;
  CHECK(c.stub->PrefillOnly(&context, request, &response).ok());
  worker.join();
  CHECK(response.usage().prompt_tokens() == 5);
  CHECK_FALSE(response.request_id().empty());
}

TEST_CASE("Priority, salt and log probabilities reach the workers and come back") {
  Cluster c;
  v1::GenerateRequest request;
  request.set_request_id("r");
  request.set_priority(-7);
  request.set_cache_salt("tenant");
  request.mutable_segments()->add_segments()->set_text("hello");
  request.mutable_sampling()->set_logprobs(1);
  grpc::ClientContext context;
  const auto reader = c.stub->Generate(&context, request);
  const worker::v1::PrefillJob prefill = c.prefill->Next().prefill();
  CHECK(prefill.spec().priority() == -7);
  CHECK(prefill.spec().cache_salt() == "tenant");
  c.prefill->Send(DoneEvent("r", Incarnation(22)));
  const worker::v1::DecodeJob decode = c.decode->Next().decode();
  CHECK(decode.spec().priority() == -7);
  CHECK(decode.spec().cache_salt() == "tenant");
  CHECK(decode.spec().sampling().logprobs() == 1);
  worker::v1::DecodeEvent event = TokensEvent("r", "x", FinishReason::kLength);
  v1::TokenLogprobs& logprobs = *event.mutable_updates()->mutable_updates(0)->add_logprobs();
  logprobs.set_logprob(-0.5f);
  logprobs.add_top_ids('x');
  logprobs.add_top_logprobs(-0.5f);
  c.decode->Send(event);
  v1::GenerateResponse response;
  REQUIRE(reader->Read(&response));
  REQUIRE(response.logprobs_size() == 1);
  CHECK(response.logprobs(0).logprob() == -0.5f);
  REQUIRE(response.logprobs(0).top_ids_size() == 1);
  CHECK(response.logprobs(0).top_ids(0) == 'x');
  CHECK(response.request_id() == "r");
  while (reader->Read(&response)) continue;
  CHECK(reader->Finish().ok());
}

TEST_CASE("A router cancels a PrefillOnly call at the worker when its client does") {
  Cluster c;
  grpc::ClientContext context;
  std::thread client([&] {
    v1::PrefillOnlyRequest request;
    request.set_request_id("r");
    request.mutable_segments()->add_segments()->set_text("hello");
    v1::PrefillOnlyResponse response;
    CHECK(c.stub->PrefillOnly(&context, request, &response).error_code() == grpc::StatusCode::CANCELLED);
  });
  CHECK(c.prefill->Next().prefill().request_id() == "r");
  context.TryCancel();
  CHECK(c.prefill->Next().cancel().request_id() == "r");
  client.join();
}

TEST_CASE("GrpcServer names the reason and the flag when its address is in use") {
  Cluster c;
  const auto second = GrpcServer::Start(c.node->server().address(), GrpcServer::Audience::kWorkers, {});
  CHECK(absl::IsUnavailable(second.status()));
  CHECK(Message(second.status()) ==
        StrCat("cannot listen on '", c.node->server().address(),
               "': Address already in use; choose another address with --listen HOST:PORT"));
}

TEST_CASE("A router cancels a call at the workers when its client cancels it") {
  Cluster c;
  Call call(c);
  SECTION("while the prefill worker computes") {
    c.prefill->Next();
    call.context.TryCancel();
    CHECK(c.prefill->Next().cancel().request_id() == "r");
    CHECK(c.decode->Next().cancel().request_id() == "r");
  }
  SECTION("while the decode worker decodes") {
    PassPrefill(c);
    c.decode->Send(TokensEvent("r", "x", std::nullopt));
    v1::GenerateResponse response;
    REQUIRE(call.reader->Read(&response));
    CHECK(response.request_id() == "r");
    call.context.TryCancel();
    CHECK(c.decode->Next().cancel().request_id() == "r");
  }
  CHECK(absl::IsCancelled(call.Finish().status));
}

TEST_CASE("A deadline reaches both workers") {
  Cluster c;
  Call warm(c, "warm");  // attaches the workers
  c.prefill->Next();
  // On a slow machine, the deadline may pass before the prefill worker receives the job. Then the
  // next deadline is twice as long.
  for (absl::Duration timeout = absl::Milliseconds(100);; timeout *= 2) {
    const std::string id = absl::StrCat("r", absl::ToInt64Milliseconds(timeout)), next_id = id + "-next";
    Call call(c, id, timeout);
    CHECK(absl::IsDeadlineExceeded(call.Finish().status));
    Call next(c, next_id);  // its job arrives after all earlier jobs
    bool has_job = false, is_cancelled = false;
    const auto read = [&] {
      const worker::v1::PrefillCommand command = c.prefill->Next();
      has_job = has_job || command.prefill().request_id() == id;
      is_cancelled = is_cancelled || command.cancel().request_id() == id;
      return command.prefill().request_id();
    };
    while (read() != next_id) continue;
    next.context.TryCancel();
    if (!has_job) continue;
    while (!is_cancelled) read();
    while (c.decode->Next().cancel().request_id() != id) continue;
    return;
  }
}

TEST_CASE("A router restarts a request without output when its worker comes back") {
  Cluster c;
  Call call(c);
  c.prefill->Next();
  SECTION("when the prefill worker dies") {
    const std::string address = c.prefill->address();
    c.prefill.reset();
    CHECK(c.decode->Next().cancel().request_id() == "r");
    c.prefill.emplace(WorkerRole::kPrefill, 12, address);
  }
  SECTION("when the decode worker dies") {
    const std::string address = c.decode->address();
    c.decode.reset();
    CHECK(c.prefill->Next().cancel().request_id() == "r");
    c.decode.emplace(WorkerRole::kDecode, 22, address);
  }
  PassPrefill(c);
  c.decode->Send(TokensEvent("r", "x", FinishReason::kStop));
  CHECK(call.Finish().status.ok());
}

TEST_CASE("A router fails a request as retryable when no worker can go on with its output") {
  Cluster c({.worker_wait = absl::Milliseconds(100)});
  Call call(c);
  PassPrefill(c);
  c.decode->Send(TokensEvent("r", "x", std::nullopt));
  v1::GenerateResponse response;
  REQUIRE(call.reader->Read(&response));
  c.decode->Die();
  const absl::Status status = call.Finish().status;
  CHECK(absl::IsUnavailable(status));
  CHECK(Message(status).find("no decode worker") != std::string::npos);
  CHECK(RetryAfterOf(call.context) > absl::ZeroDuration());
  CHECK(MetricValue(c.metrics, R"(baton_resumed_requests_total{result="failed"})") == 1);
}

TEST_CASE("A router goes on with an output when its decode worker comes back") {
  Cluster c;
  Call call(c);
  PassPrefill(c);
  c.decode->Send(TokensEvent("r", "x", std::nullopt));
  v1::GenerateResponse response;
  REQUIRE(call.reader->Read(&response));
  const std::string address = c.decode->address();
  c.decode.reset();
  c.decode.emplace(WorkerRole::kDecode, 33, address);
  const auto prefill = c.prefill->Next();
  CHECK(prefill.prefill().spec().tokens().end()[-1] == 'x');
  c.prefill->Send(DoneEvent("r", Incarnation(33)));
  const auto decode = c.decode->Next();
  CHECK(decode.decode().spec().generated() == 1);
  CHECK(decode.decode().spec().tokens().end()[-1] == 'x');
  c.decode->Send(TokensEvent("r", "y", FinishReason::kStop));
  const auto answer = call.Finish();
  CHECK(answer.status.ok());
  CHECK(answer.text == "y");  // Finish reads what follows `response`
  CHECK(MetricValue(c.metrics, R"(baton_resumed_requests_total{result="resumed"})") == 1);
}

TEST_CASE("A router returns a worker's failure to the client unchanged") {
  Cluster c;
  Call call(c);
  PassPrefill(c);
  c.decode->Send(FailedEvent<worker::v1::DecodeEvent>("r", absl::InternalError("the backend broke")));
  const absl::Status status = call.Finish().status;
  CHECK(absl::IsInternal(status));
  CHECK(Message(status) == "the backend broke");
}

TEST_CASE("A router refuses overload with retry_after and refuses an id that is in use") {
  Cluster c({.live_requests = 1, .worker_wait = absl::Hours(1)});
  Call first(c, "first");
  c.prefill->Next();
  Call same(c, "first");
  CHECK(absl::IsAlreadyExists(same.Finish().status));
  CHECK(MetricValue(c.metrics, R"(baton_requests_total{code="ALREADY_EXISTS"})") == 1);
  Call second(c, "second");
  CHECK(absl::IsResourceExhausted(second.Finish().status));
  CHECK(RetryAfterOf(second.context) == absl::Seconds(1));
  CHECK(MetricValue(c.metrics, R"(baton_requests_total{code="RESOURCE_EXHAUSTED"})") == 1);
  // The refused call with the same id has not harmed the first call.
  c.prefill->Send(DoneEvent("first", Incarnation(22)));
  c.decode->Next();
  c.decode->Send(TokensEvent("first", "ok", FinishReason::kStop));
  CHECK(first.Finish().status.ok());
}

TEST_CASE("A router refuses a request after a short wait when it has no workers") {
  Cluster c({.worker_wait = absl::Milliseconds(100)});
  c.prefill->Die();
  c.decode->Die();
  Call call(c);
  const absl::Status status = call.Finish().status;
  CHECK(absl::IsUnavailable(status));
}

TEST_CASE("A router refuses bad requests by field without work for the workers") {
  Cluster c;
  Call call(c, "a b");
  const absl::Status status = call.Finish().status;
  CHECK(absl::IsInvalidArgument(status));
  CHECK(Message(status).starts_with("request_id: "));

  Call huge(c, "r", absl::InfiniteDuration(), std::string(kMaxMessageBytes, 'x'));
  const absl::Status too_large = huge.Finish().status;
  CHECK(absl::IsInvalidArgument(too_large));
  CHECK(Message(too_large).starts_with("message: 83886"));
  CHECK(Message(too_large).ends_with(" bytes, limit 8388608"));
  Call long_prompt(c, "r", absl::InfiniteDuration(), std::string(1 << 20, 'x'));
  CHECK(absl::IsInvalidArgument(long_prompt.Finish().status));
  CHECK(MetricValue(c.metrics, R"(baton_requests_total{code="INVALID_ARGUMENT"})") == 3);
}

TEST_CASE("A router refuses compressed messages") {
  Cluster c;
  grpc::ClientContext context;
  context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
  v1::PrefillOnlyRequest request;
  request.mutable_segments()->add_segments()->set_text(std::string(1 << 20, 'x'));
  v1::PrefillOnlyResponse response;
  CHECK(c.stub->PrefillOnly(&context, request, &response).error_code() == grpc::StatusCode::UNIMPLEMENTED);
}

TEST_CASE("A router refuses text that is not UTF-8 by field") {
  Cluster c;
  // The bytes of segments { segments { text: "\xff" } }.
  std::string response;
  const grpc::Status status =
      RawCall(c.channel, "/baton.v1.Inference/PrefillOnly", std::string("\x12\x05\x0a\x03\x0a\x01\xff", 7), response);
  CHECK(status.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
  CHECK(status.error_message() == "segments.segments[0].text: is not valid UTF-8");
  CHECK(RawCall(c.channel, "/baton.v1.Inference/PrefillOnly", "\xff\xff\xff", response).error_code() ==
        grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_CASE("Reflection lists the services") {
  Cluster c;
  std::string response;
  // The bytes of ServerReflectionRequest { list_services: "*" }.
  REQUIRE(
      RawCall(c.channel, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", "\x3a\x01*", response).ok());
  CHECK(response.find("baton.v1.Inference") != std::string::npos);
  CHECK(response.find("grpc.health.v1.Health") != std::string::npos);
}

TEST_CASE("Health is SERVING while a worker of each role is attached") {
  Cluster c;
  const auto await_health = [&](char expected) {
    Await("the router's health to change", [&] {
      std::string response;
      REQUIRE(RawCall(c.channel, "/grpc.health.v1.Health/Check", "", response).ok());
      return response == std::string{'\x08', expected};
    });
  };
  await_health(1);  // SERVING
  c.decode->Die();
  await_health(2);  // NOT_SERVING
}

TEST_CASE("A router logs why it does not serve when its workers serve another model") {
  const LogCapture log;
  Cluster c;
  c.Serve(ByteModel("other"));
  Await("the reason", [&] {
    return log.Count(
               "not serving: no decode worker for model 'other' is attached; attached workers serve decode of "
               "'bytes', prefill of 'bytes'") == 1;
  });
}

TEST_CASE("A router ends the call of a client that does not read and delays no other") {
  Cluster c;
  Call slow(c, "slow");
  PassPrefill(c, "slow");
  Call quick(c, "quick");
  PassPrefill(c, "quick");
  // The text exceeds the transport's windows and the router's buffer together.
  const std::string text(64 << 10, 'x');
  int rounds = 0;
  for (; c.node->router().live_requests() == 2 && rounds < 400; ++rounds) {
    c.decode->Send(TokensEvent("slow", text, std::nullopt));
    c.decode->Send(TokensEvent("quick", "q", std::nullopt));
    v1::GenerateResponse response;
    REQUIRE(quick.reader->Read(&response));
  }
  CHECK(rounds < 400);
  CHECK(c.decode->Next().cancel().request_id() == "slow");
  CHECK_FALSE(slow.Finish().status.ok());
  c.decode->Send(TokensEvent("quick", "q", FinishReason::kStop));
  CHECK(quick.Finish().status.ok());
}

TEST_CASE("A router ignores late messages about an earlier request with the same id") {
  Cluster c;
  Call first(c);
  PassPrefill(c);
  const RequestId old = c.decode->FullId("r");
  CHECK(c.prefill->FullId("r") == old);
  first.context.TryCancel();
  CHECK(c.decode->Next().cancel().request_id() == "r");
  Call second(c);
  CHECK(c.prefill->Next().prefill().request_id() == "r");
  CHECK(c.prefill->FullId("r") != old);
  c.prefill->Send(FailedEvent<worker::v1::PrefillEvent>(old, absl::CancelledError("cancelled")));
  c.prefill->Send(DoneEvent("r", Incarnation(22)));
  CHECK(c.decode->Next().decode().request_id() == "r");
  c.decode->Send(TokensEvent(old, "old", FinishReason::kStop));
  c.decode->Send(FailedEvent<worker::v1::DecodeEvent>(old, absl::CancelledError("cancelled")));
  c.decode->Send(TokensEvent("r", "new", FinishReason::kStop));
  const Call::Result result = second.Finish();
  CHECK(result.status == absl::OkStatus());
  CHECK(result.text == "new");
}

TEST_CASE("Shutdown ends live requests after the grace and takes no new ones") {
  Cluster c;
  Call call(c);
  c.prefill->Next();
  c.node->Shutdown(absl::Milliseconds(50));
  CHECK_FALSE(call.Finish().status.ok());
  CHECK(c.prefill->Next().cancel().request_id() == "r");
}

TEST_CASE("ListModels and GetServerInfo return models and workers") {
  Cluster c;
  Call call(c);
  c.prefill->Next();
  grpc::ClientContext models_context, info_context;
  v1::ListModelsResponse models;
  REQUIRE(c.stub->ListModels(&models_context, {}, &models).ok());
  REQUIRE(models.models_size() == 1);
  CHECK(models.models(0).name() == "bytes");
  CHECK(models.models(0).ready());
  CHECK(models.models(0).context() == 64);
  v1::GetServerInfoResponse info;
  REQUIRE(c.stub->GetServerInfo(&info_context, {}, &info).ok());
  REQUIRE(info.workers_size() == 2);
  CHECK(info.workers(0).role() == v1::Worker::ROLE_PREFILL);
  CHECK(info.workers(0).attached());
  CHECK(info.workers(1).incarnation() == "0000000000000016");
  CHECK(info.live_requests() == 1);
}

}  // namespace
}  // namespace baton
