#include "membership/etcd_client.h"

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "etcd.grpc.pb.h"
#include "rpc/grpc_deadline.h"
#include "rpc/tls.h"

namespace baton {
namespace {

namespace etcd = etcdserverpb;

// Upper bound on the part of a server's error message that Baton quotes, in bytes.
constexpr size_t kMaxReasonBytes = 300;

// Returns the channel arguments for etcd. They differ from those for workers in pings: etcd closes
// a connection that sends pings while no call runs.
grpc::ChannelArguments Arguments() {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxWireBytes);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 10'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // A new channel dials at once.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return arguments;
}

// Returns the first key after all keys that begin with `prefix`.
std::string RangeEnd(std::string prefix) {
  BATON_CHECK(prefix.ends_with('/'), prefix);
  prefix.back() = '/' + 1;
  return prefix;
}

// Waits for the one running operation of a call. Cancels the call at a fixed time.
struct CallWaiter {
  grpc::CompletionQueue& queue;
  grpc::ClientContext& context;
  const gpr_timespec until;

  // Returns false if the operation failed.
  bool Done() const {
    void* tag = nullptr;
    bool done = false;
    if (queue.AsyncNext(&tag, &done, until) == grpc::CompletionQueue::TIMEOUT) {
      context.TryCancel();
      queue.Next(&tag, &done);
    }
    return done;
  }
};

}  // namespace

EtcdClient::EtcdClient(const EtcdOptions& options, size_t first)
    : servers_(options.servers), timeout_(options.timeout), dial_(DialBy(options.tls, Arguments())) {
  BATON_CHECK(!servers_.empty(), "etcd has a server");
  server_ = answered_ = first % servers_.size();
}

void EtcdClient::Cancel() {
  const std::lock_guard lock(mutex_);
  cancelled_ = true;
  if (running_ != nullptr) running_->TryCancel();
}

absl::Status EtcdClient::Ask(std::chrono::milliseconds timeout, Call call) {
  absl::Status status;
  // The loop ends with the same server each time, so repeated failures give the same error. Callers
  // log only errors that differ from the previous one.
  for (size_t i = 0; i < servers_.size(); ++i) {
    status = AskOnce(timeout, call);
    if (status.ok() || absl::IsCancelled(status)) break;
  }
  return status;
}

absl::Status EtcdClient::AskOnce(std::chrono::milliseconds timeout, Call call) {
  const std::string& server = servers_[server_];
  if (channel_ == nullptr) channel_ = dial_(server);
  grpc::ClientContext context;
  context.set_deadline(DeadlineAfter(absl::FromChrono(timeout)));
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
  if (answer.ok()) {
    answered_ = server_;
    return absl::OkStatus();
  }
  channel_.reset();
  server_ = (server_ + 1) % servers_.size();
  std::string reason = absl::CEscape(answer.error_message().substr(0, kMaxReasonBytes));
  if (answer.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    reason = absl::StrCat("no answer within ", static_cast<double>(timeout.count()) / 1000, " s");
    // The server did answer, with an error.
  } else if (answer.error_code() != grpc::StatusCode::UNAVAILABLE) {
    reason = absl::StrCat(absl::StatusCodeToString(static_cast<absl::StatusCode>(answer.error_code())), ": ", reason);
  }
  return absl::UnavailableError(absl::StrCat("etcd: ", server, ": ", reason));
}

absl::Status EtcdClient::UnusableAnswer(absl::string_view why) const {
  return absl::UnavailableError(absl::StrCat("etcd: ", servers_[answered_], ": ", why));
}

absl::StatusOr<EtcdClient::Entries> EtcdClient::Read(const std::string& prefix, int64_t most) {
  etcd::RangeRequest request;
  request.set_key(prefix);
  request.set_range_end(RangeEnd(prefix));
  request.set_limit(most + 1);
  etcd::RangeResponse response;
  RETURN_IF_ERROR(Ask([&](const auto& channel, grpc::ClientContext& context) {
    return etcd::KV::NewStub(channel)->Range(&context, request, &response);
  }));
  if (response.kvs_size() > most || response.more()) {
    return UnusableAnswer(absl::StrCat("expected at most ", most, " keys under ", prefix, ", got more"));
  }
  Entries found{.revision = response.header().revision()};
  for (etcd::KeyValue& entry : *response.mutable_kvs()) {
    found.entries.push_back({std::move(*entry.mutable_key()), std::move(*entry.mutable_value())});
  }
  return found;
}

absl::Status EtcdClient::AwaitChange(const std::string& prefix, int64_t revision, std::chrono::milliseconds longest) {
  etcd::WatchRequest request;
  etcd::WatchCreateRequest& watch = *request.mutable_create_request();
  watch.set_key(prefix);
  watch.set_range_end(RangeEnd(prefix));
  watch.set_start_revision(revision + 1);
  watch.set_fragment(true);
  // The deadline is later than `waiter.until`, so the client cancels the watch before its deadline
  // passes. etcd counts a missed deadline as its own failure, but not a cancelled Watch.
  return AskOnce(longest + timeout_, [&](const auto& channel, grpc::ClientContext& context) {
    // With this header, a server without a leader reports an error instead of sending nothing.
    context.AddMetadata("hasleader", "true");
    grpc::CompletionQueue queue;
    const CallWaiter waiter{queue, context, DeadlineAfter(absl::FromChrono(longest))};
    const auto stream = etcd::Watch::NewStub(channel)->AsyncWatch(&context, &queue, nullptr);
    etcd::WatchResponse response;
    bool over = !waiter.Done(), changed = false;
    if (!over) {
      stream->Write(request, nullptr);
      over = !waiter.Done();
    }
    while (!over && !changed) {
      stream->Read(&response, nullptr);
      over = !waiter.Done() || response.canceled();
      // A store that is behind `revision` has lost its data. It would report nothing until it
      // reaches `revision` again.
      changed = !over && (!response.events().empty() || response.header().revision() < revision);
    }
    const bool quiet = !changed && TimeUntil(waiter.until) <= absl::ZeroDuration();
    // Otherwise the stream ended by itself, and Finish returns the reason.
    if (changed || quiet || response.canceled()) context.TryCancel();
    grpc::Status end;
    stream->Finish(&end, nullptr);
    waiter.Done();
    if (changed || quiet) return grpc::Status::OK;
    if (response.canceled()) return grpc::Status(grpc::StatusCode::UNAVAILABLE, response.cancel_reason());
    return end.ok() ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "the server ended the watch") : end;
  });
}

absl::StatusOr<EtcdClient::Lease> EtcdClient::Grant(std::chrono::seconds duration) {
  etcd::LeaseGrantRequest request;
  request.set_ttl(duration.count());
  etcd::LeaseGrantResponse response;
  RETURN_IF_ERROR(Ask([&](const auto& channel, grpc::ClientContext& context) {
    return etcd::Lease::NewStub(channel)->LeaseGrant(&context, request, &response);
  }));
  if (response.id() == 0 || response.ttl() <= 0) return UnusableAnswer("the server granted no lease");
  return Lease{response.id(), std::chrono::seconds(response.ttl())};
}

absl::StatusOr<bool> EtcdClient::Renew(int64_t lease) {
  etcd::LeaseKeepAliveRequest request;
  request.set_id(lease);
  etcd::LeaseKeepAliveResponse response;
  RETURN_IF_ERROR(Ask([&](const auto& channel, grpc::ClientContext& context) {
    const auto stream = etcd::Lease::NewStub(channel)->LeaseKeepAlive(&context);
    const bool answered = stream->Write(request) && stream->WritesDone() && stream->Read(&response);
    etcd::LeaseKeepAliveResponse more;
    // Read to the end of the stream. etcd counts a cancelled LeaseKeepAlive, unlike a cancelled
    // Watch, as its own failure.
    while (stream->Read(&more)) continue;
    const grpc::Status end = stream->Finish();
    if (answered) return grpc::Status::OK;
    return end.ok() ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "the server did not renew the lease") : end;
  }));
  return response.ttl() > 0;
}

absl::Status EtcdClient::Revoke(int64_t lease, std::chrono::milliseconds total) {
  etcd::LeaseRevokeRequest request;
  request.set_id(lease);
  etcd::LeaseRevokeResponse response;
  return Ask(total / static_cast<int64_t>(servers_.size()), [&](const auto& channel, grpc::ClientContext& context) {
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

absl::StatusOr<std::optional<EtcdClient::Held>> EtcdClient::Find(const std::string& key) {
  etcd::RangeRequest request;
  request.set_key(key);
  etcd::RangeResponse response;
  RETURN_IF_ERROR(Ask([&](const auto& channel, grpc::ClientContext& context) {
    return etcd::KV::NewStub(channel)->Range(&context, request, &response);
  }));
  if (response.kvs().empty()) return std::nullopt;
  return Held{response.kvs(0).value(), response.kvs(0).lease()};
}

}  // namespace baton
