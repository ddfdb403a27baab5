#include "engine/prefill/staging_client.h"

#include <memory>
#include <vector>

#include "catch.h"
#include "engine/prefill/prompts.h"

namespace baton {
namespace {

constexpr int64_t kCacheBlocks = 4;

struct Client {
  // Computes a prompt that fills the pool, so that all other blocks are evicted.
  void Fill(TokenId first) {
    const auto prompt = MakePrompt("filler", first, kCacheBlocks);
    std::vector<BlockRef> blocks;
    for (int64_t i = 0; i < kCacheBlocks; ++i) {
      blocks.push_back(client.Allocate());
      tree.Promise(std::span(prompt->keys).first(static_cast<size_t>(i) + 1), blocks.back());
      tree.MakeReady(prompt->keys[static_cast<size_t>(i)]);
    }
    client.staging().EndStep(true);
  }

  explicit Client(StagingOptions options = {.host = 8, .disk = 0}) : client(tree, options, kCacheBlocks) {}

  BlockPool pool{kCacheBlocks};
  RadixTree tree{pool};
  StagingClient client;
};

}  // namespace

TEST_CASE("StagingClient expects evicted blocks and brings them back as promises") {
  Client c;
  const auto prompt = MakePrompt("a", 1, kCacheBlocks);
  c.Fill(1);
  c.Fill(2);
  CHECK(c.client.Expect(*prompt, 0) == kCacheBlocks * kBlockTokens);
  CHECK_FALSE(c.client.WaitsForDisk(*prompt));  // its blocks are in host memory
  CHECK(c.client.BringBack(*prompt, StepPlan(64 * kBlockTokens)));
  CHECK(prompt->planned == kCacheBlocks * kBlockTokens);
  CHECK(prompt->counters.from_host == kCacheBlocks * kBlockTokens);
  CHECK(c.client.staging().copies().in.size() == static_cast<size_t>(kCacheBlocks));
  CHECK(c.tree.Find(prompt->keys[0]) == RadixTree::State::kPromised);
  for (const BlockKey& key : prompt->keys) c.tree.MakeReady(key);
  c.client.Release(*prompt);
  c.client.staging().EndStep(true);
  c.client.staging().CheckInvariants();
}

TEST_CASE("StagingClient looks again for blocks that were evicted since a prompt arrived") {
  Client c;
  const auto prompt = MakePrompt("a", 1, kCacheBlocks);
  c.Fill(1);
  CHECK(c.client.Expect(*prompt, 0) == kCacheBlocks * kBlockTokens);
  CHECK(prompt->staged_begin == prompt->staged_end);
  c.Fill(2);
  CHECK_FALSE(c.client.WaitsForDisk(*prompt));
  CHECK(prompt->staged_end - prompt->staged_begin == static_cast<size_t>(kCacheBlocks));
  prompt->looked_again = true;
  c.client.Release(*prompt);
  CHECK_FALSE(c.client.WaitsForDisk(*prompt));
  CHECK(prompt->staged_begin == prompt->staged_end);
}

TEST_CASE("StagingClient holds no staged block for a low-priority job") {
  Client c;
  c.Fill(1);
  c.Fill(2);
  const auto evicted = MakePrompt("a", 1, kCacheBlocks), cached = MakePrompt("b", 2, kCacheBlocks);
  evicted->spec.priority = cached->spec.priority = kLowPriority;
  CHECK(c.client.Expect(*evicted, 0) == 0);
  CHECK(evicted->staged_begin == evicted->staged_end);
  CHECK(c.client.Expect(*cached, 0) == kCacheBlocks * kBlockTokens);
}

TEST_CASE("StagingClient::Protect lets blocks of a waiting prompt be evicted last") {
  for (const bool is_protected : {true, false}) {
    Client c;
    const auto waits = MakePrompt("a", 1, 2), other = MakePrompt("b", 2, 2);
    Cache(c.tree, *waits);
    Cache(c.tree, *other);
    c.client.Protect(*waits);
    CHECK(waits->protection.has_value());
    if (!is_protected) c.client.Unprotect(*waits);
    const BlockRef one = c.client.Allocate(), two = c.client.Allocate();
    CHECK(c.tree.ReadyPrefix(waits->keys) == (is_protected ? 2 : 0));
    c.client.Unprotect(*waits);
  }
}

TEST_CASE("StagingClient protects blocks longer when the queued prompt has higher priority") {
  Client c;
  const auto urgent = MakePrompt("a", 1, 2), other = MakePrompt("b", 2, 2);
  urgent->spec.priority = 1;
  urgent->queue_order = absl::UnixEpoch() + absl::Seconds(1);
  urgent->arrival = 9;
  Cache(c.tree, *urgent);  // less recently used than the other prompt's blocks
  Cache(c.tree, *other);
  other->queue_order = absl::UnixEpoch();
  c.client.Protect(*urgent);
  c.client.Protect(*other);
  const BlockRef one = c.client.Allocate(), two = c.client.Allocate();
  CHECK(c.tree.ReadyPrefix(urgent->keys) == 2);
  CHECK(c.tree.ReadyPrefix(other->keys) == 0);
  c.client.Unprotect(*urgent);
  c.client.Unprotect(*other);
}

TEST_CASE("StagingClient protects no prompt that streams or has negative priority") {
  Client c;
  const auto prompt = MakePrompt("a", 1, 2);
  c.client.Protect(*prompt);
  CHECK_FALSE(prompt->protection.has_value());
  Cache(c.tree, *prompt);
  prompt->streaming = true;
  c.client.Protect(*prompt);
  CHECK_FALSE(prompt->protection.has_value());
  prompt->streaming = false;
  prompt->spec.priority = -1;
  c.client.Protect(*prompt);
  CHECK_FALSE(prompt->protection.has_value());
  prompt->spec.priority = 0;
  c.client.Protect(*prompt);
  CHECK(prompt->protection.has_value());
  c.client.Unprotect(*prompt);
}

}  // namespace baton
