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
  for (const int id : {2, 3, 4}) w.table.ShowKey(id);
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

TEST_CASE("A table full of connections with keys adds no connection") {
  WatchedTable w(4, /*asks=*/true);
  for (int i = 0; i < 4; ++i) {
    CHECK(w.Add(i, "10.0.0.1") == Slot::kFree);
    w.table.ShowKey(i);
  }
  CHECK(w.Add(4, "10.0.0.2") == Slot::kNone);
  CHECK(w.table.size() == 4);
  w.table.Remove(0);
  CHECK(w.Add(5, "10.0.0.2") == Slot::kFree);
}

TEST_CASE("Without keys, waiting connections stay and loopback has no limit") {
  WatchedTable w(8, /*asks=*/false);
  for (int i = 0; i < 8; ++i) CHECK(w.Add(i, "127.0.0.1") == Slot::kFree);
  w.table.BeginRequest(0);
  CHECK(w.Add(8, "::1") == Slot::kMade);
  CHECK(w.closed == std::vector<ConnectionTable::Id>{1});
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
          if (asks) w.table.ShowKey(other);
      }
      w.table.CheckInvariants();
    }
  }
}

}  // namespace
}  // namespace baton
