#include "frontend/http/connection_table.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "boost/asio/ip/address.hpp"

namespace baton {
namespace {

namespace ip = boost::asio::ip;

bool IsLoopback(const std::string& share) {
  boost::system::error_code error;
  return ip::make_address(share, error).is_loopback() && !error;
}

}  // namespace

std::string AddressShare(const std::string& text) {
  boost::system::error_code error;
  const ip::address address = ip::make_address(text, error);
  if (error || address.is_v4()) return text;
  const ip::address_v6 v6 = address.to_v6();
  if (v6.is_v4_mapped()) return ip::make_address_v4(ip::v4_mapped, v6).to_string();
  if (v6.is_loopback()) return v6.to_string();
  ip::address_v6::bytes_type bytes = v6.to_bytes();
  std::fill(bytes.begin() + 8, bytes.end(), 0);
  return ip::address_v6(bytes).to_string();
}

ConnectionTable::Slot ConnectionTable::Add(Id id, const std::string& address, std::function<void()> close) {
  const std::string share = AddressShare(address);
  const bool limited = asks_ || !IsLoopback(share);
  std::function<void()> close_other;
  {
    const std::lock_guard lock(mutex_);
    Address& same = addresses_[share];
    const bool too_many_of_it = limited && same.connections >= std::max<size_t>(most_ / 4, 1);
    const bool too_many_strangers = asks_ && without_key_ >= std::max<size_t>(most_ / 2, 1);
    if (too_many_of_it || too_many_strangers || entries_.size() >= most_) {
      const std::map<uint64_t, Id>& silent = too_many_of_it ? same.silent : silent_;
      if (silent.empty()) {
        if (same.connections == 0) addresses_.erase(share);
        return too_many_of_it ? Slot::kNoneOf : Slot::kNone;
      }
      close_other = Drop(entries_.find(silent.begin()->second));
    }
    Entry& entry = entries_[id];
    BATON_CHECK(entry.address.empty(), "a connection is added once");
    entry.address = share;
    entry.close = std::move(close);
    ++addresses_[share].connections;
    ++without_key_;
    FallSilent(id, entry);
  }
  if (!close_other) return Slot::kFree;
  close_other();
  return Slot::kMade;
}

void ConnectionTable::Remove(Id id) {
  const std::lock_guard lock(mutex_);
  if (const auto found = entries_.find(id); found != entries_.end()) Drop(found);
}

// If API keys are required, a connection without a key keeps its position in the order of closing
// while it waits for an answer. Such an answer, a refusal, costs little to repeat.
void ConnectionTable::BeginRequest(Id id) {
  if (asks_) return;
  const std::lock_guard lock(mutex_);
  if (const auto found = entries_.find(id); found != entries_.end()) Speak(found->second);
}

void ConnectionTable::EndRequest(Id id) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(id);
  if (found == entries_.end() || found->second.has_key) return;
  Speak(found->second);
  FallSilent(id, found->second);
}

void ConnectionTable::ShowKey(Id id) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(id);
  if (found == entries_.end() || std::exchange(found->second.has_key, true)) return;
  Speak(found->second);
  LeaveAddress(found->second);
}

size_t ConnectionTable::size() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

void ConnectionTable::CheckInvariants() const {
  const std::lock_guard lock(mutex_);
  size_t without_key = 0, silent = 0;
  for (const auto& [share, address] : addresses_) {
    BATON_CHECK(address.connections > 0 && address.silent.size() <= address.connections, share);
    without_key += address.connections;
    silent += address.silent.size();
  }
  const auto counted = std::ranges::count_if(entries_, [](const auto& entry) { return !entry.second.has_key; });
  BATON_CHECK(entries_.size() <= most_, "too many connections");
  BATON_CHECK(without_key == without_key_ && static_cast<size_t>(counted) == without_key_,
              "the count of connections without a key is wrong");
  BATON_CHECK(silent == silent_.size(), "the count of silent connections is wrong");
}

void ConnectionTable::FallSilent(Id id, Entry& entry) {
  entry.silent_since = next_silence_++;
  silent_.emplace(*entry.silent_since, id);
  addresses_.at(entry.address).silent.emplace(*entry.silent_since, id);
}

void ConnectionTable::Speak(Entry& entry) {
  if (!entry.silent_since) return;
  silent_.erase(*entry.silent_since);
  addresses_.at(entry.address).silent.erase(*entry.silent_since);
  entry.silent_since.reset();
}

std::function<void()> ConnectionTable::Drop(Entries::iterator found) {
  Speak(found->second);
  if (!found->second.has_key) LeaveAddress(found->second);
  std::function<void()> close = std::move(found->second.close);
  entries_.erase(found);
  return close;
}

void ConnectionTable::LeaveAddress(const Entry& entry) {
  --without_key_;
  const auto address = addresses_.find(entry.address);
  if (--address->second.connections == 0) addresses_.erase(address);
}

}  // namespace baton
