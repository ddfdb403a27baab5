// A client for the parts of etcd (v3, gRPC) that membership uses. It reads and watches the keys
// under a prefix, and it holds a key under an etcd lease.
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

// Not thread-safe, except for Cancel. Calls block. Each call asks the servers one after the other
// until one answers, and waits at most `EtcdOptions::timeout` for each server. Errors:
// - UNAVAILABLE if no server answers or an answer is unusable. The message names the last server
//   and quotes its error.
// - CANCELLED if Cancel was called.
class EtcdClient {
 public:
  // Asks the server with index `first` modulo their number first. REQUIRES: `options` names at
  // least one server.
  explicit EtcdClient(const EtcdOptions& options, size_t first = 0);

  struct Entry {
    std::string key;
    std::string value;
  };
  struct Entries {
    std::vector<Entry> entries{};  // sorted by key
    int64_t revision = 0;          // of the store
  };
  // Reads all keys that begin with `prefix`, which ends in a slash. Also returns UNAVAILABLE if
  // there are more than `most` keys.
  absl::StatusOr<Entries> Read(const std::string& prefix, int64_t most);
  // Blocks until a key under `prefix` may have changed after `revision`, but at most for `longest`.
  // Returns at once if the store is behind `revision`, because its data was lost. Asks one server
  // only.
  absl::Status AwaitChange(const std::string& prefix, int64_t revision, std::chrono::milliseconds longest);

  struct Lease {
    int64_t id = 0;
    std::chrono::seconds duration{0};
  };
  absl::StatusOr<Lease> Grant(std::chrono::seconds duration);
  // Returns false if the lease no longer exists.
  absl::StatusOr<bool> Renew(int64_t lease);
  // Blocks for at most `total`, divided equally among the servers.
  absl::Status Revoke(int64_t lease, std::chrono::milliseconds total);
  absl::Status Put(const Entry& entry, int64_t lease);
  struct Held {
    std::string value;
    int64_t lease = 0;  // 0 if the key has no lease
  };
  // Reads one key. Returns nullopt if the key does not exist.
  absl::StatusOr<std::optional<Held>> Find(const std::string& key);

  // Index of the server that answered last.
  size_t answered() const { return answered_; }
  // Ends the running call, and fails all later calls. Thread-safe.
  void Cancel();

 private:
  using Call = absl::FunctionRef<grpc::Status(std::shared_ptr<grpc::Channel> channel, grpc::ClientContext& context)>;
  absl::Status Ask(Call call) { return Ask(timeout_, call); }
  absl::Status Ask(std::chrono::milliseconds timeout, Call call);
  absl::Status AskOnce(std::chrono::milliseconds timeout, Call call);
  // Returns UNAVAILABLE with the name of the server that answered last.
  absl::Status UnusableAnswer(absl::string_view why) const;

  const std::vector<std::string> servers_;
  const std::chrono::milliseconds timeout_;
  const ChannelFactory dial_;
  size_t server_;    // index of the server to ask next
  size_t answered_;  // index of the server that answered last
  std::shared_ptr<grpc::Channel> channel_;
  std::mutex mutex_;  // guards the members below
  bool cancelled_ = false;
  grpc::ClientContext* running_ = nullptr;
};

}  // namespace baton
