#include "agent/context_store.h"

#include <numeric>
#include <random>

#include "base/clock.h"
#include "catch.h"

namespace baton {
namespace {

std::vector<TokenId> Tokens(TokenId first, int count) {
  std::vector<TokenId> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

const ContextKey kKey{"tenant", "c"};

// A store whose calls end as soon as they have begun.
struct World {
  ManualClock clock;
  ContextStore store{{.contexts = 6, .tokens = 200}};

  // Returns the whole prompt, or the error of a refused call.
  absl::StatusOr<std::vector<TokenId>> Append(const std::vector<TokenId>& tokens, std::optional<int64_t> length = {},
                                              const WorkerAddress& worker = "p", const ContextKey& key = kKey,
                                              const std::string& model = "m") {
    auto view = store.BeginAppend(key, model, length, clock.Now());
    if (!view.ok()) return view.status();
    view->tokens.insert(view->tokens.end(), tokens.begin(), tokens.end());
    const absl::Status status = store.Complete(key, view->tokens);
    store.EndAppend(key, status.ok() ? worker : "", clock.Now());
    store.CheckInvariants();
    if (!status.ok()) return status;
    return view->tokens;
  }
  absl::StatusOr<std::vector<TokenId>> Read(std::optional<int64_t> length = {}, const ContextKey& key = kKey,
                                            const std::string& model = "m") {
    auto view = store.BeginRead(key, model, length, clock.Now());
    if (!view.ok()) return view.status();
    store.EndRead(key, "", clock.Now());
    store.CheckInvariants();
    return view->tokens;
  }
};

TEST_CASE("ContextStore extends a context and accepts a repeated call") {
  World w;
  CHECK(*w.Append(Tokens(0, 5), 0) == Tokens(0, 5));
  CHECK(*w.Append(Tokens(5, 5), 5) == Tokens(0, 10));
  CHECK(*w.Append(Tokens(10, 2)) == Tokens(0, 12));
  for (int i = 0; i < 2; ++i) {
    CHECK(*w.Append(Tokens(0, 5), 0) == Tokens(0, 5));
    CHECK(*w.Append(Tokens(5, 5), 5) == Tokens(0, 10));
  }
  CHECK(*w.Append({}, 12) == Tokens(0, 12));
  CHECK(*w.Read(12) == Tokens(0, 12));
  CHECK(w.store.tokens() == 12);
}

TEST_CASE("ContextStore refuses a call with another length and changes nothing") {
  World w;
  REQUIRE(w.Append(Tokens(0, 8), 0).ok());
  CHECK(w.Append(Tokens(8, 1), 9).status() ==
        absl::FailedPreconditionError("context_length: expected 8 (the length of context 'c'), got 9"));
  const std::string other =
      "context_length: expected 8 (the length of context 'c'), got 4; the context continues there with "
      "other tokens than this call appends";
  CHECK(w.Append(Tokens(5, 2), 4).status() == absl::FailedPreconditionError(other));
  // The call adds more than the context has, though it begins with the same tokens.
  CHECK(w.Append(Tokens(4, 5), 4).status() == absl::FailedPreconditionError(other));
  CHECK(w.Read(7).status() ==
        absl::FailedPreconditionError("context_length: expected 8 (the length of context 'c'), got 7"));
  CHECK(*w.Read() == Tokens(0, 8));
}

TEST_CASE("ContextStore removes a context when its first call fails") {
  World w;
  CHECK(w.Append(Tokens(0, 4), 0, "").ok());
  CHECK(absl::IsNotFound(w.Read().status()));
  CHECK(w.store.size() == 0);
  REQUIRE(w.Append(Tokens(0, 4), 0).ok());
  CHECK(w.Append(Tokens(4, 4), 4, "").ok());
  CHECK(*w.Append(Tokens(4, 1), 4) == Tokens(0, 5));
  CHECK(w.store.tokens() == 5);
}

TEST_CASE("ContextStore drops a context when its lease ends and no call uses it") {
  World w;
  REQUIRE(w.Append(Tokens(0, 4), 0).ok());
  for (int i = 0; i < 2; ++i) {
    w.clock.Advance(w.store.lease() - absl::Seconds(1));
    CHECK(w.Read().ok());  // counts as a use
  }
  REQUIRE(w.store.BeginRead(kKey, "m", {}, w.clock.Now()).ok());
  w.clock.Advance(10 * w.store.lease());
  w.store.Tick(w.clock.Now());
  CHECK(w.store.size() == 1);
  w.store.EndRead(kKey, "p", w.clock.Now());
  w.clock.Advance(w.store.lease() - absl::Seconds(1));
  w.store.Tick(w.clock.Now());
  CHECK(w.store.size() == 1);
  w.clock.Advance(absl::Seconds(1));
  const absl::Status expired =
      absl::NotFoundError("context_id: no context 'c' at this router; a context is kept for 1m after its last use");
  CHECK(w.Read().status() == expired);
  CHECK(w.Append(Tokens(4, 1), 4).status() == expired);
  CHECK(w.store.size() == 0);
  CHECK(w.store.tokens() == 0);
  CHECK(*w.Append(Tokens(4, 1)) == Tokens(4, 1));
}

TEST_CASE("ContextStore separates cache domains and models") {
  World w;
  REQUIRE(w.Append(Tokens(0, 4), 0).ok());
  CHECK(absl::IsNotFound(w.Read({}, {"other", "c"}).status()));
  CHECK(*w.Append(Tokens(7, 2), 0, "p", {"other", "c"}) == Tokens(7, 2));
  CHECK(*w.Read() == Tokens(0, 4));
  const absl::Status mismatch = absl::FailedPreconditionError("model: context 'c' is of model 'm', got 'n'");
  CHECK(w.Read({}, kKey, "n").status() == mismatch);
  CHECK(w.Append({}, 4, "p", kKey, "n").status() == mismatch);
}

TEST_CASE("ContextStore lets one call append while others read the earlier tokens") {
  World w;
  REQUIRE(w.Append(Tokens(0, 4), 0).ok());
  REQUIRE(w.store.BeginAppend(kKey, "m", 4, w.clock.Now()).ok());
  REQUIRE(w.store.Complete(kKey, Tokens(0, 6)).ok());
  CHECK(absl::IsAborted(w.Append(Tokens(4, 2), 4).status()));
  CHECK(*w.Read(4) == Tokens(0, 4));
  w.store.EndAppend(kKey, "p", w.clock.Now());
  CHECK(*w.Read() == Tokens(0, 6));
}

TEST_CASE("ContextStore names the last holder until that worker is lost") {
  World w;
  REQUIRE(w.Append(Tokens(0, 4), 0, "p").ok());
  REQUIRE(w.Append(Tokens(4, 4), 4, "").ok());
  CHECK(w.store.BeginRead(kKey, "m", {}, w.clock.Now())->holder == "p");
  w.store.EndRead(kKey, "q", w.clock.Now());
  CHECK(w.store.BeginRead(kKey, "m", {}, w.clock.Now())->holder == "q");
  w.store.EndRead(kKey, "", w.clock.Now());
  w.store.WorkerLost("p");
  CHECK(w.store.BeginRead(kKey, "m", {}, w.clock.Now())->holder == "q");
  w.store.WorkerLost("q");
  CHECK(w.store.BeginRead(kKey, "m", {}, w.clock.Now())->holder.empty());
}

TEST_CASE("ContextStore shares contexts and tokens, including those being appended") {
  World w;
  REQUIRE(w.Append(Tokens(0, 60), 0).ok());
  CHECK(w.Append(Tokens(60, 41), 60).status() ==
        absl::ResourceExhaustedError(
            "context_id: the contexts of this router have 60 tokens, 60 of them of this tenant, limit 200; this call "
            "adds 41, and a tenant may have as many as remain for others"));
  REQUIRE(w.store.BeginAppend({"", "d"}, "m", {}, w.clock.Now()).ok());
  REQUIRE(w.store.Complete({"", "d"}, Tokens(0, 40)).ok());
  CHECK(absl::IsResourceExhausted(w.Append(Tokens(60, 40), 60).status()));
  REQUIRE(w.store.BeginAppend({"", "e"}, "m", {}, w.clock.Now()).ok());
  CHECK(w.Append({}, 0, "p", {"", "f"}).status() ==
        absl::ResourceExhaustedError("context_id: this router keeps 3 contexts, 2 of them of this tenant, limit 6; a "
                                     "tenant may have as many as remain for others"));
  w.store.EndAppend({"", "d"}, "", w.clock.Now());
  w.store.EndAppend({"", "e"}, "", w.clock.Now());
  CHECK(w.Append(Tokens(60, 40), 60).ok());
  CHECK(w.store.tokens() == 100);
}

}  // namespace
}  // namespace baton
