// Which connections are open, whose they are, and which must go when others come.
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

// Strangers are connections of which no request has come with a valid key. They may be at most a half, and those of one
// address a quarter: the one that has been silent for longest is closed for the next. Where no keys are asked for there
// are none: guests have the quarter of an address, but for this machine's own, and only one that waits for a request is
// closed. Nothing is closed for others once a key came with it. Thread-safe.
class ConnectionTable {
 public:
  using Id = uint64_t;

  // `most`: connections. `asks`: for keys.
  ConnectionTable(int most, bool asks) : most_(static_cast<size_t>(most)), asks_(asks) {}

  enum class Room {
    kFree,    // it was added
    kMade,    // and another is closed for it
    kNone,    // it was not: all are in use
    kNoneOf,  // nor was this one: all of its address are
  };
  // `address`: as of a socket, "10.0.0.1" or "2001:db8::1", of which the first half counts. `close`: closes it; called
  // at most once, by another's Add.
  Room Add(Id id, const std::string& address, std::function<void()> close);
  // Those that follow do nothing for a connection that is not there (any more).
  void Remove(Id id);
  void BeginRequest(Id id);
  void EndRequest(Id id);
  void ShowKey(Id id);  // a valid one came with a request

  size_t size() const;
  void CheckInvariants() const;

 private:
  struct Address {
    size_t connections = 0;         // without a key
    std::map<uint64_t, Id> silent;  // by when they fell silent, those that may be closed
  };
  struct Entry {
    std::string address;
    std::function<void()> close;
    bool has_key = false;
    std::optional<uint64_t> silent_since;
  };
  using Entries = absl::flat_hash_map<Id, Entry>;

  // With the lock held.
  void FallSilent(Id id, Entry& entry);
  void Speak(Entry& entry);
  std::function<void()> Drop(Entries::iterator found);  // what closes it
  void LeaveAddress(const Entry& entry);

  const size_t most_;
  const bool asks_;
  mutable std::mutex mutex_;  // guards what follows
  Entries entries_;
  absl::flat_hash_map<std::string, Address> addresses_;  // that have connections without a key
  std::map<uint64_t, Id> silent_;                        // of all addresses
  size_t without_key_ = 0;
  uint64_t next_silence_ = 0;
};

// What of an address counts: all of IPv4's, the first 64 bits of IPv6's, which one host may have all of.
std::string AddressShare(const std::string& address);

}  // namespace baton
