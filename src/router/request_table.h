// The table of a router's live requests. It finds a request by its id or by the workers' name.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "base/ids.h"
#include "router/request.h"

namespace baton {

// Distinguishes a request from earlier requests with the same id.
struct RequestTicket {
  RequestId id;  // a ScopedId
  uint64_t number = 0;
};

// Owns the requests. A pointer to a request is valid until Remove. Remove CHECKs that no state
// machine of the router still has the request. Each event's name is looked up once; all later calls
// use the pointer.
class RequestTable {
 public:
  // `nonce` is random for each router. It is part of the workers' names for requests.
  explicit RequestTable(uint64_t nonce) : nonce_(nonce) {}

  // Adds a request. REQUIRES: no live request has its id.
  Request& Add(std::unique_ptr<Request> request);
  void Remove(Request& request);
  // Returns a number for a ticket. Never 0.
  uint64_t DrawNumber() { return ++numbers_; }

  // Return null if the request has ended.
  Request* Find(const RequestId& id) const;
  Request* Find(const RequestTicket& ticket) const;
  Request* FindByWorkerName(const RequestId& worker_id) const;
  // Draws a new worker_id. FindByWorkerName no longer finds the old one.
  void NameForWorkers(Request& request);
  // As NameForWorkers, unless the name for the next placement was drawn ahead.
  void NameForPlacement(Request& request);
  // Draws a new worker_id for a hedge. The old one becomes former_id, and FindByWorkerName finds
  // both. REQUIRES: the request has no former_id.
  void NameHedge(Request& request);
  // Makes former_id the only name again.
  void KeepFormer(Request& request);
  void ForgetFormer(Request& request);

  // Live requests by id, in no order.
  using Requests = absl::flat_hash_map<std::string_view, std::unique_ptr<Request>>;
  const Requests& live() const { return requests_; }
  int32_t size() const { return static_cast<int32_t>(requests_.size()); }
  void CheckInvariants() const;

 private:
  const uint64_t nonce_;
  uint64_t numbers_ = 0, names_ = 0;
  Requests requests_;  // by the request's id
  absl::flat_hash_map<std::string_view, Request*> by_worker_name_;
};

// Returns the first live upstream request that Workload has. Null if there is none.
const Request* FirstUpstream(const RequestTable& requests, const ClientRequest& request);

}  // namespace baton
