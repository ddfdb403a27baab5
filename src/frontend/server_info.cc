#include "frontend/server_info.h"

#include "absl/strings/str_format.h"
#include "base/version.h"

namespace baton {
namespace {

void Fill(const Router::WorkerView& view, v1::Worker& out) {
  out.set_role(view.role == WorkerRole::kPrefill ? v1::Worker::ROLE_PREFILL : v1::Worker::ROLE_DECODE);
  out.set_address(view.link);
  out.set_attached(view.attached.has_value());
  out.set_problem(view.problem);
  if (!view.attached) return;
  const WorkerInfo& info = view.attached->info;
  const WorkerLoad& load = view.attached->load;
  out.set_model(info.model);
  out.set_numerics_id(info.numerics_id);
  out.set_incarnation(absl::StrFormat("%016x", info.incarnation.value()));
  out.set_running_requests(load.running_requests);
  out.set_queued_requests(load.queued_requests);
  out.set_queued_tokens(load.queued_tokens);
  out.set_blocks_total(info.blocks_total);
  out.set_blocks_free(load.blocks_free);
  out.set_blocks_cached(load.blocks_cached);
  out.set_blocks_quarantined(load.blocks_quarantined);
  out.set_draining(load.draining);
  out.set_health(std::string(NameOf(view.attached->health)));
  out.set_health_reason(view.attached->health_reason);
  out.set_drained(view.attached->drained);
}

// If there are tenants, a session's name is its salt, a line feed and its id
// (router/dispatcher.cc).
void Fill(const SessionGate::View& view, bool has_tenants, v1::Session& out) {
  const auto& [tenant, name] = view.key;
  out.set_session_id(has_tenants ? name.substr(name.rfind('\n') + 1) : name);
  if (has_tenants) out.set_tenant(tenant);
  out.set_active(view.active);
  out.set_running_requests(view.running);
  out.set_waiting_requests(view.waiting);
  out.set_kv_blocks(view.blocks);
}

}  // namespace

v1::GetServerInfoResponse ServerInfo(const Router& router, const Callers& callers) {
  v1::GetServerInfoResponse info;
  info.set_version(kVersion);
  for (const Router::WorkerView& view : router.Workers()) Fill(view, *info.add_workers());
  info.set_live_requests(router.live_requests());
  info.set_waiting_requests(router.waiting_requests());
  const RouterMetrics::Tokens tokens = router.metrics().tokens();
  info.set_prompt_tokens(tokens.prompt);
  info.set_cached_tokens(tokens.cached);
  info.set_completion_tokens(tokens.completion);
  const Router::Sessions sessions = router.sessions();
  info.set_active_sessions(sessions.counts.active);
  info.set_waiting_sessions(sessions.counts.waiting);
  info.set_session_limit(sessions.limit);
  for (const SessionGate::View& view : sessions.latest) Fill(view, callers.asks(), *info.add_sessions());
  return info;
}

}  // namespace baton
