// The table of open connections. It decides which connection is closed to free a slot for a new
// one.
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
// - If no API keys are required, the connections of one address may be at most a quarter.
//   Connections of this machine itself have no such limit.
//
// At a limit, a new connection replaces a connection without a key that the same limit counts. The
// table chooses the connection whose last answer, or else whose opening, is longest ago. If no API
// keys are required, it closes only connections that do not wait for an answer. A connection on
// which a valid key arrived is never closed. Thread-safe.
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
  // of an IPv6 address counts. `close` closes the connection. It is called at most once, by the Add
  // of another connection.
  Slot Add(Id id, const std::string& address, std::function<void()> close);
  // The functions below do nothing for a connection that is not in the table.
  void Remove(Id id);
  void BeginRequest(Id id);
  void EndRequest(Id id);
  // A request with a valid key has arrived on the connection.
  void ShowKey(Id id);

  size_t size() const;
  void CheckInvariants() const;

 private:
  struct Address {
    size_t connections = 0;  // connections without a key
    // Connections that may be closed, by the order in which they fell silent.
    std::map<uint64_t, Id> silent;
  };
  struct Entry {
    std::string address;
    std::function<void()> close;
    bool has_key = false;
    std::optional<uint64_t> silent_since;
  };
  using Entries = absl::flat_hash_map<Id, Entry>;

  // REQUIRES for the functions below: the caller holds the lock.
  void FallSilent(Id id, Entry& entry);
  void Speak(Entry& entry);
  std::function<void()> Drop(Entries::iterator found);  // returns the function that closes it
  void LeaveAddress(const Entry& entry);

  const size_t most_;
  const bool asks_;
  mutable std::mutex mutex_;  // guards the members below
  Entries entries_;
  // Only addresses that have connections without a key.
  absl::flat_hash_map<std::string, Address> addresses_;
  // Connections of all addresses that may be closed, by the order in which they fell silent.
  std::map<uint64_t, Id> silent_;
  size_t without_key_ = 0;
  uint64_t next_silence_ = 0;
};

// Returns the part of an address that counts for the limit: all of an IPv4 address, and the first
// 64 bits of an IPv6 address. One host may have all addresses with the same first 64 bits.
std::string AddressShare(const std::string& address);

}  // namespace baton
