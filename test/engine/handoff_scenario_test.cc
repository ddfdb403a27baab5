// Runs test/scenario/handoff_*.txt: a command, a line of four dashes, what happened. One prefill worker p, one decode
// worker d; messages move only when told to. BATON_UPDATE_GOLDEN=1 rewrites what happened.
//
//   begin REQ tokens=N [new=N] [family=N]   a prompt of N tokens is to be moved
//   ready REQ BEGIN END [layers=N]          blocks [BEGIN, END) are computed, all or the first N layers
//   deliver [WORD]                          the oldest message, or the oldest that contains WORD, arrives
//   deliver all                             whatever is in flight arrives, and whatever that causes
//   double WORD                             a message arrives, and a copy of it stays in flight
//   lose WORD                               a message is lost: its sender gets no answer in time
//   advance SECONDS                         time passes, nothing arrives
//   run SECONDS                             time passes, everything arrives
//   cancel prefill|decode REQ
//   start REQ [blocks=N] [generation=+1] [tokens=N] [request=NAME] [incarnation=+1]
//   finish REQ                              the decoder is done with it
//   kill|restart p|d                        restart: as another incarnation
//   restart d digest=N|blocks=N             with another prefill module, or pool
//   lost                                    p hears from somebody else that d is gone
//   gone                                    d hears from somebody else that the dead p is gone
//   state                                   links, hand-offs and blocks
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/logging.h"
#include "catch.h"
#include "engine/handoff_world.h"

namespace baton {
namespace {

class Scenario {
 public:
  Scenario()
      : world_(
            clock_, absl::Seconds(10), [this](auto e) { in_flight_.push_back(std::move(e)); },
            [this](const std::string& line) { Say(line); }) {
    world_.StartPrefill("p");
    world_.StartDecode("d", 8);
  }

  std::string Run(const std::string& line) {
    said_.clear();
    words_ = absl::StrSplit(line, ' ', absl::SkipWhitespace());
    options_.clear();
    for (const std::string& word : words_) {
      const std::vector<std::string> pair = absl::StrSplit(word, absl::MaxSplits('=', 1));
      if (pair.size() == 2) options_[pair[0]] = pair[1];
    }
    Execute();
    return said_;
  }

 private:
  void Say(const std::string& line) { absl::StrAppend(&said_, line, "\n"); }
  std::string Word(size_t i) const { return i < words_.size() ? words_[i] : ""; }
  int32_t Option(const std::string& name, int32_t otherwise) const {
    const auto it = options_.find(name);
    return it == options_.end() ? otherwise : Number(it->second);
  }
  static int32_t Number(const std::string& text) {
    int32_t value = 0;
    BATON_CHECK(absl::SimpleAtoi(text, &value), text);
    return value;
  }
  HandoffWorld::Prefill& p() { return world_.prefill("p"); }
  HandoffWorld::Decode& d() { return world_.decode("d"); }

  void Execute() {
    const std::string command = Word(0);
    if (command == "begin") return Begin();
    if (command == "ready") {
      return world_.BlocksReady(p(), Word(1), Number(Word(2)), Number(Word(3)),
                                Option("layers", static_cast<int32_t>(HandoffWorld::kLayout.layers)));
    }
    if (command == "deliver") return Deliver();
    if (command == "double") return Arrive(Take(Word(1)), true);
    if (command == "lose") return Lose(Take(Word(1)));
    if (command == "advance" || command == "run") return Pass(absl::Seconds(Number(Word(1))), command == "run");
    if (command == "cancel" && Word(1) == "prefill") return world_.CancelPrefill(p(), Word(2));
    if (command == "cancel") return d().receiver->Cancel(Word(2), clock_.Now());
    if (command == "start") return Start();
    if (command == "finish") return static_cast<void>(d().running.erase(Word(1)));
    if (command == "kill" || command == "restart") return Restart(command == "restart");
    if (command == "lost") return world_.PeerLost(p(), "d");
    if (command == "gone") return d().receiver->WriterGone(p().incarnation, clock_.Now());
    if (command == "state") return State();
    BATON_CHECK(false, command);
  }

  void Begin() {
    std::vector<TokenId> prompt =
        HandoffWorld::Prompt(Option("tokens", 1), Option("family", 0), Option("tokens", 1), 0);
    prompts_[Word(1)] = prompt;
    world_.Begin(p(), "d", Word(1), std::move(prompt), Option("new", 1));
  }

  HandoffWorld::Envelope Take(const std::string& word) {
    const auto it =
        std::ranges::find_if(in_flight_, [&](const auto& e) { return e.text.find(word) != std::string::npos; });
    BATON_CHECK(it != in_flight_.end(), "nothing like this is in flight: " + word);
    HandoffWorld::Envelope envelope = std::move(*it);
    in_flight_.erase(it);
    return envelope;
  }
  void Arrive(HandoffWorld::Envelope envelope, bool again) {
    Say(envelope.text);
    envelope.arrive();
    if (again) in_flight_.push_back(std::move(envelope));
  }
  void Lose(const HandoffWorld::Envelope& envelope) {
    Say("LOST " + envelope.text);
    envelope.lose();
  }
  void Deliver() {
    if (Word(1) != "all") return Arrive(Take(Word(1)), false);
    DeliverAll();
  }
  void DeliverAll() {
    while (!in_flight_.empty()) Arrive(Take(""), false);
  }

  // In steps, so that leases end and heartbeats go out at their time.
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
    DecodeJob job = world_.JobOf(Word(1), prompts_.at(Word(1)));
    job.blocks = Option("blocks", job.blocks);
    job.tokens.resize(static_cast<size_t>(Option("tokens", static_cast<int32_t>(job.tokens.size()))), 7);
    if (options_.contains("request")) job.request_id = options_["request"];
    if (options_.contains("generation"))
      job.reservation.generation = Generation(job.reservation.generation.value() + 1);
    if (options_.contains("incarnation")) job.decode_incarnation = Incarnation(job.decode_incarnation.value() + 1);
    const absl::Status status = world_.Start(d(), job);
    Say(absl::StrCat("d ", Word(1), " ", status.ok() ? "STARTED" : "not started: "));
    if (!status.ok()) said_.insert(said_.size() - 1, Mask(std::string(status.message())));
  }
  // Generations are drawn at random, so they are not shown.
  static std::string Mask(const std::string& text) {
    std::vector<std::string> words = absl::StrSplit(text, ' ');
    for (size_t i = 1; i < words.size(); ++i) {
      if (words[i - 1] == "generation") words[i] = "G";
    }
    return absl::StrJoin(words, " ");
  }

  void Restart(bool again) {
    if (Word(1) == "p") {
      world_.KillPrefill("p");
      if (again) world_.StartPrefill("p");
      return;
    }
    world_.KillDecode("d");
    Digest digest{};
    digest[0] = static_cast<uint8_t>(Option("digest", 0));
    if (again) world_.StartDecode("d", Option("blocks", 8), digest);
  }

  void State() {
    if (p().sender != nullptr) {
      static constexpr const char* kNames[] = {"unlinked", "linking", "linked", "refused", "lost"};
      Say(absl::StrCat("p: ", kNames[static_cast<int>(p().sender->link_state("d"))], ", ", p().sender->handoffs(),
                       " hand-offs", p().sender->idle() ? ", idle" : ""));
    }
    if (d().receiver != nullptr) {
      const HandoffReceiver::Outstanding outstanding = d().receiver->outstanding();
      const BlockPool::Counts counts = d().pool->counts();
      Say(absl::StrCat("d: ", outstanding.reserved, " reserved, ", outstanding.committed,
                       " committed; blocks: ", counts.free, " free, ", counts.referenced, " referenced, ",
                       counts.cached, " cached, ", counts.quarantined, " quarantined"));
    }
    for (const auto& envelope : in_flight_) Say("in flight: " + envelope.text);
  }

  ManualClock clock_;
  std::deque<HandoffWorld::Envelope> in_flight_;
  HandoffWorld world_;
  std::map<RequestId, std::vector<TokenId>> prompts_;
  std::vector<std::string> words_;
  std::map<std::string, std::string> options_;
  std::string said_;
};

// The file as it would be if everything went as it does.
std::string Replay(const std::string& file) {
  Scenario scenario;
  std::string result;
  std::istringstream lines(file);
  bool golden = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) golden = false;
    if (golden) continue;
    absl::StrAppend(&result, line, "\n");
    if (line.empty() || line.starts_with("#")) continue;
    absl::StrAppend(&result, "----\n", scenario.Run(line));
    golden = true;
  }
  return result;
}

TEST_CASE("the hand-off scenarios go as they are written down") {
  spdlog::set_level(spdlog::level::off);
  const std::filesystem::path folder = std::filesystem::path(BATON_SOURCE_DIR) / "test" / "scenario";
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (!entry.path().filename().string().starts_with("handoff_")) continue;
    ++files;
    std::stringstream written;
    written << std::ifstream(entry.path()).rdbuf();
    const std::string replayed = Replay(written.str());
    INFO(entry.path().string());
    if (std::getenv("BATON_UPDATE_GOLDEN") != nullptr) {
      std::ofstream(entry.path()) << replayed;
    } else {
      CHECK(replayed == written.str());
    }
  }
  spdlog::set_level(spdlog::level::info);
  CHECK(files >= 6);
}

}  // namespace
}  // namespace baton
