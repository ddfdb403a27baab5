#include "router/placement.h"

#include <algorithm>
#include <cstdlib>
#include <map>

#include "catch.h"
#include "model/byte_model.h"
#include "request/priority.h"
#include "router/client_request.h"
#include "router/rendezvous.h"
#include "router/request.h"
#include "world/route_request.h"

namespace baton {
namespace {

// Returns n keys of a prompt. Prompts with the same seed have a common prefix.
std::vector<BlockKey> Keys(int n, uint8_t seed) {
  std::vector<BlockKey> keys(n);
  for (int i = 0; i < n; ++i) {
    keys[i].bytes[0] = seed;
    keys[i].bytes[8] = static_cast<uint8_t>(i);
    keys[i].bytes[9] = static_cast<uint8_t>(i >> 8);
  }
  return keys;
}

AttachedWorker Prefill(const std::string& address) {
  AttachedWorker worker{.link = address, .info = {.role = WorkerRole::kPrefill, .address = address}};
  worker.prefix_memory.emplace(1000);
  return worker;
}

AttachedWorker Decode(const std::string& address) {
  AttachedWorker worker{.link = address, .info = {.role = WorkerRole::kDecode, .address = address, .max_batch = 4}};
  worker.load.blocks_free = 100;
  return worker;
}

RouteRequest SessionRequest(const std::string& session, int blocks, uint8_t seed = 1) {
  return {.id = "r", .session = session, .keys = Keys(blocks, seed), .prompt_tokens = blocks * 16 + 1};
}

TEST_CASE("ChoosePrefill keeps a session's worker and spreads sessions") {
  std::vector<AttachedWorker> workers;
  for (const char* name : {"a", "b", "c", "d"}) workers.push_back(Prefill(name));
  std::vector<const AttachedWorker*> all{&workers[0], &workers[1], &workers[2], &workers[3]};
  std::map<std::string, int> share;
  for (int i = 0; i < 400; ++i) {
    const RouteRequest request = SessionRequest(absl::StrCat("session ", i), 2);
    const AttachedWorker* chosen = ChoosePrefill(all, request, {});
    CHECK(ChoosePrefill(all, request, {}) == chosen);
    ++share[chosen->link];
    // The loss of a worker moves only that worker's sessions.
    const AttachedWorker* without_d = ChoosePrefill(std::span(all).first(3), request, {});
    if (chosen->link != "d") CHECK(without_d == chosen);
  }
  for (const auto& [name, count] : share) {
    INFO(name << " " << count);
    CHECK(count > 60);
  }
  CHECK(share.size() == 4);
}

TEST_CASE("ChoosePrefill balances sessions and moves them only when their worker leaves") {
  std::vector<AttachedWorker> workers;
  for (int i = 0; i < 8; ++i) workers.push_back(Prefill(absl::StrCat("10.0.0.", i, ":7101")));
  // The workers as two routers list them, in different orders.
  std::vector<const AttachedWorker*> one, other;
  for (const AttachedWorker& worker : workers) one.push_back(&worker);
  other.assign(one.rbegin(), one.rend());
  const AttachedWorker* leaves = one.back();
  constexpr int kSessions = 100'000;
  std::map<std::string, int> share;
  int disagreed = 0, moved = 0;
  for (int i = 0; i < kSessions; ++i) {
    const RouteRequest request = SessionRequest(absl::StrCat("session ", i), 0);
    const AttachedWorker* chosen = ChoosePrefill(one, request, {});
    ++share[chosen->link];
    disagreed += ChoosePrefill(other, request, {}) != chosen;
    moved += chosen != leaves && ChoosePrefill(std::span(one).first(7), request, {}) != chosen;
  }
  CHECK(disagreed == 0);
  CHECK(moved == 0);
  CHECK(share.size() == 8);
  for (const auto& [name, count] : share) {
    INFO(name << " " << count);
    CHECK(std::abs(count - kSessions / 8) <= kSessions / 80);
  }
}

TEST_CASE("RoutingNamed refuses an unknown policy and lists all names") {
  CHECK(RoutingNamed("pinned").value() == Routing::kPinned);
  CHECK(RoutingNamed("least-loaded").value() == Routing::kLeastLoaded);
  CHECK(RoutingNamed("random").value() == Routing::kRandom);
  CHECK(RoutingNamed("Pinned").status() ==
        absl::InvalidArgumentError("routing: expected pinned, least-loaded or random, got 'Pinned'"));
}

TEST_CASE("Routing least-loaded and random ignore sessions") {
  std::vector<AttachedWorker> workers{Prefill("a"), Prefill("b"), Prefill("c")};
  const std::vector<const AttachedWorker*> all{&workers[0], &workers[1], &workers[2]};
  std::map<Routing, std::map<std::string, int>> share;
  for (int i = 0; i < 300; ++i) {
    RouteRequest request = SessionRequest("s", 2);
    request.id = absl::StrCat("r", i);
    for (const Routing routing : {Routing::kPinned, Routing::kLeastLoaded, Routing::kRandom}) {
      ++share[routing][ChoosePrefill(all, request, {.routing = routing})->link];
    }
  }
  CHECK(share[Routing::kPinned].size() == 1);
  for (const char* name : {"a", "b", "c"}) CHECK(share[Routing::kRandom][name] > 60);
  workers[0].prompt_tokens = 1;
  workers[2].load.queued_tokens = 2;
  workers[2].prefix_memory->Remember(Keys(2, 1));
  CHECK(ChoosePrefill(all, SessionRequest("s", 2), {.routing = Routing::kLeastLoaded}) == &workers[1]);
  AttachedWorker idle = Decode("d"), last = Decode("e");
  last.load.running_requests = 1;
  const std::vector<const AttachedWorker*> decodes{&idle, &last};
  CHECK(ChooseDecode(decodes, SessionRequest("s", 1), &last, {}) == &last);
  CHECK(ChooseDecode(decodes, SessionRequest("s", 1), &last, {.routing = Routing::kLeastLoaded}) == &idle);
}

TEST_CASE("ChoosePrefill pins a request without session by its first block") {
  std::vector<AttachedWorker> workers{Prefill("a"), Prefill("b"), Prefill("c")};
  std::vector<const AttachedWorker*> all{&workers[0], &workers[1], &workers[2]};
  for (uint8_t seed = 0; seed < 50; ++seed) {
    RouteRequest one = SessionRequest("", 3, seed), other = SessionRequest("", 8, seed);
    other.id = std::string("another");
    CHECK(ChoosePrefill(all, one, {}) == ChoosePrefill(all, other, {}));
  }
}

TEST_CASE("ChoosePrefill pins a short streaming prompt by its first upstream request") {
  std::vector<AttachedWorker> workers{Prefill("a"), Prefill("b"), Prefill("c")};
  std::vector<const AttachedWorker*> all{&workers[0], &workers[1], &workers[2]};
  std::map<std::string, int> share;
  for (int upstream = 0; upstream < 30; ++upstream) {
    std::map<std::string, int> chosen;
    for (int downstream = 0; downstream < 12; ++downstream) {
      RouteRequest request{.id = absl::StrCat("reader", downstream), .prompt_tokens = 10, .streaming = true};
      request.upstream = absl::StrCat("upstream", upstream);
      ++chosen[ChoosePrefill(all, request, {})->link];
    }
    CHECK(chosen.size() == 1);
    ++share[chosen.begin()->first];
  }
  CHECK(share.size() == 3);
}

TEST_CASE("ChoosePrefill leaves an overloaded home and weighs cached prefixes against load") {
  std::vector<AttachedWorker> workers{Prefill("a"), Prefill("b")};
  std::vector<const AttachedWorker*> all{&workers[0], &workers[1]};
  const RouteRequest request = SessionRequest("s", 100);  // 1601 tokens
  AttachedWorker& pinned = ChoosePrefill(all, request, {}) == &workers[0] ? workers[0] : workers[1];
  AttachedWorker& other = &pinned == &workers[0] ? workers[1] : workers[0];
  const PlacementOptions options{.pin_ratio = 2, .pin_slack_tokens = 100};

  const auto pin_of = [&](const RouteRequest& r) {
    other.load.queued_tokens = pinned.load.queued_tokens = 0;
    return ChoosePrefill(all, r, options);
  };
  SECTION("a session's home counts as holding the whole prompt, at all routers") {
    for (const bool other_has_it : {false, true}) {
      if (other_has_it) other.prefix_memory->Remember(request.keys);
      CHECK(pin_of(request) == &pinned);
      pinned.load.queued_tokens = 3302;  // 2 * 1601 + 100
      CHECK(ChoosePrefill(all, request, options) == &pinned);
      pinned.load.queued_tokens = 3303;
      CHECK(ChoosePrefill(all, request, options) == &other);
      other.load.queued_tokens = 1;
      CHECK(ChoosePrefill(all, request, options) == &pinned);
    }
  }
  SECTION("a prefix's home counts as holding the blocks that it has cached") {
    RouteRequest prefix = request;
    prefix.session.clear();
    for (uint8_t seed = 1; ChoosePrefill(all, prefix, {}) != &pinned; ++seed) prefix.keys = Keys(100, seed);
    // The limit is 2 * 1601 + 100 = 3302, so a queue of 1701 tokens is just allowed.
    pinned.load.queued_tokens = 1701;
    CHECK(ChoosePrefill(all, prefix, options) == &pinned);
    pinned.load.queued_tokens = 1702;
    CHECK(ChoosePrefill(all, prefix, options) == &other);
    // The pinned worker holds the prompt, so only its queue counts.
    pinned.prefix_memory->Remember(prefix.keys);
    CHECK(PrefillCost(pinned, prefix) == 1703);
    CHECK(ChoosePrefill(all, prefix, options) == &pinned);
  }
}

TEST_CASE("ChoosePrefill and ChooseDecode leave a home whose queue waits twice as long") {
  std::vector<AttachedWorker> prefills{Prefill("a"), Prefill("b")}, decodes{Decode("a"), Decode("b")};
  for (std::vector<AttachedWorker>* workers : {&prefills, &decodes}) {
    const std::vector<const AttachedWorker*> all{&workers->front(), &workers->back()};
    const RouteRequest request = SessionRequest("s", 2);
    const auto choose = [&](const PlacementOptions& options) {
      return workers == &prefills ? ChoosePrefill(all, request, options) : ChooseDecode(all, request, nullptr, options);
    };
    const AttachedWorker* home = choose({});
    AttachedWorker& stays = home == all[0] ? workers->front() : workers->back();
    AttachedWorker& other = home == all[0] ? workers->back() : workers->front();
    stays.load.longest_wait = absl::Seconds(1);
    CHECK(choose({}) == home);
    stays.load.longest_wait = absl::Milliseconds(1001);
    CHECK(choose({}) == &other);
    CHECK(choose({.pin_wait = absl::ZeroDuration()}) == home);
    other.load.longest_wait = absl::Milliseconds(501);
    CHECK(choose({}) == home);
  }
}

TEST_CASE("ChoosePrefill separates sessions with one name in different cache domains") {
  std::vector<AttachedWorker> prefills{Prefill("a"), Prefill("b")}, decodes{Decode("c"), Decode("d")};
  const std::vector<const AttachedWorker*> prefill{&prefills[0], &prefills[1]}, decode{&decodes[0], &decodes[1]};
  const ServedModel model = ByteModel("bytes");
  std::map<std::string, int> share;
  for (int tenant = 0; tenant < 100; ++tenant) {
    ClientRequest request;
    request.served = &model;
    request.session = "main";
    request.spec.tokens = std::vector<TokenId>(100, 7);
    request.spec.cache_domain = absl::StrCat("tenant", tenant);
    for (int turn = 0; turn < 2; ++turn) {
      request.id = absl::StrCat("r", turn);
      Request record;
      record.id = ScopedId(request.spec.cache_domain, request.id);
      record.asked = request;
      record.SetRoute(ToRoute(request));
      ++share[ChoosePrefill(prefill, record, {})->link];
      ++share[ChooseDecode(decode, record, nullptr, {})->link];
    }
  }
  for (const char* name : {"a", "b", "c", "d"}) {
    INFO(name << " " << share[name]);
    CHECK(share[name] > 70);
    CHECK(share[name] % 2 == 0);  // each session has two turns
  }
}

TEST_CASE("ChoosePrefill returns only the holder when at_holder is set") {
  std::vector<AttachedWorker> workers;
  for (const char* name : {"a", "b", "c"}) workers.push_back(Prefill(name));
  const std::vector<const AttachedWorker*> all{&workers[0], &workers[1], &workers[2]};
  RouteRequest request = SessionRequest("s", 100);
  request.held_tokens = 1500;
  request.at_holder = true;
  for (AttachedWorker& holder : workers) {
    request.holder = holder.link;
    holder.load.queued_tokens = 100'000;
    for (const Routing routing : {Routing::kPinned, Routing::kLeastLoaded, Routing::kRandom}) {
      CHECK(ChoosePrefill(all, request, {.routing = routing}) == &holder);
    }
  }
  request.holder = "gone";
  for (const Routing routing : {Routing::kPinned, Routing::kLeastLoaded, Routing::kRandom}) {
    CHECK(ChoosePrefill(all, request, {.routing = routing}) == nullptr);
  }
}

TEST_CASE("ChoosePrefill prefers the holder of a context unless it is overloaded or gone") {
  std::vector<AttachedWorker> workers{Prefill("a"), Prefill("b"), Prefill("c")};
  std::vector<const AttachedWorker*> all{&workers[0], &workers[1], &workers[2]};
  const PlacementOptions options{.pin_ratio = 2, .pin_slack_tokens = 100};
  for (AttachedWorker& holder : workers) {
    for (uint8_t seed = 0; seed < 5; ++seed) {
      RouteRequest request = SessionRequest(seed % 2 == 0 ? "" : "s", 100, seed);  // 1601 tokens
      request.holder = holder.link;
      request.held_tokens = 1500;
      CHECK(PrefillCost(holder, request) == 101);
      CHECK(ChoosePrefill(all, request, options) == &holder);
      holder.load.queued_tokens = 100'000;
      CHECK(ChoosePrefill(all, request, options) != &holder);
      holder.load.queued_tokens = 0;
      request.holder = "gone";
      CHECK(ChoosePrefill(all, request, options) != nullptr);
      CHECK(PrefillCost(holder, request) == 1601);
    }
  }
  // The rule also holds if another worker would cost little more.
  RouteRequest small = SessionRequest("s", 5);
  for (AttachedWorker& holder : workers) {
    small.holder = holder.link;
    small.held_tokens = 64;
    CHECK(ChoosePrefill(all, small, options) == &holder);
  }
  RouteRequest without_key = SessionRequest("", 0);
  without_key.holder = "c";
  without_key.held_tokens = 1;
  CHECK(ChoosePrefill(all, without_key, options) == &workers[2]);
}

TEST_CASE("PrefixMemory counts blocks up to the first unknown one") {
  AttachedWorker worker = Prefill("a");
  worker.prefix_memory->Remember(Keys(5, 1));
  CHECK(PrefillCost(worker, SessionRequest("", 3)) == 1);
  CHECK(PrefillCost(worker, SessionRequest("", 6)) == 17);
  CHECK(PrefillCost(worker, SessionRequest("", 6, 2)) == 97);
  worker.prompt_tokens = 1000;
  CHECK(PrefillCost(worker, SessionRequest("", 6)) == 1017);
}

TEST_CASE("PrefixMemory evicts the end of a prompt before its start") {
  PrefixMemory memory(10);
  memory.Remember(Keys(8, 1));
  memory.Remember(Keys(5, 2));
  CHECK(memory.LeadingHits(Keys(8, 1)) == 5);
  CHECK(memory.LeadingHits(Keys(5, 2)) == 5);
}

TEST_CASE("ChooseDecode keeps a session's worker until it is full") {
  std::vector<AttachedWorker> workers{Decode("a"), Decode("b"), Decode("c")};
  std::vector<const AttachedWorker*> all{&workers[0], &workers[1], &workers[2]};
  std::map<std::string, int> share;
  for (int i = 0; i < 300; ++i) {
    const RouteRequest request = SessionRequest(absl::StrCat("s", i), 10);
    AttachedWorker& home =
        *std::ranges::find(workers, ChooseDecode(all, request, nullptr, {})->link, &AttachedWorker::link);
    ++share[home.link];
    if (&home != &workers[2]) CHECK(ChooseDecode(std::span(all).first(2), request, nullptr, {}) == &home);
    home.load.running_requests = 3;
    CHECK(ChooseDecode(all, request, nullptr, {}) == &home);
    home.load.running_requests = 4;  // max_batch
    CHECK(ChooseDecode(all, request, nullptr, {}) != &home);
    home.load.running_requests = 0;
  }
  for (const char* name : {"a", "b", "c"}) CHECK(share[name] > 70);
}

TEST_CASE("ChooseDecode prefers the worker with the prompt's KV until it is full") {
  std::vector<AttachedWorker> workers{Decode("a"), Decode("b"), Decode("c")};
  std::vector<const AttachedWorker*> all{&workers[0], &workers[1], &workers[2]};
  const RouteRequest request = SessionRequest("", 10);
  Request x, y;
  workers[0].requests = {&x, &y};
  workers[1].load.running_requests = 3;
  workers[2].load.queued_requests = 1;
  CHECK(ChooseDecode(all, request, nullptr, {}) == &workers[2]);
  CHECK(ChooseDecode(all, request, &workers[1], {}) == &workers[1]);
  workers[1].load.running_requests = 4;  // max_batch
  CHECK(ChooseDecode(all, request, &workers[1], {}) == &workers[2]);
  workers[2].load.blocks_free = 10;  // the prompt needs 11
  CHECK(ChooseDecode(all, request, &workers[1], {}) == &workers[0]);
  workers[2].load.blocks_cached = 1;
  CHECK(ChooseDecode(all, request, &workers[1], {}) == &workers[2]);
  CHECK(ChooseDecode({}, request, nullptr, {}) == nullptr);
}

TEST_CASE("Placement leaves out workers that are too small unless all are") {
  AttachedWorker small = Prefill("small"), large = Prefill("large");
  small.info.context = large.info.context = 1000;
  small.info.blocks_total = 4;
  large.info.blocks_total = 40;
  large.prompt_tokens = 1'000'000;  // overloaded, and by far the most expensive
  const std::vector<const AttachedWorker*> prefills{&small, &large};
  CHECK(ChoosePrefill(prefills, SessionRequest("", 3), {}) == &small);
  CHECK(ChoosePrefill(prefills, SessionRequest("", 8), {}) == &large);
  CHECK(ChoosePrefill(prefills, SessionRequest("", 80), {}) == &small);

  AttachedWorker narrow = Decode("narrow"), wide = Decode("wide");
  narrow.info.context = 100;
  wide.info.context = 1000;
  narrow.info.blocks_total = wide.info.blocks_total = 100;
  wide.load.running_requests = 9;
  const std::vector<const AttachedWorker*> decodes{&narrow, &wide};
  RouteRequest request = SessionRequest("", 5);
  request.max_new_tokens = 10;
  CHECK(ChooseDecode(decodes, request, nullptr, {}) == &narrow);
  request.max_new_tokens = 50;
  CHECK(ChooseDecode(decodes, request, nullptr, {}) == &wide);
  CHECK(ChooseDecode(decodes, request, &narrow, {}) == &wide);
}

TEST_CASE("ChooseDecode prefers room for four times the expected output, or for more than none") {
  AttachedWorker small = Decode("small"), large = Decode("large");
  small.info.context = large.info.context = 10'000;
  small.info.blocks_total = 10;  // 160 tokens
  large.info.blocks_total = 20;
  large.load.running_requests = 9;
  const std::vector<const AttachedWorker*> decodes{&small, &large};
  const auto chosen = [&](const RouteRequest& request) { return ChooseDecode(decodes, request, nullptr, {}); };
  RouteRequest request{.id = "r", .prompt_tokens = 100, .max_new_tokens = 9000, .expected_tokens = 15};
  CHECK(chosen(request) == &small);
  SECTION("the output is expected to be longer") {
    request.expected_tokens = 16;
    CHECK(chosen(request) == &large);
    request.max_new_tokens = 60;
    CHECK(chosen(request) == &small);
  }
  SECTION("the client has set max_tokens") {
    request.has_max_tokens = true;
    request.max_new_tokens = 61;
    CHECK(chosen(request) == &large);
  }
  SECTION("the request cannot wait for another worker later") {
    request.max_new_tokens = 61;
    const bool low_priority = GENERATE(true, false);
    (low_priority ? request.priority = kLowPriority : request.at_holder = true);
    CHECK(chosen(request) == &large);
  }
  SECTION("no worker has room for so much") {
    request.expected_tokens = 9000;
    request.prompt_tokens = 159;
    CHECK(chosen(request) == &small);
    request.prompt_tokens = 160;
    CHECK(chosen(request) == &large);
    request.prompt_tokens = 320;
    CHECK(chosen(request) == &small);
  }
}

TEST_CASE("RendezvousWeight is the same in every build") {
  CHECK(RendezvousWeight("", "") == 0xcfa3c5eb015b4663);
  CHECK(RendezvousWeight("session", "127.0.0.1:7001") == 0xb64584a4a54ba9b0);
  CHECK(RendezvousWeight("a", "b") != RendezvousWeight("b", "a"));
}

}  // namespace
}  // namespace baton
