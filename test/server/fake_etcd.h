// An etcd on loopback that has what a test puts there, and answers as a test wants.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "catch.h"
#include "etcd.grpc.pb.h"
#include "server/grpc_server.h"

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
  void Put(const std::string& key, const std::string& value) {
    const std::lock_guard lock(mutex_);
    values_[key] = value;
    ++revision_;
    changed_.notify_all();
  }
  // Of what is called from now on.
  void Answer(Answers answers) { answers_ = answers; }
  // Ends all watches: their changes are forgotten.
  void Compact() {
    const std::lock_guard lock(mutex_);
    compacted_ = ++revision_;
    changed_.notify_all();
  }
  // The leases are forgotten, and their keys gone.
  void LoseLeases() {
    const std::lock_guard lock(mutex_);
    leases_.clear();
    values_.clear();
    ++revision_;
  }
  // How often it was asked for keys, answered or not.
  int reads() const { return reads_; }
  std::map<std::string, std::string> values() {
    const std::lock_guard lock(mutex_);
    return values_;
  }

 private:
  template <class Handle>
  grpc::Status Serve(const grpc::ServerContext* context, Handle handle) {
    if (answers_ == Answers::kDenied) return {grpc::StatusCode::PERMISSION_DENIED, "etcdserver: permission denied"};
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
        fake.values_[request->key()] = request->value();
        fake.held_by_[request->key()] = request->lease();
        ++fake.revision_;
        fake.changed_.notify_all();
        return grpc::Status::OK;
      });
    }
    FakeEtcd& fake;
  };

  struct Watching final : etcdserverpb::Watch::Service {
    using Stream = grpc::ServerReaderWriter<etcdserverpb::WatchResponse, etcdserverpb::WatchRequest>;
    explicit Watching(FakeEtcd& etcd) : fake(etcd) {}
    grpc::Status Watch(grpc::ServerContext* context, Stream* stream) override {
      return fake.Serve(context, [&](std::unique_lock<std::mutex>& lock) {
        etcdserverpb::WatchRequest request;
        lock.unlock();
        if (!stream->Read(&request)) return grpc::Status::OK;
        lock.lock();
        const int64_t start = request.create_request().start_revision();
        while (fake.revision_ < start && !fake.Over(context)) {
          fake.changed_.wait_for(lock, std::chrono::milliseconds(5));
        }
        etcdserverpb::WatchResponse response;
        if (start <= fake.compacted_) {
          response.set_canceled(true);
          response.set_cancel_reason("etcdserver: mvcc: required revision has been compacted");
        } else {
          response.add_events();
        }
        lock.unlock();
        stream->Write(response);
        stream->Read(&request);  // it stays open
        return grpc::Status::OK;
      });
    }
    FakeEtcd& fake;
  };

  struct Leases final : etcdserverpb::Lease::Service {
    using Stream = grpc::ServerReaderWriter<etcdserverpb::LeaseKeepAliveResponse, etcdserverpb::LeaseKeepAliveRequest>;
    explicit Leases(FakeEtcd& etcd) : fake(etcd) {}
    grpc::Status LeaseGrant(grpc::ServerContext* context, const etcdserverpb::LeaseGrantRequest* request,
                            etcdserverpb::LeaseGrantResponse* response) override {
      return fake.Serve(context, [&](auto&) {
        response->set_id(++fake.last_lease_);
        response->set_ttl(request->ttl());
        fake.leases_[response->id()] = request->ttl();
        return grpc::Status::OK;
      });
    }
    grpc::Status LeaseRevoke(grpc::ServerContext* context, const etcdserverpb::LeaseRevokeRequest* request,
                             etcdserverpb::LeaseRevokeResponse*) override {
      return fake.Serve(context, [&](auto&) {
        std::erase_if(fake.values_, [&](const auto& entry) { return fake.held_by_[entry.first] == request->id(); });
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
          const auto found = fake.leases_.find(request.id());
          if (found != fake.leases_.end()) response.set_ttl(found->second);
          lock.unlock();
          stream->Write(response);
        }
        return grpc::Status::OK;
      });
    }
    FakeEtcd& fake;
  };

  std::atomic<bool> stopping_ = false;
  std::atomic<Answers> answers_ = Answers::kTruly;
  std::atomic<int> reads_ = 0;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
  std::map<std::string, int64_t> held_by_;  // keys that have a lease
  std::map<int64_t, int64_t> leases_;       // to their seconds
  int64_t last_lease_ = 0, revision_ = 1, compacted_ = 0;
  Keys keys_{*this};
  Watching watch_{*this};
  Leases lease_{*this};
  std::unique_ptr<GrpcServer> server_;
};

}  // namespace baton
