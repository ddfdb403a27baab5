#include "router/waiting_queue.h"

#include <deque>

#include "catch.h"
#include "world/route_request.h"

namespace baton {
namespace {

struct Line {
  TenantShares shares{100};
  WaitingQueue queue{8, shares};
  std::deque<Request> records;

  Request& Add(const std::string& id, const std::string& tenant, int32_t priority = 0) {
    Request& record = records.emplace_back();
    Fill(record, {.id = id, .tenant = tenant, .priority = priority});
    record.placement.sequence = std::ssize(records);
    shares.Begin(record.asked.spec);
    queue.Add(record);
    return record;
  }
  bool HasRoomFor(const std::string& tenant) const {
    RequestSpec spec;
    spec.tenant = tenant;
    return queue.HasRoom(spec);
  }
  std::string InServiceOrder() const {
    std::string ids;
    for (const Request* record : queue.InServiceOrder()) ids += record->id;
    return ids;
  }
};

TEST_CASE("WaitingQueue alternates between tenants and orders requests by priority and age") {
  Line line;
  line.Add("a", "t");
  line.Add("b", "t");
  line.Add("c", "t", 1);
  line.Add("d", "u");
  line.Add("e", "u");
  CHECK(line.InServiceOrder() == "cdaeb");
  line.shares.NoteServed("t");
  CHECK(line.InServiceOrder() == "dceab");
}

TEST_CASE("WaitingQueue returns the first request of the tenant served least recently") {
  Line line;
  line.Add("a", "t");
  Request& b = line.Add("b", "t");
  Request& c = line.Add("c", "u");
  CHECK(line.queue.FirstRefusedBy("w") == nullptr);
  for (Request* record : {&b, &c}) record->placement.refusals.LeaveOut("w", absl::UnixEpoch());
  CHECK(line.queue.FirstRefusedBy("w") == &b);
  line.shares.NoteServed("t");
  CHECK(line.queue.FirstRefusedBy("w") == &c);
}

TEST_CASE("WaitingQueue has room for a tenant up to the free slots") {
  Line line;
  for (int i = 0; i < 4; ++i) line.Add(std::string(1, static_cast<char>('a' + i)), "t");
  CHECK(line.HasRoomFor("t"));
  Request& last = line.Add("e", "t");
  CHECK_FALSE(line.HasRoomFor("t"));
  CHECK(line.HasRoomFor("u"));
  line.queue.Remove(last);
  line.queue.Remove(last);
  CHECK_FALSE(line.queue.Contains(last));
  CHECK(line.HasRoomFor("t"));
  for (int i = 0; i < 4; ++i) line.Add(std::string(1, static_cast<char>('f' + i)), "");
  CHECK_FALSE(line.HasRoomFor(""));
}

}  // namespace
}  // namespace baton
