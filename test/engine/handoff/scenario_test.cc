// The runner of test/scenario/handoff_*.txt. There is one prefill worker p and one decode worker d.
// Messages arrive only by a command:
//
//   begin REQ tokens=N [new=N] [family=N]  begin the hand-off of a prompt of N tokens
//   ready REQ BEGIN END [layers=N]         compute blocks [BEGIN, END), or their first N layers
//   deliver [WORD]                         the oldest message (that contains WORD) arrives
//   deliver all                            all messages arrive, also those that these cause
//   double WORD                            a message arrives, and a copy of it stays in flight
//   lose WORD                              a message is lost, and its sender gets no answer in time
//   advance SECONDS                        time passes, and no message arrives
//   run SECONDS                            time passes, and all messages arrive
//   cancel prefill|decode REQ              cancel the request on one side
//   start REQ [blocks=N] [generation=+1] [tokens=N] [request=NAME] [incarnation=+1]
//   finish REQ                             the request's sequence ends
//   kill|restart p|d                       end a process, or restart it as another incarnation
//   restart d digest=N|blocks=N|verify=1   with another prefill module or pool, or with --verify-kv
//   restart p old=1                        as an older version that has no digests
//   patient                                p restarts, and waits for answers without a limit
//   keep REQ tokens=N [new=N] [waited=SECONDS] [router=N]  keep room for the request at d
//   keep none [router=N]                   a router no longer wants room at d
//   room                                   show d's report of room
//   local                                  p's writes end with its process, as over shared memory
//   end p                                  kill p, and the operating system reports its end to d
//   forge BLOCK                            overwrite this block of d's slab
//   state                                  show links, hand-offs and blocks
#include "world/scenario.h"

#include <map>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/logging.h"
#include "catch.h"
#include "world/handoff_world.h"

namespace baton {
namespace {

class Scenario {
 public:
  Scenario()
      : world_(
            clock_, absl::Seconds(10), [this](auto e) { mail_.Post(std::move(e)); },
            [this](const std::string& line) { Print(line); }) {
    world_.StartPrefill("p");
    world_.StartDecode("d", 8);
  }

  std::string Run(const ScenarioCommand& command) {
    printed_.clear();
    command_ = &command;
    Execute();
    return printed_;
  }

 private:
  // Appends a line. Masks the beginnings of digests, because contents differ between runs.
  void Print(const std::string& line) {
    std::vector<std::string> words = absl::StrSplit(line, ' ');
    for (std::string& word : words) {
      if (absl::StrContains(word, "...")) word.replace(0, word.find("..."), "H");
    }
    absl::StrAppend(&printed_, absl::StrJoin(words, " "), "\n");
  }
  std::string Word(size_t i) const { return i < command_->words.size() ? command_->words[i] : ""; }
  int32_t Option(const std::string& name, int32_t otherwise) const {
    return static_cast<int32_t>(command_->Number(name, otherwise));
  }
  bool Has(const std::string& name) const { return !command_->Option(name).empty(); }
  static int32_t Number(const std::string& text) {
    int32_t value = 0;
    BATON_CHECK(absl::SimpleAtoi(text, &value), text);
    return value;
  }
  HandoffWorld::Prefill& p() { return world_.prefill("p"); }
  HandoffWorld::Decode& d() { return world_.decode("d"); }

  void Execute() {
    const std::string& name = command_->name;
    if (name == "begin") return Begin();
    if (name == "ready") {
      return world_.BlocksReady(p(), Word(0), Number(Word(1)), Number(Word(2)),
                                Option("layers", static_cast<int32_t>(HandoffWorld::kLayout.layers)));
    }
    if (name == "deliver") return Word(0) == "all" ? DeliverAll() : Arrive(mail_.TakeOldest(Word(0)), false);
    if (name == "double") return Arrive(mail_.TakeOldest(Word(0)), true);
    if (name == "lose") return Lose(mail_.TakeOldest(Word(0)));
    if (name == "advance" || name == "run") return Pass(absl::Seconds(Number(Word(0))), name == "run");
    if (name == "cancel" && Word(0) == "prefill") return world_.CancelPrefill(p(), Word(1));
    if (name == "cancel") return d().receiver->Cancel(Word(1), clock_.Now());
    if (name == "start") return Start();
    if (name == "finish") return static_cast<void>(d().running.erase(Word(0)));
    if (name == "keep") return Keep();
    if (name == "room") return Room();
    if (name == "kill" || name == "restart") return Restart(name == "restart");
    if (name == "patient") return Patient();
    if (name == "local") return world_.SetLocal(true);
    if (name == "end") return End();
    if (name == "forge") return world_.Forge(d(), BlockId(static_cast<uint32_t>(Number(Word(0)))));
    if (name == "state") return State();
    BATON_CHECK(false, name);
  }

  void Begin() {
    std::vector<TokenId> prompt =
        HandoffWorld::Prompt(Option("tokens", 1), Option("family", 0), Option("tokens", 1), 0);
    prompts_[Word(0)] = prompt;
    world_.Begin(p(), "d", Word(0), std::move(prompt), Option("new", 1));
  }

  void Arrive(Envelope envelope, bool again) {
    Print(envelope.text);
    envelope.arrive();
    if (again) mail_.Post(std::move(envelope));
  }
  void Lose(const Envelope& envelope) {
    Print("LOST " + envelope.text);
    envelope.lose();
  }
  void DeliverAll() {
    mail_.DeliverAll([this](const Envelope& envelope) { return (Print(envelope.text), true); });
  }

  // Advances the clock in steps, so that leases end and heartbeats are sent at their time.
  void Pass(absl::Duration time, bool deliver) {
    const absl::Time end = clock_.Now() + time;
    if (deliver) DeliverAll();
    while (clock_.Now() < end) {
      absl::Time next = end;
      if (p().sender != nullptr) next = std::min(next, p().sender->NextTick());
      if (d().receiver != nullptr) next = std::min(next, d().receiver->NextTick());
      clock_.Advance(std::max(next - clock_.Now(), absl::Milliseconds(1)));
      world_.Tick();
      if (deliver) DeliverAll();
    }
  }

  void Start() {
    DecodeJob job = world_.JobOf(Word(0), prompts_.at(Word(0)));
    job.blocks = Option("blocks", job.blocks);
    std::vector<TokenId> tokens(job.spec.tokens.begin(), job.spec.tokens.end());
    tokens.resize(static_cast<size_t>(Option("tokens", static_cast<int32_t>(tokens.size()))), 7);
    job.spec.tokens = std::move(tokens);
    if (Has("request")) job.request_id = command_->Option("request");
    if (Has("generation")) job.reservation.generation = Generation(job.reservation.generation.value() + 1);
    if (Has("incarnation")) job.decode_incarnation = Incarnation(job.decode_incarnation.value() + 1);
    const absl::Status status = world_.Start(d(), job);
    const bool checking = status.ok() && !d().running.contains(job.request_id);
    Print(absl::StrCat("d ", Word(0), " ", checking ? "is checked" : status.ok() ? "STARTED" : "not started: "));
    if (!status.ok()) printed_.insert(printed_.size() - 1, Mask(std::string(status.message())));
  }
  // Masks generations, because they are random.
  static std::string Mask(const std::string& text) {
    std::vector<std::string> words = absl::StrSplit(text, ' ');
    for (size_t i = 1; i < words.size(); ++i) {
      if (words[i - 1] == "generation") words[i] = "G";
    }
    return absl::StrJoin(words, " ");
  }

  void Keep() {
    d().receiver->Keep(RouterStream(static_cast<uint64_t>(Option("router", 1))),
                       {.request_id = Word(0) == "none" ? "" : Word(0),
                        .kv_tokens = Option("tokens", 1) - 1,
                        .expected_new_tokens = Option("new", 1),
                        .waited = absl::Seconds(Option("waited", 0))},
                       clock_.Now());
  }
  void Room() {
    const RoomReport report = d().receiver->TakeRoom();
    Print(absl::StrCat("d has room for ", report.requests, " refused requests",
                       report.kept.empty() ? "" : absl::StrCat(" and for ", report.kept)));
  }

  void Restart(bool again) {
    if (Word(0) == "p") {
      world_.KillPrefill("p");
      if (again) world_.StartPrefill("p", Option("old", 0) == 0);
      return;
    }
    world_.KillDecode("d");
    Digest digest{};
    digest[0] = static_cast<uint8_t>(Option("digest", 0));
    if (again) world_.StartDecode("d", Option("blocks", 8), digest, Option("verify", 0) == 1);
  }

  void Patient() {
    world_.KillPrefill("p");
    world_.SetAnswerWithin(absl::InfiniteDuration());
    world_.StartPrefill("p");
  }
  void End() {
    const std::string process = HandoffWorld::ProcessOf(p());
    world_.KillPrefill("p");
    world_.ReportProcessEnd(process);
  }

  void State() {
    if (p().sender != nullptr) {
      static constexpr const char* kNames[] = {"unlinked", "linking", "linked", "refused", "lost"};
      Print(absl::StrCat("p: ", kNames[static_cast<int>(p().sender->link_state("d"))], ", ", p().sender->handoffs(),
                         " hand-offs", p().sender->idle() ? ", idle" : ""));
    }
    if (d().receiver != nullptr) {
      const HandoffReceiver::Outstanding outstanding = d().receiver->outstanding();
      const BlockPool::Counts counts = d().pool->counts();
      Print(absl::StrCat("d: ", outstanding.reserved, " reserved, ", outstanding.committed,
                         " committed; blocks: ", counts.free, " free, ", counts.referenced, " referenced, ",
                         counts.cached, " cached, ", counts.quarantined, " quarantined"));
    }
    for (const auto& envelope : mail_.in_flight()) Print("in flight: " + envelope.text);
  }

  ManualClock clock_;
  Mail mail_;
  HandoffWorld world_;
  std::map<RequestId, std::vector<TokenId>> prompts_;
  const ScenarioCommand* command_ = nullptr;
  std::string printed_;
};

TEST_CASE("Hand-offs behave as their scenarios when messages and workers are lost") {
  spdlog::set_level(spdlog::level::off);
  const int files = RunScenarios<Scenario>({"handoff_"});
  spdlog::set_level(spdlog::level::info);
  CHECK(files == 64);
}

}  // namespace
}  // namespace baton
