#include "frontend/http/connection_table.h"

#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "catch.h"

namespace baton {
namespace {

using Slot = ConnectionTable::Slot;

// A table, and the connections that it closed.
struct WatchedTable {
  ConnectionTable table;
  std::vector<ConnectionTable::Id> closed;

  WatchedTable(int most, bool asks) : table(most, asks) {}
  Slot Add(ConnectionTable::Id id, const std::string& address) {
    const Slot slot = table.Add(id, address, [this, id] { closed.push_back(id); });
    table.CheckInvariants();
    return slot;
  }
};

TEST_CASE("ConnectionTable closes the longest idle of too many connections without a key") {
  WatchedTable w(16, /*asks=*/true);
  for (int i = 0; i < 8; ++i) CHECK(w.Add(i, absl::StrCat("10.0.0.", i)) == Slot::kFree);
  w.table.EndRequest(0);  // active since then
  CHECK(w.Add(8, "10.0.0.8") == Slot::kMade);
  CHECK(w.closed == std::vector<ConnectionTable::Id>{1});
  // A connection with a key is not replaced.
  for (const int id : {2, 3, 4}) CHECK(w.table.ShowKey(id, absl::StrCat("tenant-", id)));
  for (int i = 9; i < 12; ++i) CHECK(w.Add(i, absl::StrCat("10.0.0.", i)) == Slot::kFree);
  CHECK(w.Add(12, "10.0.0.12") == Slot::kMade);
  CHECK(w.closed.back() == 5);
}

TEST_CASE("ConnectionTable replaces connections without a key beyond an address's quarter") {
  WatchedTable w(16, /*asks=*/true);
  CHECK(w.Add(100, "10.0.0.9") == Slot::kFree);
  for (int i = 0; i < 4; ++i) CHECK(w.Add(i, "2001:db8::1") == Slot::kFree);
  CHECK(w.Add(4, "2001:db8::ffff:2") == Slot::kMade);  // the same first 64 bits
  CHECK(w.closed == std::vector<ConnectionTable::Id>{0});
  CHECK(w.Add(5, "2001:db8:0:1::1") == Slot::kFree);
}

// Adds a connection on which a request of the tenant has begun. Returns whether the table accepts
// it.
bool AddKeyed(WatchedTable& w, ConnectionTable::Id id, const std::string& tenant) {
  REQUIRE(w.Add(id, absl::StrCat("10.0.", id, ".1")) != Slot::kNone);
  const bool shown = w.table.ShowKey(id, tenant);
  w.table.CheckInvariants();
  return shown;
}

TEST_CASE("A tenant holds at most as many connections as are left for others") {
  WatchedTable w(16, /*asks=*/true);
  for (int i = 0; i < 8; ++i) CHECK(AddKeyed(w, i, "a"));
  CHECK_FALSE(AddKeyed(w, 8, "a"));
  for (int i = 9; i < 13; ++i) CHECK(AddKeyed(w, i, "b"));
  CHECK_FALSE(AddKeyed(w, 13, "b"));
  for (int i = 14; i < 16; ++i) CHECK(AddKeyed(w, i, "c"));
  CHECK_FALSE(AddKeyed(w, 16, "c"));
  CHECK(AddKeyed(w, 17, "d"));
  w.table.Remove(0);
  CHECK_FALSE(AddKeyed(w, 18, "a"));
  for (const int id : {1, 2, 9}) w.table.Remove(id);
  CHECK(AddKeyed(w, 19, "b"));
}

TEST_CASE("A tenant beyond its share replaces its own idle connection") {
  WatchedTable w(8, /*asks=*/true);
  for (int i = 0; i < 4; ++i) CHECK(AddKeyed(w, i, "a"));
  w.table.EndRequest(2);
  w.table.EndRequest(1);
  w.table.EndRequest(3);
  w.table.BeginRequest(2);  // no longer idle
  CHECK(AddKeyed(w, 4, "a"));
  CHECK(w.closed == std::vector<ConnectionTable::Id>{1});
  CHECK(AddKeyed(w, 5, "a"));
  CHECK(w.closed.back() == 3);
  CHECK_FALSE(AddKeyed(w, 6, "a"));
  CHECK(w.closed.size() == 2);
}

TEST_CASE("A connection belongs to the tenant of its last key") {
  WatchedTable w(8, /*asks=*/true);
  for (int i = 0; i < 4; ++i) CHECK(AddKeyed(w, i, "a"));
  CHECK(w.table.ShowKey(0, "a"));
  CHECK(w.table.ShowKey(0, "b"));
  w.table.CheckInvariants();
  CHECK(w.table.ShowKey(1, "b"));
  CHECK(AddKeyed(w, 4, "b"));
  CHECK_FALSE(AddKeyed(w, 5, "a"));
  CHECK_FALSE(AddKeyed(w, 6, "b"));
}

TEST_CASE("A full table closes an idle connection with a key for a new one") {
  WatchedTable w(4, /*asks=*/true);
  for (int i = 0; i < 4; ++i) CHECK(AddKeyed(w, i, absl::StrCat("tenant-", i)));
  CHECK(w.Add(4, "10.0.0.2") == Slot::kNone);
  CHECK(w.table.size() == 4);
  w.table.EndRequest(3);
  w.table.EndRequest(1);
  CHECK(w.Add(5, "10.0.0.2") == Slot::kMade);
  CHECK(w.closed == std::vector<ConnectionTable::Id>{3});
  // A connection without a key is closed first.
  CHECK(w.Add(6, "10.0.0.3") == Slot::kMade);
  CHECK(w.closed.back() == 5);
  w.table.Remove(0);
  CHECK(w.Add(7, "10.0.0.4") == Slot::kFree);
}

TEST_CASE("Without keys, waiting connections stay and loopback has no limit") {
  WatchedTable w(8, /*asks=*/false);
  for (int i = 0; i < 8; ++i) CHECK(w.Add(i, "127.0.0.1") == Slot::kFree);
  CHECK(w.table.BeginRequest(0));
  CHECK(w.Add(8, "::1") == Slot::kMade);
  CHECK(w.closed == std::vector<ConnectionTable::Id>{1});
  CHECK_FALSE(w.table.BeginRequest(1));
  for (int i = 2; i < 9; ++i) w.table.BeginRequest(i);
  CHECK(w.Add(9, "127.0.0.1") == Slot::kNone);
  for (int i = 2; i < 9; ++i) w.table.Remove(i);

  CHECK(w.Add(10, "10.0.0.1") == Slot::kFree);
  CHECK(w.Add(11, "::ffff:10.0.0.1") == Slot::kFree);
  w.table.BeginRequest(10);
  w.table.BeginRequest(11);
  CHECK(w.Add(12, "10.0.0.1") == Slot::kNoneOf);
  w.table.EndRequest(11);
  CHECK(w.Add(13, "10.0.0.1") == Slot::kMade);
  CHECK(w.closed.back() == 11);
}

TEST_CASE("The table's counts add up after random events") {
  std::mt19937 random(7);
  for (const bool asks : {true, false}) {
    WatchedTable w(12, asks);
    std::set<ConnectionTable::Id> open;
    for (ConnectionTable::Id i = 0; i < 5000; ++i) {
      const Slot slot = w.Add(i, absl::StrCat("10.0.0.", random() % 5));
      if (slot == Slot::kFree || slot == Slot::kMade) open.insert(i);
      for (const ConnectionTable::Id id : w.closed) open.erase(id);
      w.closed.clear();
      CHECK(w.table.size() == open.size());
      const ConnectionTable::Id other = i - random() % 20;
      switch (random() % 4) {
        case 0:
          w.table.Remove(other);
          open.erase(other);
          break;
        case 1:
          w.table.BeginRequest(other);
          break;
        case 2:
          w.table.EndRequest(other);
          break;
        default:
          if (asks) w.table.ShowKey(other, absl::StrCat("tenant-", random() % 3));
      }
      w.table.CheckInvariants();
    }
  }
}

}  // namespace
}  // namespace baton
