#include "frontend/http/http_reply.h"

#include "absl/strings/match.h"
#include "catch.h"

namespace baton {
namespace {

struct ReplyWorld {
  int woken = 0;
  HttpReply reply{HttpReply::Form{}, [this] { ++woken; }};

  // Takes all bytes to send, and marks them as sent.
  std::string Take() {
    std::string out;
    reply.Take(out);
    reply.Sent(out.size());
    return out;
  }
};

const HttpResponse kHead{.status = 200, .headers = {{"x-open", "yes"}}, .body = ""};

TEST_CASE("HttpReply begins a prepared answer with its first part") {
  ReplyWorld w;
  w.reply.Open(kHead, "?");
  CHECK(w.woken == 0);
  w.reply.Write("a");
  CHECK(w.woken == 1);
  const std::string out = w.Take();
  CHECK(absl::StartsWith(out, "HTTP/1.1 200 OK\r\nx-open: yes\r\n"));
  CHECK(absl::EndsWith(out, "\r\n\r\n1\r\na\r\n"));
  CHECK_FALSE(w.reply.TrySend({.status = 500, .headers = {}, .body = {}}));
  w.reply.End();
  CHECK(w.Take() == "0\r\n\r\n");
  CHECK_FALSE(w.reply.BreakSilence());
}

TEST_CASE("HttpReply begins a prepared answer with a comment after a pause") {
  ReplyWorld w;
  w.reply.Open(kHead, "?");
  REQUIRE(w.reply.BreakSilence());
  CHECK(absl::EndsWith(w.Take(), "\r\n\r\n1\r\n?\r\n"));
  REQUIRE(w.reply.BreakSilence());
  // No second sign is queued for a client that has not read the first one.
  CHECK_FALSE(w.reply.BreakSilence());
  CHECK(w.Take() == "1\r\n?\r\n");
  w.reply.Write("a");
  CHECK(w.Take() == "1\r\na\r\n");
  CHECK(w.reply.BreakSilence());
}

TEST_CASE("HttpReply accepts a whole answer until a prepared answer has begun") {
  ReplyWorld w;
  w.reply.Open(kHead, "?");
  CHECK(w.reply.TrySend({.status = 503, .headers = {}, .body = "no"}));
  CHECK(absl::StartsWith(w.Take(), "HTTP/1.1 503 "));
  CHECK_FALSE(w.reply.BreakSilence());
}

TEST_CASE("HttpReply sends nothing before its answer when it was not prepared") {
  ReplyWorld w;
  CHECK_FALSE(w.reply.BreakSilence());
  w.reply.Send({.status = 200, .headers = {}, .body = "a"});
  w.Take();
  CHECK_FALSE(w.reply.BreakSilence());
}

TEST_CASE("An answer without a client drops writes and calls back once") {
  ReplyWorld w;
  w.reply.Open(kHead, "?");
  w.reply.Leave(Gone::kLeft);
  CHECK_FALSE(w.reply.BreakSilence());
  CHECK(w.reply.TrySend({.status = 503, .headers = {}, .body = {}}));
  CHECK(w.Take().empty());
}

TEST_CASE("HttpReply cuts off no client for one large part that it may still be reading") {
  constexpr size_t kMiB = 1 << 20;  // the bound on unread bytes
  ReplyWorld w;
  w.reply.Begin(kHead);
  w.reply.Write(std::string(2 * kMiB, 'p'));
  for (int i = 0; i < 900; ++i) w.reply.Write(std::string(1024, 't'));
  CHECK_FALSE(w.reply.cut_off());
  for (int i = 0; i < 200; ++i) w.reply.Write(std::string(1024, 't'));
  CHECK(w.reply.cut_off());
}

}  // namespace
}  // namespace baton
