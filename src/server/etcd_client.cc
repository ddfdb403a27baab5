#include "server/etcd_client.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "etcd.grpc.pb.h"
#include "server/tls.h"

namespace baton {
namespace {

namespace etcd = etcdserverpb;

constexpr std::chrono::seconds kLongestWatch(60);
constexpr size_t kLongestReason = 300;  // bytes of what a server says

// As for workers, but for pings: etcd hangs up on who pings while it asks for nothing.
grpc::ChannelArguments Arguments() {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxWireBytes);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 10'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a new channel dials at once
  return arguments;
}

// The first key after those that begin with `prefix`.
std::string EndOf(std::string prefix) {
  BATON_CHECK(prefix.ends_with('/'), prefix);
  prefix.back() = '/' + 1;
  return prefix;
}

}  // namespace

EtcdClient::EtcdClient(const EtcdOptions& options)
    : servers_(options.servers), dial_(DialBy(options.tls, Arguments())) {
  BATON_CHECK(!servers_.empty(), "etcd has a server");
}

void EtcdClient::Cancel() {
  const std::lock_guard lock(mutex_);
  cancelled_ = true;
  if (running_ != nullptr) running_->TryCancel();
}

absl::Status EtcdClient::Ask(Call call) {
  absl::Status status;
  // Of all that fail the error is always the same server's, so that it does not look new each time.
  for (size_t i = 0; i < servers_.size(); ++i) {
    status = AskOnce(kPatience, call);
    if (status.ok() || absl::IsCancelled(status)) break;
  }
  return status;
}

absl::Status EtcdClient::AskOnce(std::chrono::seconds patience, Call call) {
  const std::string& server = servers_[server_];
  if (channel_ == nullptr) channel_ = dial_(server);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + patience);
  {
    const std::lock_guard lock(mutex_);
    if (cancelled_) return absl::CancelledError("etcd: cancelled");
    running_ = &context;
  }
  const grpc::Status answer = call(channel_, context);
  {
    const std::lock_guard lock(mutex_);
    running_ = nullptr;
    if (cancelled_) return absl::CancelledError("etcd: cancelled");
  }
  if (answer.ok()) return absl::OkStatus();
  channel_.reset();
  server_ = (server_ + 1) % servers_.size();
  std::string reason = absl::CEscape(answer.error_message().substr(0, kLongestReason));
  if (answer.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    reason = absl::StrCat("no answer within ", patience.count(), " s");
  }
  return absl::UnavailableError(absl::StrCat("etcd: ", server, ": ", reason));
}

absl::StatusOr<EtcdClient::Entries> EtcdClient::Read(const std::string& prefix, int64_t most) {
  etcd::RangeRequest request;
  request.set_key(prefix);
  request.set_range_end(EndOf(prefix));
  request.set_limit(most + 1);
  etcd::RangeResponse response;
  RETURN_IF_ERROR(Ask([&](const auto& channel, grpc::ClientContext& context) {
    return etcd::KV::NewStub(channel)->Range(&context, request, &response);
  }));
  if (response.kvs_size() > most || response.more()) {
    return absl::UnavailableError(absl::StrCat("etcd: expected at most ", most, " keys under ", prefix, ", got more"));
  }
  Entries found{.revision = response.header().revision()};
  for (etcd::KeyValue& entry : *response.mutable_kvs()) {
    found.entries.push_back({std::move(*entry.mutable_key()), std::move(*entry.mutable_value())});
  }
  return found;
}

absl::Status EtcdClient::AwaitChange(const std::string& prefix, int64_t revision) {
  etcd::WatchRequest request;
  etcd::WatchCreateRequest& watch = *request.mutable_create_request();
  watch.set_key(prefix);
  watch.set_range_end(EndOf(prefix));
  watch.set_start_revision(revision + 1);
  watch.set_fragment(true);
  return AskOnce(kLongestWatch, [&](const auto& channel, grpc::ClientContext& context) {
    context.AddMetadata("hasleader", "true");  // a server that is cut off from the others says so, rather than nothing
    const auto stream = etcd::Watch::NewStub(channel)->Watch(&context);
    etcd::WatchResponse response;
    bool over = !stream->Write(request), changed = false;
    while (!over && !changed && stream->Read(&response)) {
      over = response.canceled();
      changed = !response.events().empty();
    }
    context.TryCancel();
    const grpc::Status end = stream->Finish();
    if (changed || end.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) return grpc::Status::OK;
    if (over && response.canceled()) return grpc::Status(grpc::StatusCode::UNAVAILABLE, response.cancel_reason());
    return end.ok() ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "it ended the watch") : end;
  });
}

absl::StatusOr<EtcdClient::Lease> EtcdClient::Grant(std::chrono::seconds duration) {
  etcd::LeaseGrantRequest request;
  request.set_ttl(duration.count());
  etcd::LeaseGrantResponse response;
  RETURN_IF_ERROR(Ask([&](const auto& channel, grpc::ClientContext& context) {
    return etcd::Lease::NewStub(channel)->LeaseGrant(&context, request, &response);
  }));
  if (response.id() == 0 || response.ttl() <= 0) return absl::UnavailableError("etcd: it granted no lease");
  return Lease{response.id(), std::chrono::seconds(response.ttl())};
}

absl::StatusOr<bool> EtcdClient::Renew(int64_t lease) {
  etcd::LeaseKeepAliveRequest request;
  request.set_id(lease);
  etcd::LeaseKeepAliveResponse response;
  RETURN_IF_ERROR(Ask([&](const auto& channel, grpc::ClientContext& context) {
    const auto stream = etcd::Lease::NewStub(channel)->LeaseKeepAlive(&context);
    const bool answered = stream->Write(request) && stream->Read(&response);
    context.TryCancel();
    const grpc::Status end = stream->Finish();
    if (answered) return grpc::Status::OK;
    return end.ok() ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "it did not renew the lease") : end;
  }));
  return response.ttl() > 0;
}

absl::Status EtcdClient::Revoke(int64_t lease) {
  etcd::LeaseRevokeRequest request;
  request.set_id(lease);
  etcd::LeaseRevokeResponse response;
  return Ask([&](const auto& channel, grpc::ClientContext& context) {
    const grpc::Status status = etcd::Lease::NewStub(channel)->LeaseRevoke(&context, request, &response);
    return status.error_code() == grpc::StatusCode::NOT_FOUND ? grpc::Status::OK : status;
  });
}

absl::Status EtcdClient::Put(const Entry& entry, int64_t lease) {
  etcd::PutRequest request;
  request.set_key(entry.key);
  request.set_value(entry.value);
  request.set_lease(lease);
  etcd::PutResponse response;
  return Ask([&](const auto& channel, grpc::ClientContext& context) {
    return etcd::KV::NewStub(channel)->Put(&context, request, &response);
  });
}

absl::StatusOr<bool> EtcdClient::Has(const Entry& entry, int64_t lease) {
  etcd::RangeRequest request;
  request.set_key(entry.key);
  etcd::RangeResponse response;
  RETURN_IF_ERROR(Ask([&](const auto& channel, grpc::ClientContext& context) {
    return etcd::KV::NewStub(channel)->Range(&context, request, &response);
  }));
  return response.kvs_size() == 1 && response.kvs(0).value() == entry.value && response.kvs(0).lease() == lease;
}

}  // namespace baton
