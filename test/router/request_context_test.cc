#include "router/request_context.h"

#include "base/strings.h"
#include "catch.h"
#include "model/byte_model.h"

namespace baton {
namespace {

// A store with chats of the model "bytes", whose messages are rendered already.
struct Chats {
  ClientRequest Chat(const std::string& rendered, bool prefill_only = false) const {
    ClientRequest request;
    request.served = &model;
    request.spec.tokens = std::vector<TokenId>(rendered.begin(), rendered.end());
    request.form.paths.prompt = "messages";
    request.context.id = "c";
    request.context.is_within_prompt = true;
    request.prefill_only = prefill_only;
    return request;
  }
  // Runs a request whose prompt is complete. Returns the error.
  std::string Run(ClientRequest request) {
    const absl::Status status = BeginContext(store, request, absl::UnixEpoch());
    if (status.ok()) EndContext(store, request, "p", absl::UnixEpoch());
    store.CheckInvariants();
    return std::string(Message(status));
  }

  const ServedModel model = ByteModel("bytes");
  ContextStore store{ContextLimits()};
};

TEST_CASE("A chat with a context has its tokens once") {
  Chats chats;
  CHECK(chats.Run(chats.Chat("<u>hi", true)).empty());
  CHECK(chats.store.tokens() == 5);
  ClientRequest next = chats.Chat("<u>hi<a>");
  REQUIRE(BeginContext(chats.store, next, absl::UnixEpoch()).ok());
  CHECK(next.spec.tokens.size() == 8);
  CHECK(next.context.tokens == 5);
  CHECK(next.context.holder == "p");
  CHECK(LeaseOf(chats.store, next).tokens == 5);
  EndContext(chats.store, next, "p", absl::UnixEpoch());
  CHECK(chats.Run(chats.Chat("<u>hi<a>yes<u>", true)).empty());
  CHECK(chats.store.tokens() == 14);
}

TEST_CASE("A chat that does not begin with its context is refused by the first difference") {
  Chats chats;
  REQUIRE(chats.Run(chats.Chat("<u>hi\n", true)).empty());
  const bool appends = GENERATE(false, true);
  const std::string begin = "messages: the rendered messages must begin with the 6 tokens of context 'c', but ";
  CHECK(chats.Run(chats.Chat("<u>ho\n<a>", appends)) ==
        begin + "differ at token 4: expected 'i' (id 105), got 'o' (id 111)");
  CHECK(chats.Run(chats.Chat("<u>hi<a>", appends)) ==
        begin + "differ at token 5: expected '\\n' (id 10), got '<' (id 60)");
  CHECK(chats.Run(chats.Chat("<u>h", appends)) == begin + "have only 4");
  CHECK(chats.store.tokens() == 6);
}

TEST_CASE("A chat with a reference is compared with its context as its tokens arrive") {
  Chats chats;
  REQUIRE(chats.Run(chats.Chat("<u>hi<a>yes", true)).empty());
  const auto with_output = [&](const std::string& before) {
    ClientRequest request = chats.Chat("");
    request.spec.tokens = {};
    request.prompt.segments = {std::vector<TokenId>(before.begin(), before.end()), Reference{.upstream = "up"}};
    return request;
  };
  CHECK(chats.Run(with_output("<u>ho<a>")).ends_with("differ at token 4: expected 'i' (id 105), got 'o' (id 111)"));
  const auto [output, error] =
      GENERATE(table<std::string, std::string>({{"yes", ""},
                                                {"yes, sir", ""},
                                                {"no", "differ at token 8: expected 'y' (id 121), got 'n' (id 110)"},
                                                {"ye", "have only 10"}}));
  ClientRequest request = with_output("<u>hi<a>");
  REQUIRE(BeginContext(chats.store, request, absl::UnixEpoch()).ok());
  const std::string whole = "<u>hi<a>" + output;
  request.spec.tokens = std::vector<TokenId>(whole.begin(), whole.end());
  const absl::Status status = CompleteContext(chats.store, request);
  CHECK(status.ok() == error.empty());
  CHECK(Message(status).ends_with(error));
  if (!status.ok()) CHECK(absl::IsFailedPrecondition(status));
  EndContext(chats.store, request, status.ok() ? "p" : "", absl::UnixEpoch());
}

}  // namespace
}  // namespace baton
