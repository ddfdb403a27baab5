// What of etcd (v3, gRPC) membership takes: the keys under a prefix, that they change, and a key under a lease.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "membership/etcd_options.h"
#include "rpc/grpc_server.h"

namespace baton {

// Not thread-safe, but for Cancel. Calls block; each asks the servers in turn until one answers, each of them for the
// options' patience at most. UNAVAILABLE: none did, or what they answer is no use; the last one is named, and what it
// said, if anything. CANCELLED: Cancel was called.
class EtcdClient {
 public:
  // Begins with server `first`, counted round. REQUIRES: at least one server.
  explicit EtcdClient(const EtcdOptions& options, size_t first = 0);

  struct Entry {
    std::string key;
    std::string value;
  };
  struct Entries {
    std::vector<Entry> entries{};  // by key
    int64_t revision = 0;          // of the store
  };
  // The keys that begin with `prefix`, which ends in a slash. UNAVAILABLE also: there are more than `most`.
  absl::StatusOr<Entries> Read(const std::string& prefix, int64_t most);
  // Returns once such keys may have changed since `revision`, at once where the store is new and has not come to it,
  // and after `longest` in any case. Asks one server.
  absl::Status AwaitChange(const std::string& prefix, int64_t revision, std::chrono::milliseconds longest);

  struct Lease {
    int64_t id = 0;
    std::chrono::seconds duration{0};
  };
  absl::StatusOr<Lease> Grant(std::chrono::seconds duration);
  // False: etcd has no such lease any more.
  absl::StatusOr<bool> Renew(int64_t lease);
  // For `total` at most, of which each server has the same share.
  absl::Status Revoke(int64_t lease, std::chrono::milliseconds total);
  absl::Status Put(const Entry& entry, int64_t lease);
  struct Held {
    std::string value;
    int64_t lease = 0;  // 0: none
  };
  // What the key has; none: there is no such key.
  absl::StatusOr<std::optional<Held>> Find(const std::string& key);

  size_t answered() const { return answered_; }  // which server did last
  // From any thread: what runs ends, and what comes fails.
  void Cancel();

 private:
  using Call = absl::FunctionRef<grpc::Status(std::shared_ptr<grpc::Channel> channel, grpc::ClientContext& context)>;
  absl::Status Ask(Call call) { return Ask(patience_, call); }
  absl::Status Ask(std::chrono::milliseconds patience, Call call);
  absl::Status AskOnce(std::chrono::milliseconds patience, Call call);
  absl::Status Useless(absl::string_view why) const;  // what the server answered

  const std::vector<std::string> servers_;
  const std::chrono::milliseconds patience_;
  const ChannelFactory dial_;
  size_t server_;    // which is asked
  size_t answered_;  // which answered last
  std::shared_ptr<grpc::Channel> channel_;
  std::mutex mutex_;  // guards what follows
  bool cancelled_ = false;
  grpc::ClientContext* running_ = nullptr;
};

}  // namespace baton
