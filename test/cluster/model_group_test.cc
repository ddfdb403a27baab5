// Tests of one prefill module with many decoders, on real processes. A reference in PyTorch has
// made the expected tokens (tools/make_goldens).
#include "model_group.h"

#include <array>
#include <csignal>
#include <fstream>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "await.h"
#include "base/strings.h"
#include "catch.h"
#include "nlohmann/json.hpp"
#include "programs.h"
#include "scrape.h"
#include "source_path.h"

namespace baton {
namespace {

// A router with a prefill worker of the module. The router starts with the module's model alone,
// and the decoders bring their own models.
struct Group {
  Worker prefill{"prefill", Small({"--listen", "127.0.0.1:0"}, kModule)};
  Process router;
  std::unique_ptr<v1::Inference::Stub> stub;

  explicit Group(const std::vector<const Worker*>& decoders)
      : router("baton-router", {"--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--model", kModule, "--worker-wait",
                                "2", "--prefill-workers", prefill.address, "--decode-workers", Addresses(decoders)}),
        stub(v1::Inference::NewStub(DialTcp(router.Await("listening on ")))) {
    router.Await(absl::StrCat("worker ", prefill.address, ": attached"));
    for (const Worker* decoder : decoders) router.Await(absl::StrCat("worker ", decoder->address, ": attached"));
    router.Await("info serving");
  }
  static std::string Addresses(const std::vector<const Worker*>& decoders) {
    std::string list;
    for (const Worker* decoder : decoders) absl::StrAppend(&list, list.empty() ? "" : ",", decoder->address);
    return list;
  }
};

TEST_CASE("A decoder continues the module's KV like the PyTorch reference") {
  const Decoders made;
  const Worker tuned("decode", DecoderOf(made.Reversed("tuned")));
  const Group group({&tuned});
  const nlohmann::json golden = nlohmann::json::parse(ReadFile(SourcePath("test/golden/shared_prefill.json")));
  REQUIRE(golden.size() >= 20);
  for (const auto& entry : golden) {
    const std::vector<int32_t> tokens = entry["tokens"];
    CHECK(Get(*group.stub, Ask("tuned", entry["prompt"], static_cast<int>(tokens.size()))).ids == tokens);
  }
}

TEST_CASE("A decoder with the module's weights gives exactly the plain model's tokens") {
  const Decoders made;
  const Worker plain("decode", Small({"--listen", "127.0.0.1:0"}, kModule));
  const Worker copy("decode", DecoderOf(made.Copy("copy")));
  const Group group({&plain, &copy});
  for (int i = 0; i < 20; ++i) {
    std::vector<int32_t> prompt;
    for (int k = 0; k < 2 + 6 * i; ++k) prompt.push_back(2 + (k * 11 + i * 31) % 250);
    CHECK(Get(*group.stub, Ask("copy", prompt, 24)) == Get(*group.stub, Ask("tiny_llama3_f32", prompt, 24)));
  }
}

TEST_CASE("A session's next turn gives the tokens of a fresh request at any decoder") {
  const Decoders made;
  const Worker tuned("decode", DecoderOf(made.Reversed("tuned"))), copy("decode", DecoderOf(made.Copy("copy")));
  const Group group({&tuned, &copy});
  std::vector<int32_t> context;
  for (int k = 0; k < 70; ++k) context.push_back(2 + (k * 13) % 250);
  for (const std::string model : {"tuned", "copy", "tuned", "tuned", "copy"}) {
    v1::GenerateRequest request = Ask(model, context, 40);
    request.set_cache_salt(absl::StrCat("only of ", context.size(), " tokens"));
    const Answer fresh = Get(*group.stub, request);
    request.set_cache_salt("");
    request.set_session_id("s");
    const Answer turn = Get(*group.stub, request);
    CHECK(turn == fresh);
    CHECK((context.size() == 70 || turn.cached >= 64));
    context.insert(context.end(), turn.ids.begin(), turn.ids.end());
    context.push_back(7);
    if (context.size() > 400) break;
  }
}

TEST_CASE("Shadow prefill serves a session's next turn at any decoder") {
  const Decoders made;
  Worker tuned("decode", DecoderOf(made.Reversed("tuned"))), copy("decode", DecoderOf(made.Copy("copy")));
  Group group({&tuned, &copy});
  std::vector<int32_t> context(50, 9);
  const auto ask = [&](const std::string& model, const std::string& session) {
    v1::GenerateRequest request = Ask(model, context, 100);
    request.set_session_id(session);
    return request;
  };
  const Answer first = Get(*group.stub, ask("tuned", "s"));
  context.insert(context.end(), first.ids.begin(), first.ids.end());
  context.insert(context.end(), {3, 1, 4});
  // The shadow prefill ends a little later. It has then computed 149 tokens, which fill 9 whole
  // blocks.
  Await("the shadow prefill to end", [&] {
    return Scrape(group.prefill.metrics, "baton_worker_jobs_total{code=\"OK\",role=\"prefill\"}").value_or(0) >= 2;
  });
  const Answer next = Get(*group.stub, ask("copy", "s"));
  CHECK(next.cached == 144);
  v1::GenerateRequest fresh = ask("copy", "");
  fresh.set_cache_salt("nothing is shared");
  CHECK(Get(*group.stub, fresh) == next);
  for (Worker* worker : {&group.prefill, &tuned, &copy}) worker->AwaitBlocksFree();
}

TEST_CASE("A lost decoder gives a clear error, and its session continues at another") {
  const Decoders made;
  std::optional<Worker> tuned(std::in_place, "decode", DecoderOf(made.Reversed("tuned")));
  const Worker copy("decode", DecoderOf(made.Copy("copy")));
  const Group group({&*tuned, &copy});
  std::vector<int32_t> context(50, 9);
  const auto ask = [&](const std::string& model) {
    v1::GenerateRequest request = Ask(model, context, 8);
    request.set_session_id("s");
    return request;
  };
  CHECK(Get(*group.stub, ask("tuned")).ids.size() == 8);
  const std::string address = tuned->address;
  tuned.reset();
  absl::Status status;
  do {  // until the router has lost it
    Call call(*group.stub, ask("tuned"));
    status = call.Finish();
  } while (status.ok());
  CHECK(absl::IsUnavailable(status));
  Call later(*group.stub, ask("tuned"));
  status = later.Finish();
  CHECK(Message(status) == "no decode worker for model 'tuned' is attached");
  const Answer answer = Get(*group.stub, ask("copy"));
  CHECK(answer.ids.size() == 8);
  CHECK(answer.cached >= 48);

  // A decoder that the router has not seen replaces it.
  const Worker back("decode", DecoderOf(made.Reversed("another"), address));
  Await("the decoder to serve", [&] { return Call(*group.stub, ask("another")).Finish().ok(); });
}

TEST_CASE("A session's next turn finds its KV after its decoder died in mid-answer") {
  const Decoders made;
  Worker tuned("decode", DecoderOf(made.Reversed("tuned"))), copy("decode", DecoderOf(made.Copy("copy")));
  Group group({&tuned, &copy});
  std::vector<int32_t> context(50, 9);
  const auto ask = [&](const std::string& model, const std::string& session, int max_tokens) {
    v1::GenerateRequest request = Ask(model, context, max_tokens);
    request.set_session_id(session);
    return request;
  };
  const std::unique_ptr<Call> broken = StopWhileItDecodes(tuned, *group.stub, ask("tuned", "s", 440));
  tuned.process.Signal(SIGKILL);
  const absl::Status status = broken->Finish();
  REQUIRE(broken->ids.size() < 440);  // it had not finished
  CHECK(absl::IsUnavailable(status));
  CHECK(Message(status) == "no decode worker for model 'tuned' is attached");
  group.prefill.AwaitBlocksFree();

  // The prompt continues with the output so far, of which a client may keep any part.
  context.insert(context.end(), broken->ids.begin(), broken->ids.begin() + 1);
  context.insert(context.end(), {3, 1, 4});
  const Answer next = Get(*group.stub, ask("copy", "s", 8));
  CHECK(next.cached >= 48);
  v1::GenerateRequest fresh = ask("copy", "", 8);
  fresh.set_cache_salt("nothing is shared");
  CHECK(Get(*group.stub, fresh) == next);
  for (Worker* worker : {&group.prefill, &copy}) worker->AwaitBlocksFree();
}

// Returns the decode worker that has served requests, and the one that has not.
std::pair<Worker*, Worker*> UsedAndOther(Worker& first, Worker& second) {
  const auto served = [](const Worker& worker) {
    return Scrape(worker.metrics, "baton_worker_jobs_total{code=\"OK\",role=\"decode\"}").value_or(0) >= 1;
  };
  Await("a worker to count its job", [&] { return served(first) || served(second); });
  const bool is_first = served(first);
  CHECK_FALSE(served(is_first ? second : first));
  return is_first ? std::pair(&first, &second) : std::pair(&second, &first);
}

TEST_CASE("A tuned decoder goes on with an equal decoder's output when that one dies") {
  const Decoders made;
  const std::string directory = made.Reversed("tuned");
  Worker first("decode", DecoderOf(directory)), second("decode", DecoderOf(directory));
  Group group({&first, &second});
  v1::GenerateRequest request = Ask("tuned", std::vector<int32_t>(50, 9), 1);
  request.set_session_id("s");
  Get(*group.stub, request);
  const auto [home, other] = UsedAndOther(first, second);
  request.mutable_sampling()->set_max_tokens(440);
  v1::GenerateRequest undisturbed = request;
  undisturbed.set_cache_salt("undisturbed");
  const Answer expected = Get(*group.stub, undisturbed);

  const std::unique_ptr<Call> call = StopWhileItDecodes(*home, *group.stub, request);
  home->process.Signal(SIGKILL);
  const absl::Status status = call->Finish();
  INFO(Message(status));
  REQUIRE(status.ok());
  // KV of the output by the prefill module would give other tokens.
  CHECK(call->ids == expected.ids);
  CHECK(call->logprobs == expected.logprobs);
  for (Worker* worker : {&group.prefill, other}) worker->AwaitBlocksFree();
}

TEST_CASE("A request restarts at an equal decoder when its first one dies early") {
  const Decoders made;
  const std::string directory = made.Reversed("tuned");
  Worker first("decode", DecoderOf(directory)), second("decode", DecoderOf(directory));
  Group group({&first, &second});
  v1::GenerateRequest request = Ask("tuned", std::vector<int32_t>(50, 9), 40);
  request.set_session_id("s");
  const Answer expected = Get(*group.stub, request);
  const auto [home, other] = UsedAndOther(first, second);

  home->process.Signal(SIGSTOP);  // a stopped worker sends no token
  Call call(*group.stub, request);
  Await("the router to take the request", [&] { return ServerInfoOf(*group.stub).live_requests() >= 1; });
  home->process.Signal(SIGKILL);
  const absl::Status status = call.Finish();
  INFO(Message(status));
  REQUIRE(status.ok());
  CHECK(call.ids == expected.ids);
  CHECK(call.logprobs == expected.logprobs);
  CHECK(call.final.usage().cached_tokens() >= 48);
  for (Worker* worker : {&group.prefill, other}) worker->AwaitBlocksFree();
}

TEST_CASE("A context of one model continues at all models of its prefill module") {
  const Decoders made;
  const Worker tuned("decode", DecoderOf(made.Reversed("tuned"))), copy("decode", DecoderOf(made.Copy("copy")));
  const Group group({&tuned, &copy});
  const std::vector<int32_t> prompt(81, 9), front(prompt.begin(), prompt.begin() + 64), rest(17, 9);
  v1::GenerateRequest begin = Ask("tiny_llama3_f32", front, 0);
  begin.set_context_id("c");
  CHECK(Get(*group.stub, begin).ids.empty());
  for (const std::string model : {"tuned", "copy"}) {
    v1::GenerateRequest whole = Ask(model, prompt, 12), continued = Ask(model, rest, 12);
    whole.set_cache_salt(model);
    continued.set_context_id("c");
    const Answer answer = Get(*group.stub, continued);
    CHECK(answer == Get(*group.stub, whole));
    CHECK(answer.cached >= 48);  // the context's last token has no KV yet
  }
}

TEST_CASE("Eight decoders hold one context once and receive only new blocks") {
  const Decoders made;
  EightDecoders group(made, kModule);
  const auto computed = [&] { return Computed(group.metrics); };
  const auto moved = [&] { return Moved(group.metrics); };
  const auto held = [&] { return HeldAtPrefill(group.metrics); };
  std::vector<int32_t> context(161, 5);  // 10 blocks of KV
  for (const std::string& name : group.names) CHECK(Get(*group.stub, Ask(name, context, 1)).ids.size() == 1);
  CHECK(Becomes(computed, 160) == 160);
  CHECK(Becomes(moved, 8 * 10 * kBlockBytes) == 8 * 10 * kBlockBytes);
  CHECK(Becomes(held, 10) == 10);
  // In the next turn, each decoder receives one more block, which is computed once.
  context.insert(context.end(), 16, 6);
  for (const std::string& name : group.names) CHECK(Get(*group.stub, Ask(name, context, 1)).ids.size() == 1);
  CHECK(Becomes(computed, 176) == 176);
  CHECK(Becomes(moved, 8 * 11 * kBlockBytes) == 8 * 11 * kBlockBytes);
  CHECK(Becomes(held, 11) == 11);
  // Each decoder then has 40 tokens of its own, which are held and moved for it alone. They fill
  // two whole blocks and begin a third, which moves too.
  for (int i = 0; i < 8; ++i) {
    std::vector<int32_t> own = context;
    own.insert(own.end(), 40, 10 + i);
    CHECK(Get(*group.stub, Ask(group.names[static_cast<size_t>(i)], own, 1)).ids.size() == 1);
  }
  CHECK(Becomes(computed, 176 + 8 * 40) == 176 + 8 * 40);
  CHECK(Becomes(moved, 8 * 14 * kBlockBytes) == 8 * 14 * kBlockBytes);
  CHECK(Becomes(held, 11 + 8 * 2) == 11 + 8 * 2);
  // Metrics show each decoder's own memory.
  for (const std::string& name : group.names) {
    INFO(name);
    CHECK(Becomes([&] { return CachedAtDecode(group.metrics, name); }, 13) == 13);
  }
}

TEST_CASE("Decoders of one process give the same tokens busy and alone") {
  const Decoders made;
  Process serve("baton", {"serve", kModule, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--threads", "3",
                          "--kv-memory-mb", "8", "--decoder", made.Reversed("tuned"), "--decoder", made.Copy("copy")});
  const auto stub = v1::Inference::NewStub(DialTcp(serve.Await("listening on ")));
  const auto ask = [](int i) {
    const std::vector<int32_t> prompt(20 + i, 3 + i);
    return Ask(std::array{"tiny_llama3_f32", "tuned", "copy"}[i % 3], prompt, 60);
  };
  constexpr int kRequests = 24;
  std::vector<Answer> alone;
  for (int i = 0; i < kRequests; ++i) alone.push_back(Get(*stub, ask(i)));
  for (int round = 0; round < 3; ++round) {
    std::vector<std::unique_ptr<Call>> calls;
    for (int i = 0; i < kRequests; ++i) calls.push_back(std::make_unique<Call>(*stub, ask(i)));
    for (int i = 0; i < kRequests; ++i) {
      const absl::Status status = calls[i]->Finish();
      CHECK(Message(status) == "");
      CHECK(Answer{calls[i]->ids, calls[i]->logprobs} == alone[i]);
    }
  }
}

TEST_CASE("A router refuses other weights under a used name until the name is free") {
  const Decoders made, others;
  std::array<std::optional<Worker>, 2> tuned;
  tuned[0].emplace("decode", DecoderOf(made.Reversed("tuned")));
  tuned[1].emplace("decode", DecoderOf(others.Copy("tuned")));
  const std::array addresses{tuned[0]->address, tuned[1]->address};
  const Worker prefill("prefill", Small({"--listen", "127.0.0.1:0"}, kModule));
  Process router("baton-router", {"--listen", "127.0.0.1:0", "--http", "off", "--model", kModule, "--prefill-workers",
                                  prefill.address, "--decode-workers", absl::StrCat(addresses[0], ",", addresses[1])});
  const auto stub = v1::Inference::NewStub(DialTcp(router.Await("listening on ")));
  router.Await(absl::StrCat("worker ", prefill.address, ": attached"));
  const std::string why = router.Await(": refused: model 'tuned': ");
  INFO(why);
  for (const std::string& address : addresses) CHECK(why.find(" at " + address) != std::string::npos);
  const int second = router.Output().find(absl::StrCat("worker ", addresses[1], ": refused")) != std::string::npos;
  router.Await(absl::StrCat("worker ", addresses[1 - second], ": attached"));

  const v1::GenerateRequest ask = Ask("tuned", std::vector<int32_t>(50, 9), 20);
  const Answer answer = Get(*stub, ask);
  for (int i = 0; i < 10; ++i) CHECK(Get(*stub, ask) == answer);
  tuned[1 - second].reset();
  router.Await(absl::StrCat("worker ", addresses[second], ": attached"));
  CHECK_FALSE(Get(*stub, ask) == answer);
}

TEST_CASE("A decoder refuses to start with an incompatible module, naming both values") {
  const Decoders made;
  const auto refused = [](const std::string& directory, const std::string& module) {
    Process decode("baton-decode", Small({"--check", "--prefill-module", module}, directory));
    CHECK(decode.Wait() == 1);
    return decode.Output();
  };
  CHECK(refused(kModule, made.With("heads", "num_attention_heads", 2))
            .find("heads: the prefill module has 2, the decoder 4") != std::string::npos);
  CHECK(refused(kModule, made.With("epsilon", "rms_norm_eps", 1.0000001e-5))
            .find("RMS epsilon: the prefill module has 1.0000001e-05, the decoder 1e-05") != std::string::npos);
  CHECK(refused(kModule, made.With("layers", "num_hidden_layers", 2))
            .find("layers: the prefill module has 2, the decoder 3") != std::string::npos);
  CHECK(refused(kModule, SourcePath("test/golden/tiny_qwen3_f32"))
            .find("architecture: the prefill module has qwen3, the decoder llama") != std::string::npos);
  CHECK(refused(kModule, SourcePath("test/golden/tiny_llama3_bf16"))
            .find("dtype: the prefill module has bfloat16, the decoder float32") != std::string::npos);
  const std::string other = made.Copy("tokenizer");
  const std::string tokenizer = ReadFile(other + "/tokenizer.json");
  std::ofstream(other + "/tokenizer.json") << absl::StrReplaceAll(tokenizer, {{"\"<s>\"", "\"<x>\""}});
  CHECK(refused(kModule, other).find("tokenizer: the prefill module has ") != std::string::npos);
  CHECK(refused(kModule, "/nowhere").find("/nowhere") != std::string::npos);
}

TEST_CASE("A decoder of another shape or tokenizer does not start in any program") {
  const Decoders made;
  const std::string other = made.Copy("tokenizer");
  const std::string tokenizer = ReadFile(other + "/tokenizer.json");
  std::ofstream(other + "/tokenizer.json") << absl::StrReplaceAll(tokenizer, {{"\"<s>\"", "\"<x>\""}});
  const std::pair<std::string, const char*> bad[] = {
      {made.Shaped("kv-heads", "num_key_value_heads", 1), "KV heads: the prefill module has 2, the decoder 1"},
      {made.Shaped("head-dim", "head_dim", 8), "head dimension: the prefill module has 16, the decoder 8"},
      {made.Shaped("layers", "num_hidden_layers", 2), "layers: the prefill module has 3, the decoder 2"},
      {other, "tokenizer: the prefill module has "}};
  for (const auto& [directory, why] : bad) {
    Process decode("baton-decode", DecoderOf(directory));
    Process serve("baton", {"serve", kModule, "--listen", "127.0.0.1:0", "--http", "off", "--threads", "1",
                            "--kv-memory-mb", "8", "--decoder", directory});
    for (Process* process : {&decode, &serve}) {
      CHECK(process->Wait() == 1);
      INFO(process->Output());
      CHECK(process->Output().find(why) != std::string::npos);
      CHECK(process->Output().find("listening on ") == std::string::npos);
    }
    CHECK(serve.Output().find("decoder " + directory) != std::string::npos);
  }
}

}  // namespace
}  // namespace baton
