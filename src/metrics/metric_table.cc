#include "metrics/metric_table.h"

#include <exception>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "prometheus/exposer.h"
#include "prometheus/text_serializer.h"

namespace baton {
namespace {

enum class Kind { kCounter, kGauge, kHistogram };

struct Spec {
  Metric metric;
  Kind kind;
  const char* name;
  const char* help;
};

// Every metric there is. Labels are in the help text.
constexpr Spec kTable[] = {
    {Metric::kRequests, Kind::kCounter, "baton_requests_total", "Requests that ended, by gRPC status `code`."},
    {Metric::kQuotaRefusals, Kind::kCounter, "baton_quota_refusals_total",
     "Requests that were refused (RESOURCE_EXHAUSTED) as their `tenant` has used up a quota of its own."},
    {Metric::kFollowers, Kind::kCounter, "baton_followers_total",
     "Prompts prefilled ahead, as calls named what follows them, that ended or were refused, by gRPC status `code`."},
    {Metric::kPromptTokens, Kind::kCounter, "baton_prompt_tokens_total",
     "Prompt tokens of requests that were prefilled."},
    {Metric::kCachedTokens, Kind::kCounter, "baton_cached_tokens_total",
     "Of those, tokens whose KV was found in a cache or shared with a concurrent request."},
    {Metric::kCompletionTokens, Kind::kCounter, "baton_completion_tokens_total",
     "Tokens generated, counted as they come."},
    {Metric::kQueueSeconds, Kind::kHistogram, "baton_queue_seconds",
     "From when a request's prompt was complete until a prefill worker took up what was left of it."},
    {Metric::kPrefillSeconds, Kind::kHistogram, "baton_prefill_seconds",
     "From then until the last prompt token was computed."},
    {Metric::kHandoffSeconds, Kind::kHistogram, "baton_handoff_seconds",
     "From then until the decode worker had all blocks."},
    {Metric::kFirstTokenSeconds, Kind::kHistogram, "baton_first_token_seconds",
     "From when a request's prompt was complete, so without waits for other requests' outputs, until its first token "
     "came to the router."},
    {Metric::kInterTokenSeconds, Kind::kHistogram, "baton_inter_token_seconds",
     "Between updates of one request, divided by the tokens of the later one."},
    {Metric::kRequestSeconds, Kind::kHistogram, "baton_request_seconds", "From a request's arrival until its end."},
    {Metric::kLiveRequests, Kind::kGauge, "baton_live_requests", "Requests of this router that have not ended."},
    {Metric::kWaitingRequests, Kind::kGauge, "baton_waiting_requests", "Of those, requests that no worker has."},
    {Metric::kSessions, Kind::kGauge, "baton_sessions", "Sessions under --max-sessions, by `state` (active, waiting)."},
    {Metric::kSessionLimit, Kind::kGauge, "baton_session_limit",
     "Sessions that may be active now, by --max-sessions; 0: any number."},
    {Metric::kSessionWaitSeconds, Kind::kHistogram, "baton_session_wait_seconds",
     "From a request's arrival to its session's turn, of those that waited for it; --max-sessions."},
    {Metric::kGrowingPrompts, Kind::kGauge, "baton_growing_prompts",
     "Requests whose prompts wait for other requests' outputs."},
    {Metric::kReferences, Kind::kGauge, "baton_references", "References in those prompts; limit 65536."},
    {Metric::kAnnouncedRequests, Kind::kGauge, "baton_announced_requests",
     "Requests that prompts wait for and nobody has submitted; limit 65536."},
    {Metric::kKeptOutputs, Kind::kGauge, "baton_kept_outputs", "Outputs of requests that are over, kept for prompts."},
    {Metric::kKeptOutputBytes, Kind::kGauge, "baton_kept_output_bytes", "Their memory; limit 256 MiB."},
    {Metric::kContexts, Kind::kGauge, "baton_contexts", "Contexts that this router keeps; limit 16384."},
    {Metric::kContextTokens, Kind::kGauge, "baton_context_tokens", "Tokens of those; limit 16777216."},
    {Metric::kAttachedWorkers, Kind::kGauge, "baton_attached_workers", "Workers attached to this router, by `role`."},
    {Metric::kWorkersLost, Kind::kCounter, "baton_workers_lost_total",
     "Attached workers that were lost and had not said that they shut down, by `role`."},
    {Metric::kHttpConnections, Kind::kGauge, "baton_http_connections", "Open HTTP connections; limit 4096."},
    {Metric::kHttpConnectionsShed, Kind::kCounter, "baton_http_connections_shed_total",
     "HTTP connections for which there was no room, by `how`: refused (one that came), closed (an idle one, for it)."},
    {Metric::kHttpResponses, Kind::kCounter, "baton_http_responses_total",
     "Answers to HTTP requests, of refused ones too, by `code` of HTTP; codes that are not listed are \"other\"."},
    {Metric::kWorkerRequests, Kind::kGauge, "baton_worker_requests",
     "Requests on this worker, by `role`, `model` and `state` (running, queued)."},
    {Metric::kWorkerQueuedTokens, Kind::kGauge, "baton_worker_queued_tokens",
     "Prompt tokens that were accepted and wait to be computed, but for the background's, by `role` and `model`."},
    {Metric::kKvBlocks, Kind::kGauge, "baton_kv_blocks",
     "KV blocks, by `role`, `model` and `state` (free, cached, used); the sum is the worker's total."},
    {Metric::kLeasedBlocks, Kind::kGauge, "baton_leased_blocks",
     "Of the KV blocks in use those that leases of contexts hold (prefill)."},
    {Metric::kStagedBytes, Kind::kGauge, "baton_staged_bytes",
     "KV that was evicted and is kept, by `tier` (host, disk; prefill)."},
    {Metric::kStagingFailures, Kind::kCounter, "baton_staging_failures_total",
     "KV blocks that were to be read from disk and could not: their tokens are computed again (prefill)."},
    {Metric::kStagingDiskOff, Kind::kCounter, "baton_staging_disk_off_total",
     "Disks that an I/O error, or 10 s without an answer, turned off until a restart (prefill)."},
    {Metric::kStagingNotRead, Kind::kCounter, "baton_staging_not_read_total",
     "KV blocks that a prompt found on disk where reading them would have taken longer than computing them (prefill)."},
    {Metric::kWorkerJobs, Kind::kCounter, "baton_worker_jobs_total",
     "Jobs that ended on this worker, by `role` and gRPC status `code`."},
    {Metric::kWorkerTokens, Kind::kCounter, "baton_worker_tokens_total",
     "Tokens, by `role` and `source`: computed, cached, shared, host, disk (prefill), generated (decode)."},
    {Metric::kTransferBytes, Kind::kCounter, "baton_transfer_bytes_total",
     "KV bytes pushed to decode workers, of hand-offs that were committed (prefill)."},
    {Metric::kTransferSeconds, Kind::kHistogram, "baton_transfer_seconds",
     "A push: from when blocks, or layers of them, were ready and had room until the decode worker had them "
     "(prefill)."},
    {Metric::kTransferDescriptors, Kind::kCounter, "baton_transfer_descriptors_total",
     "Writes that pushes consist of: neighbouring blocks are one (prefill)."},
    {Metric::kTransferFailures, Kind::kCounter, "baton_transfer_failures_total",
     "Pushes that broke off or were refused (prefill)."},
    {Metric::kHandoffs, Kind::kCounter, "baton_handoffs_total",
     "Hand-offs to decode workers that ended, by gRPC status `code`; those of prompts that still grow, too (prefill)."},
    {Metric::kHandoffBlocks, Kind::kCounter, "baton_handoff_blocks_total",
     "KV blocks of hand-offs that were committed, by `source`: pushed, held (the decode worker had them already; "
     "prefill)."},
    {Metric::kExpiredLeases, Kind::kCounter, "baton_expired_leases_total",
     "Reservations of KV blocks whose lease ran out, by `role`: at a prefill worker, for its decode worker answered no "
     "heartbeat in time; at a decode worker, for its prefill worker sent none, or no router started what was "
     "committed."},
    {Metric::kFailedChecks, Kind::kCounter, "baton_kv_checks_failed_total",
     "Hand-offs that were refused since a KV block was not what was sent, with `--verify-kv` (decode)."},
    {Metric::kRefusedWrites, Kind::kCounter, "baton_kv_writes_refused_total",
     "KV writes and commits that showed no key of a reservation, or left its blocks, with `--guard-kv`; not those that "
     "came when it had just ended (decode)."},
    {Metric::kPreemptions, Kind::kCounter, "baton_preemptions_total",
     "Times that a running request had to leave its KV memory to others, and waited to come back (decode)."},
    {Metric::kDecodeSteps, Kind::kCounter, "baton_decode_steps_total",
     "Steps of a batch, by `begun`: ahead (on a GPU, before the last one was over) or after it (decode)."},
    {Metric::kStageQueueSeconds, Kind::kHistogram, "baton_stage_queue_seconds",
     "Waits of requests, by `stage`: router (from the complete prompt until a prefill worker was given it; told once "
     "it "
     "is prefilled), prefill (from then until a step took up what was left of it), decode (from its start there until "
     "a step took it up)."},
    {Metric::kEtcdUp, Kind::kGauge, "baton_etcd_up",
     "1: etcd answered when it was asked last, by `prefix` of the keys that name workers; 0: it did not, or refused."},
    {Metric::kEtcdLastAnswer, Kind::kGauge, "baton_etcd_last_answer_timestamp_seconds",
     "When etcd answered last, in seconds since 1970, by `prefix`; 0: never."},
    // With --vllm-metrics. By `model_name`; those of workers by `engine` (prefill, decode) as well.
    {Metric::kVllmPromptTokens, Kind::kCounter, "vllm:prompt_tokens_total", "As baton_prompt_tokens_total."},
    {Metric::kVllmCachedTokens, Kind::kCounter, "vllm:prompt_tokens_cached_total", "As baton_cached_tokens_total."},
    {Metric::kVllmPrefixQueries, Kind::kCounter, "vllm:prefix_cache_queries_total", "As baton_prompt_tokens_total."},
    {Metric::kVllmPrefixHits, Kind::kCounter, "vllm:prefix_cache_hits_total", "As baton_cached_tokens_total."},
    {Metric::kVllmGenerationTokens, Kind::kCounter, "vllm:generation_tokens_total",
     "As baton_completion_tokens_total."},
    {Metric::kVllmRequests, Kind::kCounter, "vllm:request_success_total",
     "Requests that ended other than by an error, by `finished_reason` (stop, length, abort)."},
    {Metric::kVllmFirstTokenSeconds, Kind::kHistogram, "vllm:time_to_first_token_seconds",
     "As baton_first_token_seconds."},
    {Metric::kVllmInterTokenSeconds, Kind::kHistogram, "vllm:inter_token_latency_seconds",
     "As baton_inter_token_seconds."},
    {Metric::kVllmPerTokenSeconds, Kind::kHistogram, "vllm:request_time_per_output_token_seconds",
     "Time from the first token to the last, for each but the first."},
    {Metric::kVllmRequestSeconds, Kind::kHistogram, "vllm:e2e_request_latency_seconds",
     "From the complete prompt until the last token."},
    {Metric::kVllmQueueSeconds, Kind::kHistogram, "vllm:request_queue_time_seconds", "As baton_queue_seconds."},
    {Metric::kVllmPrefillSeconds, Kind::kHistogram, "vllm:request_prefill_time_seconds",
     "From then until the first token."},
    {Metric::kVllmDecodeSeconds, Kind::kHistogram, "vllm:request_decode_time_seconds",
     "From then until the last token."},
    {Metric::kVllmInferenceSeconds, Kind::kHistogram, "vllm:request_inference_time_seconds",
     "Both together: all but the queue."},
    {Metric::kVllmPromptLength, Kind::kHistogram, "vllm:request_prompt_tokens", "Prompt tokens of requests."},
    {Metric::kVllmOutputLength, Kind::kHistogram, "vllm:request_generation_tokens", "Their tokens generated."},
    {Metric::kVllmRunning, Kind::kGauge, "vllm:num_requests_running", "Requests that steps compute."},
    {Metric::kVllmWaiting, Kind::kGauge, "vllm:num_requests_waiting", "Requests that wait to be computed."},
    {Metric::kVllmKvUsage, Kind::kGauge, "vllm:kv_cache_usage_perc", "Share of baton_kv_blocks that is used, 0 to 1."},
    {Metric::kVllmPreemptions, Kind::kCounter, "vllm:num_preemptions_total", "As baton_preemptions_total (decode)."},
};

// Seconds: 10 us to 5,000 s, three a decade.
const prometheus::Histogram::BucketBoundaries& Buckets() {
  static const prometheus::Histogram::BucketBoundaries buckets{1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3,
                                                               1e-2, 2e-2, 5e-2, 0.1,  0.2,  0.5,  1,    2,    5,
                                                               10,   20,   50,   100,  200,  500,  1000, 2000, 5000};
  return buckets;
}

// 1 to 1,000,000, three a decade.
const prometheus::Histogram::BucketBoundaries& TokenBuckets() {
  static const prometheus::Histogram::BucketBoundaries buckets{
      1,     2,     5,      10,     20,     50,      100,     200,     500,      1'000,
      2'000, 5'000, 10'000, 20'000, 50'000, 100'000, 200'000, 500'000, 1'000'000};
  return buckets;
}

bool CountsTokens(Metric metric) { return metric == Metric::kVllmPromptLength || metric == Metric::kVllmOutputLength; }

}  // namespace

Metrics::Metrics() : registry_(std::make_shared<prometheus::Registry>()) {
  for (const Spec& spec : kTable) {
    switch (spec.kind) {
      case Kind::kCounter:
        counters_[spec.metric] = &prometheus::BuildCounter().Name(spec.name).Help(spec.help).Register(*registry_);
        break;
      case Kind::kGauge:
        gauges_[spec.metric] = &prometheus::BuildGauge().Name(spec.name).Help(spec.help).Register(*registry_);
        break;
      case Kind::kHistogram:
        histograms_[spec.metric] = &prometheus::BuildHistogram().Name(spec.name).Help(spec.help).Register(*registry_);
    }
  }
}

Metrics::~Metrics() = default;

prometheus::Counter& Metrics::Counter(Metric metric, const prometheus::Labels& labels) {
  return counters_.at(metric)->Add(labels);
}

prometheus::Gauge& Metrics::Gauge(Metric metric, const prometheus::Labels& labels) {
  return gauges_.at(metric)->Add(labels);
}

prometheus::Histogram& Metrics::Histogram(Metric metric, const prometheus::Labels& labels) {
  return histograms_.at(metric)->Add(labels, CountsTokens(metric) ? TokenBuckets() : Buckets());
}

absl::StatusOr<std::string> Metrics::Serve(const std::string& listen) {
  BATON_CHECK(exposer_ == nullptr, "metrics are served once");
  try {
    exposer_ = std::make_unique<prometheus::Exposer>(listen, 1);
    exposer_->RegisterCollectable(registry_);
    return absl::StrCat(listen.substr(0, listen.rfind(':')), ":", exposer_->GetListeningPorts().at(0));
  } catch (const std::exception& error) {
    return absl::UnavailableError(absl::StrCat("metrics: cannot listen on '", listen, "': ", error.what()));
  }
}

std::string Metrics::Text() const { return prometheus::TextSerializer().Serialize(registry_->Collect()); }

void CreateCodes(Metrics& metrics, Metric counter) {
  for (int code = 0; code <= static_cast<int>(absl::StatusCode::kUnauthenticated); ++code) {
    metrics.Counter(counter, {{"code", absl::StatusCodeToString(static_cast<absl::StatusCode>(code))}});
  }
}

}  // namespace baton
