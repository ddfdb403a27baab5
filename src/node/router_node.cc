#include "node/router_node.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <random>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/logging.h"
#include "base/loopback.h"
#include "base/status.h"
#include "base/strings.h"
#include "rpc/tls.h"

namespace baton {
namespace {

constexpr std::chrono::milliseconds kHealthPeriod(50);
// gRPC reads its certificates with the same period.
constexpr std::chrono::seconds kRenewalPeriod(10);
// Time after the grace period for answers to reach their clients.
constexpr absl::Duration kFinalAnswerTimeout = absl::Seconds(1);

std::optional<SessionLimits> SessionLimitsOf(const RouterOptions& options) {
  if (options.max_sessions == "off") return std::nullopt;
  int32_t sessions = 0;  // auto
  if (options.max_sessions != "auto")
    BATON_CHECK(absl::SimpleAtoi(options.max_sessions, &sessions), options.max_sessions);
  return SessionLimits{.sessions = sessions, .waiting_requests = std::max(options.limits.live_requests / 2, 1)};
}

// Parses the names of workers in valid options. The addresses of workers within this process have
// no port.
std::vector<WorkerName> NamesOf(const std::vector<std::string>& texts) {
  std::vector<WorkerName> names;
  for (const std::string& text : texts) {
    names.push_back(ParseWorkerName(text).value_or(WorkerName{WorkerName::Kind::kAddress, text}));
  }
  return names;
}

std::vector<WorkerAddress> AddressesIn(const std::vector<std::string>& texts) {
  std::vector<WorkerAddress> addresses;
  for (const WorkerName& name : NamesOf(texts)) {
    if (name.kind == WorkerName::Kind::kAddress) addresses.push_back(name.name);
  }
  return addresses;
}

std::optional<std::vector<std::string>> VllmModels(const RouterOptions& options, const ServedModels& models) {
  if (!options.common.vllm_metrics) return std::nullopt;
  std::vector<std::string> names;
  for (const ServedModel* model : models.all()) names.push_back(model->name);
  return names;
}

// HTTP status codes with a series of their own, which exists from the start. All other codes count
// as "other".
constexpr std::array kHttpCodes = {200, 204, 400, 401, 403, 404, 405, 408, 409,
                                   413, 415, 417, 429, 431, 499, 500, 503, 504};

std::function<void(int)> CounterOfResponses(Metrics& metrics) {
  LabelCounter responses = metrics.Create<HttpCounts>().responses;
  std::map<int, prometheus::Counter*> counters;
  for (const int code : kHttpCodes) counters[code] = &responses.Of(absl::StrCat(code));
  return [counters = std::move(counters), other = &responses.Of("other")](int code) {
    const auto found = counters.find(code);
    (found == counters.end() ? other : found->second)->Increment();
  };
}

std::function<void(HttpEvent)> CounterOfConnections(Metrics& metrics) {
  return [counts = metrics.Create<HttpCounts>()](HttpEvent event) {
    switch (event) {
      case HttpEvent::kOpened:
        return counts.connections->Increment();
      case HttpEvent::kClosed:
        return counts.connections->Decrement();
      case HttpEvent::kRefused:
        return counts.refused->Increment();
      case HttpEvent::kReplaced:
        return counts.closed->Increment();
    }
  };
}

bool HasNames(const std::vector<std::string>& texts) { return AddressesIn(texts).size() < texts.size(); }

}  // namespace

RouterNode::RouterNode(const RouterOptions& options, std::vector<ServedModel> models, ModelNames names,
                       std::unique_ptr<KeyRing> keys, const ChannelFactory& channels, const Clock& clock,
                       Metrics& metrics)
    : models_(std::move(models), std::move(names)),
      keys_(std::move(keys)),
      callers_(*keys_, clock, metrics),
      router_({.prefill_workers = AddressesIn(options.prefill_workers),
               .decode_workers = AddressesIn(options.decode_workers),
               .limits = options.limits,
               .agents = options.agents,
               .values = options.values,
               .shortest_first =
                   options.schedule == Schedule::kShortestFirst ? std::optional(WorkloadOptions{}) : std::nullopt,
               .sessions = SessionLimitsOf(options),
               .shadow_prefill = options.shadow_prefill,
               .vllm_metrics = VllmModels(options, models_)},
              clock, channels, metrics),
      admission_(router_, models_, clock, callers_, options.default_max_tokens),
      service_(router_, models_, clock, admission_),
      chat_log_(metrics, clock),
      gateway_({router_, models_, clock, metrics, admission_, chat_log_, absl::Now(), options.thinking},
               {options.http, !options.tls.empty(), options.host_names, options.allow_origins}) {}

absl::StatusOr<std::unique_ptr<RouterNode>> RouterNode::Start(const RouterOptions& options,
                                                              std::vector<ServedModel> models,
                                                              const ChannelFactory& channels, const Clock& clock,
                                                              Metrics& metrics) {
  ASSIGN_OR_RETURN(auto keys, KeyRing::Load(options.keys));
  std::vector<std::string> own_names;
  for (const ServedModel& model : models) own_names.push_back(model.name);
  ASSIGN_OR_RETURN(ModelNames names, ModelNames::Make(own_names, options.served_names, options.aliases));
  std::unique_ptr<RouterNode> node(
      new RouterNode(options, std::move(models), std::move(names), std::move(keys), channels, clock, metrics));
  ASSIGN_OR_RETURN(node->server_, GrpcServer::Start(options.listen, GrpcServer::Audience::kClients, {&node->service_},
                                                    ServerCredentials(options.tls)));
  RETURN_IF_ERROR(node->StartHttp(options, metrics));
  RETURN_IF_ERROR(node->StartMembership(options, metrics));
  node->health_.emplace(kHealthPeriod, [node = node.get()] { node->CheckHealth(); });
  return node;
}

absl::Status RouterNode::StartHttp(const RouterOptions& options, Metrics& metrics) {
  const std::string& listen = options.http;
  if (listen.empty() || listen == "off") return absl::OkStatus();
  const bool encrypted = !options.tls.empty();
  if (encrypted) {
    ASSIGN_OR_RETURN(certificate_, TlsCertificate::Load({options.tls.certificate, options.tls.key}));
    renewal_.emplace(kRenewalPeriod, [this] { RenewCertificate(); });
  }
  auto http = HttpServer::Start(
      {.listen = listen,
       .tls = certificate_,
       .max_connections = options.max_connections,
       .asks_for_keys = keys_->asks(),
       .on_event = CounterOfConnections(metrics),
       .on_backlog = [counts = metrics.Create<HttpCounts>()](int waiting) { counts.backlog->Set(waiting); },
       .on_answer = CounterOfResponses(metrics),
       .max_unread_bytes = kMaxUnreadBytes,
       .max_read_pause = kMaxReadPause,
       .max_silence = absl::Seconds(options.stream_silence)},
      gateway_);
  if (!http.ok()) {
    return absl::UnavailableError(
        absl::StrCat("HTTP: ", http.status().message(),
                     "; choose another address with --http HOST:PORT, or disable HTTP with --http off"));
  }
  http_ = *std::move(http);
  spdlog::info("HTTP on {}://{}", encrypted ? "https" : "http", http_->address());
  return absl::OkStatus();
}

void RouterNode::RenewCertificate() try {
  const absl::StatusOr<bool> renewed = certificate_->Renew();
  if (!renewed.ok()) {
    spdlog::error("HTTP: keeping the old certificate: {}", std::string(Message(renewed.status())));
  } else if (*renewed) {
    spdlog::info("HTTP: reloaded the certificate");
  }
  // For example, out of memory. The next period tries again.
} catch (const std::exception& e) {
  spdlog::error("HTTP: keeping the old certificate: {}", e.what());
}

absl::Status RouterNode::StartMembership(const RouterOptions& options, Metrics& metrics) {
  if (!HasNames(options.prefill_workers) && !HasNames(options.decode_workers)) return absl::OkStatus();
  const EtcdOptions& etcd = options.common.etcd;
  if (!std::ranges::all_of(etcd.servers, IsLoopback) && etcd.tls.empty() && options.common.peer.empty()) {
    spdlog::warn(
        "etcd is on another machine, without certificates for etcd (--etcd-ca) and for workers (--peer-ca): an "
        "attacker who writes to etcd or to the network receives prompts");
  }
  ASSIGN_OR_RETURN(
      membership_,
      LiveMembership::Start({NamesOf(options.prefill_workers), NamesOf(options.decode_workers), options.dns_server,
                             std::chrono::milliseconds(std::lround(options.dns_seconds * 1000)), options.dns_timeout,
                             etcd, std::random_device()()},
                            metrics,
                            [this](WorkerRole role, const auto& addresses) { router_.SetWorkers(role, addresses); }));
  return absl::OkStatus();
}

void RouterNode::ReloadKeys() {
  if (!keys_->asks()) return;
  const absl::Status status = keys_->Reload();
  if (status.ok()) return spdlog::info("reloaded the keys");
  spdlog::error("keeping the old keys: {}", std::string(Message(status)));
}

void RouterNode::ReloadWorkers(const absl::StatusOr<RouterOptions>& options) {
  if (!options.ok()) return spdlog::error("keeping the old workers: {}", std::string(Message(options.status())));
  if (membership_ || HasNames(options->prefill_workers) || HasNames(options->decode_workers)) {
    return spdlog::info(
        "keeping the workers: the router follows DNS and etcd without a reload, and other changes of worker names "
        "require a restart");
  }
  router_.SetWorkers(WorkerRole::kPrefill, options->prefill_workers);
  router_.SetWorkers(WorkerRole::kDecode, options->decode_workers);
  spdlog::info("reloaded the workers: {} for prefill, {} for decode", options->prefill_workers.size(),
               options->decode_workers.size());
}

std::function<void()> ReloadOf(const RouterOptions& options, RouterNode& node, ReloadOptions reload_options) {
  if (options.keys.empty() && !reload_options) return nullptr;
  return [&node, reload_options = std::move(reload_options)] {
    node.ReloadKeys();
    if (reload_options) node.ReloadWorkers(reload_options());
  };
}

void RouterNode::CheckHealth() {
  admission_.JoinDecoders();
  std::string obstacle = Obstacle();
  if (obstacle_ == obstacle) return;
  obstacle_ = std::move(obstacle);
  server_->SetServing(obstacle_->empty());
  spdlog::info(obstacle_->empty() ? "serving" : StrCat("not serving: ", *obstacle_));
}

std::string RouterNode::Obstacle() const {
  std::vector<std::string> reasons;
  for (const ServedModel* model : models_.all()) {
    const absl::Status ready = router_.Readiness(model->name);
    if (ready.ok()) return "";
    reasons.emplace_back(Message(ready));
  }
  std::set<std::string> served;
  for (const Router::WorkerView& view : router_.Workers()) {
    if (!view.attached) continue;
    served.insert(
        StrCat(view.role == WorkerRole::kPrefill ? "prefill" : "decode", " of '", view.attached->info.model, "'"));
  }
  reasons.push_back(served.empty() ? "no worker is attached"
                                   : StrCat("attached workers serve ", absl::StrJoin(served, ", ")));
  return absl::StrJoin(reasons, "; ");
}

void RouterNode::Shutdown(absl::Duration grace) {
  if (!health_) return;
  health_.reset();
  renewal_.reset();
  membership_.reset();
  server_->SetServing(false);
  // Drained first, so that clients see their connection close after a refusal.
  if (http_) http_->Drain();
  admission_.Drain();
  const absl::Time until = SteadyClock().Now() + grace;
  server_->Stop(grace);
  if (!http_) return;
  if (!http_->AwaitIdle(until - SteadyClock().Now())) {
    // Requests that still wait then receive an error.
    router_.EndAll();
    http_->AwaitIdle(kFinalAnswerTimeout);
  }
  http_->Stop();
}

}  // namespace baton
