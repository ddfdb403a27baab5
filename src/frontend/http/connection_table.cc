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
    const auto same = addresses_.find(share);
    const bool too_many_of_it =
        limited && same != addresses_.end() && same->second.connections >= std::max<size_t>(most_ / 4, 1);
    const bool too_many_strangers = asks_ && without_key_ >= std::max<size_t>(most_ / 2, 1);
    if (too_many_of_it || too_many_strangers || entries_.size() >= most_) {
      const Silent& strangers = too_many_of_it ? same->second.silent : silent_without_key_;
      const bool may_close_keyed = !too_many_of_it && !too_many_strangers;
      const Silent& silent = strangers.empty() && may_close_keyed ? silent_with_key_ : strangers;
      if (silent.empty()) return too_many_of_it ? Slot::kNoneOf : Slot::kNone;
      close_other = DropFirst(silent);
    }
    Entry& entry = entries_[id];
    BATON_CHECK(entry.address.empty(), "a connection is added once");
    entry.address = share;
    entry.close = std::move(close);
    Join(entry);
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
bool ConnectionTable::BeginRequest(Id id) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(id);
  if (found == entries_.end()) return false;
  if (!asks_ || found->second.tenant) Speak(found->second);
  return true;
}

void ConnectionTable::EndRequest(Id id) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(id);
  if (found == entries_.end()) return;
  Speak(found->second);
  FallSilent(id, found->second);
}

bool ConnectionTable::ShowKey(Id id, const std::string& tenant) {
  std::function<void()> close_other;
  {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(id);
    if (found == entries_.end() || found->second.tenant == tenant) return true;
    if (!HasShare(tenant)) {
      const auto group = tenants_.find(tenant);
      if (group == tenants_.end() || group->second.silent.empty()) return false;
      close_other = DropFirst(group->second.silent);
    }
    Entry& entry = entries_.at(id);
    Speak(entry);
    Leave(entry);
    entry.tenant = tenant;
    Join(entry);
  }
  if (close_other) close_other();
  return true;
}

bool ConnectionTable::HasShare(const std::string& tenant) const {
  const auto group = tenants_.find(tenant);
  if (group == tenants_.end()) return true;
  return group->second.connections + 1 + with_key_ + 1 <= most_;
}

size_t ConnectionTable::size() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

void ConnectionTable::CheckInvariants() const {
  const std::lock_guard lock(mutex_);
  const auto check = [](const Groups& groups, size_t connections, const Silent& all_silent) {
    size_t counted = 0, silent = 0;
    for (const auto& [name, group] : groups) {
      BATON_CHECK(group.connections > 0 && group.silent.size() <= group.connections, name);
      counted += group.connections;
      silent += group.silent.size();
    }
    BATON_CHECK(counted == connections, "the count of connections is wrong");
    BATON_CHECK(silent == all_silent.size(), "the count of silent connections is wrong");
  };
  check(addresses_, without_key_, silent_without_key_);
  check(tenants_, with_key_, silent_with_key_);
  BATON_CHECK(entries_.size() <= most_, "too many connections");
  BATON_CHECK(entries_.size() == without_key_ + with_key_, "a connection is in no group");
}

ConnectionTable::Group& ConnectionTable::GroupOf(const Entry& entry) {
  return entry.tenant ? tenants_.at(*entry.tenant) : addresses_.at(entry.address);
}

void ConnectionTable::FallSilent(Id id, Entry& entry) {
  entry.silent_since = next_silence_++;
  SilentLike(entry).emplace(*entry.silent_since, id);
  GroupOf(entry).silent.emplace(*entry.silent_since, id);
}

void ConnectionTable::Speak(Entry& entry) {
  if (!entry.silent_since) return;
  SilentLike(entry).erase(*entry.silent_since);
  GroupOf(entry).silent.erase(*entry.silent_since);
  entry.silent_since.reset();
}

void ConnectionTable::Join(Entry& entry) {
  ++(entry.tenant ? with_key_ : without_key_);
  ++(entry.tenant ? tenants_[*entry.tenant] : addresses_[entry.address]).connections;
}

void ConnectionTable::Leave(Entry& entry) {
  --(entry.tenant ? with_key_ : without_key_);
  if (--GroupOf(entry).connections > 0) return;
  entry.tenant ? tenants_.erase(*entry.tenant) : addresses_.erase(entry.address);
}

std::function<void()> ConnectionTable::DropFirst(const Silent& silent) {
  return Drop(entries_.find(silent.begin()->second));
}

std::function<void()> ConnectionTable::Drop(Entries::iterator found) {
  Speak(found->second);
  Leave(found->second);
  std::function<void()> close = std::move(found->second.close);
  entries_.erase(found);
  return close;
}

}  // namespace baton
