#include "router/request_table.h"

#include "catch.h"

namespace baton {
namespace {

std::unique_ptr<Request> Named(const RequestId& id) {
  auto request = std::make_unique<Request>();
  request->id = id;
  return request;
}

TEST_CASE("RequestTable has one request for an id until it is removed") {
  RequestTable table(0xab);
  Request* first = &table.Add(Named("t/r"));
  first->number = table.DrawNumber();
  CHECK(table.Find("t/r") == first);
  CHECK(table.Find(RequestTicket{"t/r", 1}) == first);
  CHECK(table.Find(RequestTicket{"t/r", 2}) == nullptr);
  table.Remove(*first);
  CHECK(table.Find("t/r") == nullptr);
  CHECK(table.size() == 0);
  table.Add(Named("t/r")).number = table.DrawNumber();
  CHECK(table.Find(RequestTicket{"t/r", 1}) == nullptr);
  table.CheckInvariants();
}

TEST_CASE("RequestTable finds a request by its latest worker_id") {
  RequestTable table(0xab);
  Request* record = &table.Add(Named("t/r"));
  record->asked.id = "r";
  table.NameForWorkers(*record);
  CHECK(record->worker_id == "r#ab.1");
  table.NameForWorkers(*record);
  CHECK(table.FindByWorkerName("r#ab.1") == nullptr);
  CHECK(table.FindByWorkerName("r#ab.2") == record);
  table.CheckInvariants();
  table.Remove(*record);
  CHECK(table.FindByWorkerName("r#ab.2") == nullptr);
  table.CheckInvariants();
}

}  // namespace
}  // namespace baton
