// The table of open connections. It decides which connection is closed to free a slot for a new
// one, and how many connections a tenant may hold.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "absl/container/flat_hash_map.h"

namespace baton {

// The limits of a server without and with keys:
//
// - If API keys are required, at most half of all connections may be without a key: no request with
//   a valid API key has arrived on them yet. At most a quarter may be such connections of one
//   address.
// - The connections of one tenant may be at most as many as are then left for connections without a
//   key and of other tenants. One tenant alone can hold a half, and two tenants a third each. Each
//   tenant may hold one. A connection belongs to the tenant of its last valid key.
// - If no API keys are required, the connections of one address may be at most a quarter.
//   Connections of this machine itself have no such limit.
//
// At a limit, a new connection replaces a connection that the same limit counts. The table chooses
// the connection whose last answer, or else whose opening, is longest ago. It closes no connection
// that waits for an answer, except connections without a key if API keys are required. In a full
// table, connections without a key are closed first. Thread-safe.
class ConnectionTable {
 public:
  using Id = uint64_t;

  // `most` is an upper bound on connections. `asks` means that API keys are required.
  ConnectionTable(int most, bool asks) : most_(static_cast<size_t>(most)), asks_(asks) {}

  enum class Slot {
    kFree,    // the connection was added
    kMade,    // the connection was added, and another one is being closed for it
    kNone,    // not added: all connections are in use
    kNoneOf,  // not added: all connections of this address are in use
  };
  // `address` is the text of a socket's address, "10.0.0.1" or "2001:db8::1". Only the first half
  // of an IPv6 address counts. `close` closes the connection. It is called at most once, by a call
  // for another connection.
  Slot Add(Id id, const std::string& address, std::function<void()> close);
  // The functions below change nothing for a connection that is not in the table.
  void Remove(Id id);
  // Returns false if the connection is not in the table: a new one has taken its slot.
  bool BeginRequest(Id id);
  void EndRequest(Id id);
  // A request with a valid key of `tenant` has begun on the connection. May close another
  // connection of this tenant. Returns false, and changes nothing, if the tenant has no share left.
  // The request must then be refused.
  bool ShowKey(Id id, const std::string& tenant);

  size_t size() const;
  void CheckInvariants() const;

 private:
  // Connections that may be closed, by the order in which they fell silent.
  using Silent = std::map<uint64_t, Id>;
  // The connections that one limit counts: those of an address that have no key, or those of a
  // tenant.
  struct Group {
    size_t connections = 0;
    Silent silent;
  };
  using Groups = absl::flat_hash_map<std::string, Group>;
  struct Entry {
    std::string address;
    std::optional<std::string> tenant;  // nullopt without a key
    std::function<void()> close;
    std::optional<uint64_t> silent_since;
  };
  using Entries = absl::flat_hash_map<Id, Entry>;

  // REQUIRES for the functions below: the caller holds the lock.
  Group& GroupOf(const Entry& entry);
  Silent& SilentLike(const Entry& entry) { return entry.tenant ? silent_with_key_ : silent_without_key_; }
  void FallSilent(Id id, Entry& entry);
  void Speak(Entry& entry);
  void Join(Entry& entry);   // counts the entry in its group
  void Leave(Entry& entry);  // ends that
  // Drops the longest silent connection. Returns the function that closes it. REQUIRES: there is
  // one.
  std::function<void()> DropFirst(const Silent& silent);
  std::function<void()> Drop(Entries::iterator found);
  bool HasShare(const std::string& tenant) const;

  const size_t most_;
  const bool asks_;
  mutable std::mutex mutex_;  // guards the members below
  Entries entries_;
  Groups addresses_, tenants_;  // without empty groups
  // Connections of all groups that may be closed.
  Silent silent_without_key_, silent_with_key_;
  size_t without_key_ = 0, with_key_ = 0;
  uint64_t next_silence_ = 0;
};

// Returns the part of an address that counts for the limit: all of an IPv4 address, and the first
// 64 bits of an IPv6 address. One host may have all addresses with the same first 64 bits.
std::string AddressShare(const std::string& address);

}  // namespace baton
