// The live requests of a router: one object each, by the names that clients and workers use.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "base/ids.h"
#include "router/request.h"

namespace baton {

// Tells a request from others that had its id before.
struct RequestTicket {
  RequestId id;  // ScopedId
  uint64_t number = 0;
};

// Owns the requests. A pointer to a request is valid until Remove, which CHECKs that no part of the
// router still has the request. Names are looked up where an event comes in; everything behind that
// uses the pointer.
class RequestTable {
 public:
  // `nonce`: of this router, in what workers call its requests.
  explicit RequestTable(uint64_t nonce) : nonce_(nonce) {}

  // REQUIRES: its id is not live.
  Request& Add(std::unique_ptr<Request> request);
  void Remove(Request& request);
  uint64_t DrawNumber() { return ++numbers_; }  // for a ticket; never 0

  // Null: it is over.
  Request* Find(const RequestId& id) const;
  Request* Find(const RequestTicket& ticket) const;
  Request* FindByWorkerName(const RequestId& worker_id) const;
  // Draws a new worker_id. The old one finds nothing from now on.
  void NameForWorkers(Request& request);

  // By id, in no order.
  using Requests = absl::flat_hash_map<std::string_view, std::unique_ptr<Request>>;
  const Requests& live() const { return requests_; }
  int32_t size() const { return static_cast<int32_t>(requests_.size()); }
  void CheckInvariants() const;

 private:
  const uint64_t nonce_;
  uint64_t numbers_ = 0, names_ = 0;
  Requests requests_;  // the key is the request's id
  absl::flat_hash_map<std::string_view, Request*> by_worker_name_;
};

}  // namespace baton
