// What of etcd (v3, gRPC) membership takes: the keys under a prefix, that they change, and a key under a lease.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "server/grpc_server.h"
#include "server/options.h"

namespace baton {

// Not thread-safe, but for Cancel. Calls block; each asks the servers in turn until one answers, for kPatience at most
// each. UNAVAILABLE: none did, or what they answer is no use; the last one is named. CANCELLED: Cancel was called.
class EtcdClient {
 public:
  static constexpr std::chrono::seconds kPatience{3};

  // REQUIRES: at least one server.
  explicit EtcdClient(const EtcdOptions& options);

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
  // Returns once such keys may have changed since `revision`. That is after a minute at the latest, so that a server
  // which has fallen silent is noticed.
  absl::Status AwaitChange(const std::string& prefix, int64_t revision);

  struct Lease {
    int64_t id = 0;
    std::chrono::seconds duration{0};
  };
  absl::StatusOr<Lease> Grant(std::chrono::seconds duration);
  // False: etcd has no such lease any more.
  absl::StatusOr<bool> Renew(int64_t lease);
  absl::Status Revoke(int64_t lease);
  absl::Status Put(const Entry& entry, int64_t lease);
  // Whether the entry is there as it was put, under this lease.
  absl::StatusOr<bool> Has(const Entry& entry, int64_t lease);

  // From any thread: what runs ends, and what comes fails.
  void Cancel();

 private:
  using Call = absl::FunctionRef<grpc::Status(std::shared_ptr<grpc::Channel> channel, grpc::ClientContext& context)>;
  absl::Status Ask(Call call);
  absl::Status AskOnce(std::chrono::seconds patience, Call call);

  const std::vector<std::string> servers_;
  const ChannelFactory dial_;
  size_t server_ = 0;  // which is asked
  std::shared_ptr<grpc::Channel> channel_;
  std::mutex mutex_;  // guards what follows
  bool cancelled_ = false;
  grpc::ClientContext* running_ = nullptr;
};

}  // namespace baton
