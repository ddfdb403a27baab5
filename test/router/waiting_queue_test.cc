#include "router/waiting_queue.h"

#include <deque>

#include "catch.h"
#include "world/route_request.h"

namespace baton {
namespace {

struct Line {
  TenantOrder tenants;
  WaitingQueue queue{8, tenants};
  std::deque<Request> records;

  Request& Add(const std::string& id, const std::string& tenant, int32_t priority = 0, int32_t tokens = 10) {
    Request& record = records.emplace_back();
    Fill(record, {.id = id, .tenant = tenant, .prompt_tokens = tokens, .priority = priority});
    record.placement.sequence = std::ssize(records);
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

TEST_CASE("WaitingQueue orders tenants by tokens, and their requests by priority and age") {
  Line line;
  Request& a = line.Add("a", "t");
  line.Add("b", "t");
  line.Add("c", "t", 1);
  line.Add("d", "u");
  line.Add("e", "u");
  CHECK(line.InServiceOrder() == "cdaeb");
  line.tenants.Asked(a);
  CHECK(line.InServiceOrder() == "dceab");
  line.Add("f", "v", 0, 35);
  line.Add("g", "v", 0, 1);
  CHECK(line.InServiceOrder() == "dfceabg");
}

TEST_CASE("WaitingQueue returns the first request of the tenant with the least tokens") {
  Line line;
  line.Add("a", "t");
  Request& b = line.Add("b", "t");
  Request& c = line.Add("c", "u");
  CHECK(line.queue.FirstRefusedBy("w") == nullptr);
  for (Request* record : {&b, &c}) record->placement.refusals.LeaveOut("w", absl::UnixEpoch());
  CHECK(line.queue.FirstRefusedBy("w") == &b);
  line.tenants.Asked(b);
  CHECK(line.queue.FirstRefusedBy("w") == &c);
  c.placement.room_at = "another";
  CHECK(line.queue.FirstRefusedBy("w") == &b);
}

TEST_CASE("WaitingQueue keeps room for the oldest request of the tenant with the least tokens") {
  Line line;
  Request& urgent = line.Add("a", "t", /*priority=*/9);
  Request& old = line.Add("b", "t");
  Request& other = line.Add("c", "u");
  const absl::Time since = absl::UnixEpoch() + absl::Seconds(5);
  for (Request* record : {&urgent, &old, &other}) {
    record->placement.refusals.LeaveOut("w", absl::InfiniteFuture());
    record->placement.refused_at = record == &old ? absl::UnixEpoch() : since;
  }
  CHECK(line.queue.LongestRefusedBy("w", absl::UnixEpoch()) == &old);
  CHECK(line.queue.LongestRefusedBy("v", since) == nullptr);
  line.tenants.Asked(old);  // an ask is no hand-off
  CHECK(line.queue.LongestRefusedBy("w", since) == &old);
  old.placement.room_at = "another";
  CHECK(line.queue.LongestRefusedBy("w", since) == &urgent);
  line.tenants.Granted(urgent);
  CHECK(line.queue.LongestRefusedBy("w", since) == &other);
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
