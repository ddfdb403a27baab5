// Tests of a router's metrics with vLLM's names. The workers are fakes.
#include "metric_value.h"
#include "router_cluster.h"

namespace baton {
namespace {

struct VllmCluster : Cluster {
  VllmCluster() {
    options.common.vllm_metrics = true;
    Serve(ByteModel("bytes"));
  }
  double Count(const std::string& metric) {
    return MetricValue(metrics, absl::StrCat(metric, "{model_name=\"bytes\"}"));
  }
  double Ended(const std::string& reason) {
    return MetricValue(
        metrics, absl::StrCat("vllm:request_success_total{finished_reason=\"", reason, "\",model_name=\"bytes\"}"));
  }
};

TEST_CASE("vLLM's metrics are absent by default") {
  Cluster c;
  Call call(c);
  PassPrefill(c);
  c.decode->Send(TokensEvent("r", "world", FinishReason::kLength));
  CHECK(call.Finish().status.ok());
  CHECK(c.metrics.Text().find("vllm:") == std::string::npos);
  CHECK(c.metrics.Text().find("baton_prompt_tokens_total 5") != std::string::npos);
}

TEST_CASE("vLLM's metrics exist for each model before the first request") {
  VllmCluster c;
  const std::string text = c.metrics.Text();
  CHECK(text.find("\nvllm:prompt_tokens_total{model_name=\"bytes\"} 0\n") != std::string::npos);
  CHECK(text.find("\nvllm:request_success_total{finished_reason=\"abort\",model_name=\"bytes\"} 0\n") !=
        std::string::npos);
  CHECK(text.find("\nvllm:time_to_first_token_seconds_count{model_name=\"bytes\"} 0\n") != std::string::npos);
  CHECK(text.find("\nbaton_prompt_tokens_total 0\n") != std::string::npos);
}

TEST_CASE("A request counts in vLLM's metrics as in vLLM") {
  VllmCluster c;
  Call call(c);
  PassPrefill(c);  // 3 of 5 tokens are cached, as in DoneEvent of fake_worker.h
  c.decode->Send(TokensEvent("r", "w", std::nullopt));
  c.decode->Send(TokensEvent("r", "orld", FinishReason::kLength));
  CHECK(call.Finish().status.ok());
  CHECK(c.Count("vllm:prompt_tokens_total") == 5);
  CHECK(c.Count("vllm:prompt_tokens_cached_total") == 3);
  CHECK(c.Count("vllm:prefix_cache_queries_total") == 5);
  CHECK(c.Count("vllm:prefix_cache_hits_total") == 3);
  CHECK(c.Count("vllm:generation_tokens_total") == 5);
  CHECK(c.Ended("length") == 1);
  CHECK(c.Ended("stop") == 0);
  CHECK(c.Ended("abort") == 0);
  for (const char* metric : {"vllm:time_to_first_token_seconds", "vllm:inter_token_latency_seconds",
                             "vllm:request_time_per_output_token_seconds", "vllm:e2e_request_latency_seconds",
                             "vllm:request_queue_time_seconds", "vllm:request_prefill_time_seconds",
                             "vllm:request_decode_time_seconds", "vllm:request_inference_time_seconds"}) {
    CHECK(c.Count(absl::StrCat(metric, "_count")) == 1);
    CHECK(c.Count(absl::StrCat(metric, "_sum")) >= 0);
  }
  const auto sum = [&](const char* metric) { return c.Count(absl::StrCat(metric, "_sum")); };
  CHECK(sum("vllm:request_queue_time_seconds") + sum("vllm:request_prefill_time_seconds") ==
        Approx(sum("vllm:time_to_first_token_seconds")).margin(1e-6));
  CHECK(sum("vllm:request_prefill_time_seconds") + sum("vllm:request_decode_time_seconds") ==
        Approx(sum("vllm:request_inference_time_seconds")).margin(1e-6));
  CHECK(sum("vllm:request_queue_time_seconds") + sum("vllm:request_inference_time_seconds") ==
        Approx(sum("vllm:e2e_request_latency_seconds")).margin(1e-6));
  CHECK(sum("vllm:request_time_per_output_token_seconds") ==
        Approx(sum("vllm:request_decode_time_seconds") / 4).margin(1e-6));
  CHECK(sum("vllm:request_prompt_tokens") == 5);
  CHECK(sum("vllm:request_generation_tokens") == 5);
}

TEST_CASE("vLLM's metrics count a stop, count a cancellation as abort and omit failures") {
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
  CHECK(c.Count("vllm:e2e_request_latency_seconds_count") == 1);
  CHECK(c.Count("vllm:prompt_tokens_total") == 15);
}

}  // namespace
}  // namespace baton
