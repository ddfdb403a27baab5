// An etcd on loopback with the keys that a test sets. A test chooses how it answers. Its leases
// have one second, so registrations renew them often. Leases last until a test or their holder ends
// them.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "catch.h"
#include "etcd.grpc.pb.h"
#include "rpc/grpc_server.h"

namespace baton {

class FakeEtcd {
 public:
  enum class Answers { kTruly, kDenied, kNever };

  explicit FakeEtcd(const std::string& listen = "127.0.0.1:0") {
    auto started = GrpcServer::Start(listen, GrpcServer::Audience::kWorkers, {&keys_, &watch_, &lease_});
    REQUIRE(started.ok());
    server_ = *std::move(started);
  }
  ~FakeEtcd() {
    stopping_ = true;
    server_->Stop(absl::ZeroDuration());
  }

  const std::string& address() const { return server_->address(); }
  void Put(const std::string& key, const std::string& value) { Put({{key, value}}); }
  // Puts all entries in one step.
  void Put(const std::map<std::string, std::string>& entries) {
    const std::lock_guard lock(mutex_);
    ++revision_;
    for (const auto& [key, value] : entries) Set(key, value, 0);
  }
  void Erase(const std::string& key) {
    const std::lock_guard lock(mutex_);
    values_.erase(key);
    changed_at_[key] = ++revision_;
    changed_.notify_all();
  }
  // Chooses the answers to later calls.
  void Answer(Answers answers) { answers_ = answers; }
  // Chooses whether later watches are denied.
  void DenyWatches(bool deny) { deny_watches_ = deny; }
  // Ends all watches, because their changes have been compacted.
  void Compact() {
    const std::lock_guard lock(mutex_);
    compacted_ = ++revision_;
    changed_.notify_all();
  }
  // Drops all leases and all keys.
  void LoseLeases() {
    const std::lock_guard lock(mutex_);
    leases_.clear();
    ++revision_;
    for (const auto& [key, value] : values_) changed_at_[key] = revision_;
    values_.clear();
    changed_.notify_all();
  }
  // Number of reads of keys, answered or not.
  int reads() const { return reads_; }
  // Number of calls that put a key.
  int puts() const { return puts_; }
  int refused() const { return refused_; }
  // Number of renewals that the caller ended without an answer.
  int cancelled_renewals() const { return cancelled_renewals_; }
  std::map<std::string, std::string> values() {
    const std::lock_guard lock(mutex_);
    return values_;
  }

 private:
  // Sets a key at revision_. REQUIRES: the lock is held.
  void Set(const std::string& key, const std::string& value, int64_t lease) {
    values_[key] = value;
    held_by_[key] = lease;
    changed_at_[key] = revision_;
    changed_.notify_all();
  }
  // Whether a key in [begin, end) changed at revision `start` or later.
  bool Changed(const etcdserverpb::WatchCreateRequest& watch) const {
    const auto end = changed_at_.lower_bound(watch.range_end());
    return std::any_of(changed_at_.lower_bound(watch.key()), end,
                       [&](const auto& entry) { return entry.second >= watch.start_revision(); });
  }
  template <class Handle>
  grpc::Status Serve(const grpc::ServerContext* context, Handle handle) {
    if (answers_ == Answers::kDenied) {
      ++refused_;
      return {grpc::StatusCode::PERMISSION_DENIED, "etcdserver: permission denied"};
    }
    std::unique_lock lock(mutex_);
    while (answers_ == Answers::kNever && !Over(context)) changed_.wait_for(lock, std::chrono::milliseconds(5));
    return handle(lock);
  }
  bool Over(const grpc::ServerContext* context) const { return stopping_ || context->IsCancelled(); }

  struct Keys final : etcdserverpb::KV::Service {
    explicit Keys(FakeEtcd& etcd) : fake(etcd) {}
    grpc::Status Range(grpc::ServerContext* context, const etcdserverpb::RangeRequest* request,
                       etcdserverpb::RangeResponse* response) override {
      ++fake.reads_;
      return fake.Serve(context, [&](auto&) {
        response->mutable_header()->set_revision(fake.revision_);
        for (auto at = fake.values_.lower_bound(request->key()); at != fake.values_.end(); ++at) {
          if (request->range_end().empty() ? at->first != request->key() : at->first >= request->range_end()) break;
          if (request->limit() > 0 && response->kvs_size() == request->limit()) {
            response->set_more(true);
            break;
          }
          auto& entry = *response->add_kvs();
          entry.set_key(at->first);
          entry.set_value(at->second);
          entry.set_lease(fake.held_by_[at->first]);
        }
        return grpc::Status::OK;
      });
    }
    grpc::Status Put(grpc::ServerContext* context, const etcdserverpb::PutRequest* request,
                     etcdserverpb::PutResponse*) override {
      return fake.Serve(context, [&](auto&) {
        ++fake.puts_;
        ++fake.revision_;
        fake.Set(request->key(), request->value(), request->lease());
        return grpc::Status::OK;
      });
    }
    FakeEtcd& fake;
  };

  struct Watching final : etcdserverpb::Watch::Service {
    using Stream = grpc::ServerReaderWriter<etcdserverpb::WatchResponse, etcdserverpb::WatchRequest>;
    explicit Watching(FakeEtcd& etcd) : fake(etcd) {}
    grpc::Status Watch(grpc::ServerContext* context, Stream* stream) override {
      if (fake.deny_watches_) return {grpc::StatusCode::PERMISSION_DENIED, "etcdserver: permission denied"};
      return fake.Serve(context, [&](std::unique_lock<std::mutex>& lock) {
        etcdserverpb::WatchRequest request;
        lock.unlock();
        if (!stream->Read(&request)) return grpc::Status::OK;
        const auto& watch = request.create_request();
        etcdserverpb::WatchResponse created;
        lock.lock();
        created.mutable_header()->set_revision(fake.revision_);
        lock.unlock();
        stream->Write(created);
        lock.lock();
        while (fake.compacted_ < watch.start_revision() && !fake.Changed(watch) && !fake.Over(context)) {
          fake.changed_.wait_for(lock, std::chrono::milliseconds(5));
        }
        etcdserverpb::WatchResponse response;
        if (watch.start_revision() <= fake.compacted_) {
          response.set_canceled(true);
          response.set_cancel_reason("etcdserver: mvcc: required revision has been compacted");
        } else {
          response.add_events();
        }
        lock.unlock();
        stream->Write(response);
        stream->Read(&request);  // the stream stays open
        return grpc::Status::OK;
      });
    }
    FakeEtcd& fake;
  };

  struct Leases final : etcdserverpb::Lease::Service {
    using Stream = grpc::ServerReaderWriter<etcdserverpb::LeaseKeepAliveResponse, etcdserverpb::LeaseKeepAliveRequest>;
    explicit Leases(FakeEtcd& etcd) : fake(etcd) {}
    grpc::Status LeaseGrant(grpc::ServerContext* context, const etcdserverpb::LeaseGrantRequest*,
                            etcdserverpb::LeaseGrantResponse* response) override {
      return fake.Serve(context, [&](auto&) {
        response->set_id(++fake.last_lease_);
        response->set_ttl(1);
        fake.leases_.insert(response->id());
        return grpc::Status::OK;
      });
    }
    grpc::Status LeaseRevoke(grpc::ServerContext* context, const etcdserverpb::LeaseRevokeRequest* request,
                             etcdserverpb::LeaseRevokeResponse*) override {
      return fake.Serve(context, [&](auto&) {
        ++fake.revision_;
        std::erase_if(fake.values_, [&](const auto& entry) {
          const bool gone = fake.held_by_[entry.first] == request->id();
          if (gone) fake.changed_at_[entry.first] = fake.revision_;
          return gone;
        });
        fake.changed_.notify_all();
        return fake.leases_.erase(request->id()) > 0 ? grpc::Status::OK
                                                     : grpc::Status(grpc::StatusCode::NOT_FOUND, "no such lease");
      });
    }
    grpc::Status LeaseKeepAlive(grpc::ServerContext* context, Stream* stream) override {
      return fake.Serve(context, [&](std::unique_lock<std::mutex>& lock) {
        etcdserverpb::LeaseKeepAliveRequest request;
        lock.unlock();
        while (stream->Read(&request)) {
          lock.lock();
          etcdserverpb::LeaseKeepAliveResponse response;
          response.set_ttl(fake.leases_.contains(request.id()) ? 1 : 0);
          lock.unlock();
          stream->Write(response);
        }
        if (context->IsCancelled()) ++fake.cancelled_renewals_;
        return grpc::Status::OK;
      });
    }
    FakeEtcd& fake;
  };

  std::atomic<bool> stopping_ = false, deny_watches_ = false;
  std::atomic<Answers> answers_ = Answers::kTruly;
  std::atomic<int> reads_ = 0, puts_ = 0, refused_ = 0, cancelled_renewals_ = 0;
  std::mutex mutex_;  // guards the following members
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
  std::map<std::string, int64_t> held_by_;     // the lease of a key; 0: none
  std::map<std::string, int64_t> changed_at_;  // the revision of a key's last change
  std::set<int64_t> leases_;
  int64_t last_lease_ = 0, revision_ = 1, compacted_ = 0;
  Keys keys_{*this};
  Watching watch_{*this};
  Leases lease_{*this};
  std::unique_ptr<GrpcServer> server_;
};

}  // namespace baton
