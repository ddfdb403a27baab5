// What a router counts under vLLM's names; workers are fakes.
#include "router_cluster.h"

namespace baton {
namespace {

struct VllmCluster : Cluster {
  VllmCluster() {
    options.common.vllm_metrics = true;
    Serve(ByteModel("bytes"));
  }
  double Count(Metric metric) { return metrics.Counter(metric, {{"model_name", "bytes"}}).Value(); }
  double Ended(const std::string& reason) {
    return metrics.Counter(Metric::kVllmRequests, {{"model_name", "bytes"}, {"finished_reason", reason}}).Value();
  }
  prometheus::ClientMetric::Histogram Times(Metric metric) {
    return metrics.Histogram(metric, {{"model_name", "bytes"}}).Collect().histogram;
  }
};

TEST_CASE("vLLM's names are not there unless they are asked for") {
  Cluster c;
  Call call(c);
  PassPrefill(c);
  c.decode->Send(TokensEvent("r", "world", FinishReason::kLength));
  CHECK(call.Finish().status.ok());
  CHECK(c.metrics.Text().find("vllm:") == std::string::npos);
  CHECK(c.metrics.Text().find("baton_prompt_tokens_total 5") != std::string::npos);
}

TEST_CASE("vLLM's names are there before the first request, for each model, beside Baton's own") {
  VllmCluster c;
  const std::string text = c.metrics.Text();
  CHECK(text.find("\nvllm:prompt_tokens_total{model_name=\"bytes\"} 0\n") != std::string::npos);
  CHECK(text.find("\nvllm:request_success_total{finished_reason=\"abort\",model_name=\"bytes\"} 0\n") !=
        std::string::npos);
  CHECK(text.find("\nvllm:time_to_first_token_seconds_count{model_name=\"bytes\"} 0\n") != std::string::npos);
  CHECK(text.find("\nbaton_prompt_tokens_total 0\n") != std::string::npos);
}

TEST_CASE("a request counts under vLLM's names as vLLM would count it") {
  VllmCluster c;
  Call call(c);
  PassPrefill(c);  // 3 of 5 tokens are cached, as FakeWorker's DoneEvent has it
  c.decode->Send(TokensEvent("r", "w", std::nullopt));
  c.decode->Send(TokensEvent("r", "orld", FinishReason::kLength));
  CHECK(call.Finish().status.ok());
  CHECK(c.Count(Metric::kVllmPromptTokens) == 5);
  CHECK(c.Count(Metric::kVllmCachedTokens) == 3);
  CHECK(c.Count(Metric::kVllmPrefixQueries) == 5);
  CHECK(c.Count(Metric::kVllmPrefixHits) == 3);
  CHECK(c.Count(Metric::kVllmGenerationTokens) == 5);
  CHECK(c.Ended("length") == 1);
  CHECK(c.Ended("stop") == 0);
  CHECK(c.Ended("abort") == 0);
  for (const Metric metric : {Metric::kVllmFirstTokenSeconds, Metric::kVllmInterTokenSeconds,
                              Metric::kVllmPerTokenSeconds, Metric::kVllmRequestSeconds, Metric::kVllmQueueSeconds,
                              Metric::kVllmPrefillSeconds, Metric::kVllmDecodeSeconds, Metric::kVllmInferenceSeconds}) {
    CHECK(c.Times(metric).sample_count == 1);
    CHECK(c.Times(metric).sample_sum >= 0);
  }
  const auto sum = [&](Metric metric) { return c.Times(metric).sample_sum; };
  CHECK(sum(Metric::kVllmQueueSeconds) + sum(Metric::kVllmPrefillSeconds) ==
        Approx(sum(Metric::kVllmFirstTokenSeconds)).margin(1e-6));
  CHECK(sum(Metric::kVllmPrefillSeconds) + sum(Metric::kVllmDecodeSeconds) ==
        Approx(sum(Metric::kVllmInferenceSeconds)).margin(1e-6));
  CHECK(sum(Metric::kVllmQueueSeconds) + sum(Metric::kVllmInferenceSeconds) ==
        Approx(sum(Metric::kVllmRequestSeconds)).margin(1e-6));
  CHECK(sum(Metric::kVllmPerTokenSeconds) == Approx(sum(Metric::kVllmDecodeSeconds) / 4).margin(1e-6));
  CHECK(sum(Metric::kVllmPromptLength) == 5);
  CHECK(sum(Metric::kVllmOutputLength) == 5);
}

TEST_CASE("under vLLM's names a stop is a stop, a cancelled request an abort, and one that fails no success") {
  VllmCluster c;
  Call stopped(c, "a");
  PassPrefill(c, "a");
  c.decode->Send(TokensEvent("a", "ok", FinishReason::kStop));
  CHECK(stopped.Finish().status.ok());

  Call cancelled(c, "b");
  PassPrefill(c, "b");
  cancelled.context.TryCancel();
  CHECK(cancelled.Finish().status.code() == absl::StatusCode::kCancelled);
  REQUIRE(c.decode->Next().cancel().request_id() == "b");

  Call failed(c, "c");
  PassPrefill(c, "c");
  c.decode->Send(FailedEvent<worker::v1::DecodeEvent>("c", absl::InternalError("broken")));
  CHECK(failed.Finish().status.code() == absl::StatusCode::kInternal);

  CHECK(c.Ended("stop") == 1);
  CHECK(c.Ended("abort") == 1);
  CHECK(c.Ended("length") == 0);
  CHECK(c.Times(Metric::kVllmRequestSeconds).sample_count == 1);
  CHECK(c.Count(Metric::kVllmPromptTokens) == 15);
}

}  // namespace
}  // namespace baton
