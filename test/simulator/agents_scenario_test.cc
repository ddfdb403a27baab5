// Runs test/scenario/agents_*.txt and sessions_*.txt on a simulated router, prefill and decode
// workers. In agents_*.txt, agents wait for each other's outputs. In sessions_*.txt, sessions wait
// to become active.
//
// Clients in these files read at once. test/shell/agent_router_test.cc tests a client that reads
// slowly or not at all, and downstream requests that do not wait for such a client.
//
//   cluster [sessions=N] [blocks=N] [host=N] [prefills=N] [requests=N] [waiting=N] [quota=N]
//                     makes a new cluster with at most N active sessions (0: as many as KV
//                     memory has room for), N blocks per worker, N blocks in the host memory of
//                     prefill workers, N prefill workers, --max-requests, --max-waiting, and
//                     max_requests of each tenant
//   submit ID [prompt=NAME] [of=ID,ID] [then=N] [out=N]
//                     a prompt of NAME's 48 tokens, outputs, and N more tokens
//     long=N          only NAME's first N tokens
//     slow=1          on the decode worker that takes a second for each token
//     announced=1     the upstream requests may be submitted later
//     failure=partial|substitute, timeout=SECONDS           of each reference
//     deadline=SECONDS                                      of the request
//     join=arrival, stop=TEXT, tenant=NAME, session=NAME, keep=1
//     copies=N        N requests, ID0 to ID(N-1)
//                     An ID may be used again after its request has ended.
//     text=LETTERS    a text after the outputs
//   value ID [text=LETTERS] [more=1] [breaks=1] [tenant=NAME] [agent=NAME]
//                     a part of a value. It ends unless more=1, and fails with breaks=1
//   run [SECONDS]     until all requests have ended, or for this time
//     workflow=NAME, flow_deadline=SECONDS, flow_tokens=N   its workflow, and limits of that
//   cancel ID
//   cancel_workflow NAME
//   break WORKER      breaks the stream from a worker (prefill0, decode0 or paced) to the router
//   kill WORKER, restart WORKER
//                     ends the process of a worker; starts it again with empty memory
//   computed          tokens that each prefill worker has computed since the last `computed`
//   same ID ID        whether the outputs of two requests are equal
//   blocks            number of blocks that workers hold for requests
//   sessions          numbers of active and waiting sessions
//
// Each command prints the requests that have ended since the previous command, with a text of one
// letter for each token, or with an error.
#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "backend/simulated/shapes.h"
#include "base/logging.h"
#include "base/strings.h"
#include "catch.h"
#include "simulator/cluster.h"
#include "world/scenario.h"

namespace baton {
namespace {

std::vector<TokenId> Tokens(uint32_t seed, int64_t length) {
  std::mt19937 random(seed);
  std::vector<TokenId> tokens(static_cast<size_t>(length));
  for (TokenId& token : tokens) token = static_cast<TokenId>(random() % SimulatedBackend::kVocab);
  return tokens;
}

class Scenario {
 public:
  Scenario() { Create(ScenarioCommand("cluster")); }

  std::string Run(const ScenarioCommand& command) {
    const std::string word = command.words.empty() ? "" : command.words[0];
    if (command.name == "cluster") {
      Create(command);
    } else if (command.name == "submit") {
      Submit(word, command);
    } else if (command.name == "run" && word.empty()) {
      cluster_->RunUntilIdle();
    } else if (command.name == "run") {
      cluster_->RunFor(absl::Seconds(std::stoi(word)));
    } else if (command.name == "cancel") {
      cluster_->Cancel(word);
    } else if (command.name == "cancel_workflow") {
      cluster_->CancelWorkflow({"", word});
    } else if (command.name == "value") {
      const std::string put = Put(word, command);
      return put + Ended();
    } else if (command.name == "break") {
      cluster_->BreakStream(word);
    } else if (command.name == "kill") {
      cluster_->Kill(word);
    } else if (command.name == "restart") {
      cluster_->Restart(word);
    } else if (command.name == "computed") {
      return Computed();
    } else if (command.name == "same") {
      return cluster_->ran(word).tokens == cluster_->ran(command.words[1]).tokens ? "the same\n" : "not the same\n";
    } else if (command.name == "blocks") {
      return absl::StrCat(cluster_->BlocksHeld(), " held\n");
    } else if (command.name == "sessions") {
      const SessionGate::Counts counts = cluster_->router().sessions();
      return absl::StrCat(counts.active, " active, ", counts.waiting, " waiting with ", counts.waiting_requests,
                          " requests\n");
    } else {
      FAIL("unknown command " << command.name);
    }
    return Ended();
  }

 private:
  void Create(const ScenarioCommand& command) {
    ClusterShape shape;
    shape.model = *ModelNamed("qwen2.5-7b");
    shape.device = *DeviceNamed("a100");
    shape.pace = absl::Seconds(1);
    if (!command.Option("sessions").empty()) {
      shape.sessions = SessionLimits{.sessions = static_cast<int32_t>(command.Number("sessions"))};
    }
    shape.prefill_workers = static_cast<int32_t>(command.Number("prefills", 1));
    if (const int64_t blocks = command.Number("blocks"); blocks > 0) shape.blocks = blocks;
    shape.host_blocks = command.Number("host");
    shape.live_requests = static_cast<int32_t>(command.Number("requests", shape.live_requests));
    shape.waiting_prompts = static_cast<int32_t>(command.Number("waiting"));
    quota_ = static_cast<int32_t>(command.Number("quota"));
    cluster_ = *SimulatedCluster::Create(shape);
    steps_printed_ = 0;
  }
  void Submit(const std::string& id, const ScenarioCommand& command) {
    SimulatedRequest request;
    request.id = id;
    request.model = command.Number("slow") == 1 ? SimulatedCluster::kPaced : SimulatedCluster::kModel;
    request.cache_domain = command.Option("tenant");
    if (quota_ > 0) request.tenant = request.cache_domain;
    request.max_requests = quota_;
    request.session = command.Option("session");
    request.max_tokens = static_cast<int32_t>(command.Number("out", 8));
    request.agent = command.Option("agent");
    if (const int64_t deadline = command.Number("deadline"); deadline > 0) request.timeout = absl::Seconds(deadline);
    request.workflow = command.Option("workflow");
    if (const int64_t deadline = command.Number("flow_deadline"); deadline > 0) {
      request.workflow_limits.deadline = absl::Seconds(deadline);
    }
    if (const int64_t most = command.Number("flow_tokens"); most > 0) request.workflow_limits.max_tokens = most;
    request.join = command.Option("join") == "arrival" ? Join::kArrival : Join::kOrder;
    request.first = static_cast<int32_t>(command.Number("first"));
    request.keep = command.Number("keep") == 1;
    if (const std::string stop = command.Option("stop"); !stop.empty()) request.stop = {stop};
    if (const std::string name = command.Option("prompt"); !name.empty()) {
      request.segments.push_back(Tokens(static_cast<uint32_t>(name[0]), command.Number("long", 48)));
    }
    for (const std::string& upstream :
         std::vector<std::string>(absl::StrSplit(command.Option("of"), ',', absl::SkipEmpty()))) {
      Reference reference = ReferenceTo(upstream, command);
      if (const int64_t label = command.Number("label"); label > 0) {
        reference.before = {Tokens(77, label), AgentName()};
        reference.after = {Tokens(78, 1)};
      }
      request.segments.emplace_back(std::move(reference));
    }
    if (const std::string text = command.Option("text"); !text.empty()) {
      request.segments.push_back(letters_.Encode(text, Tokenizer::SpecialTokens::kAsText));
    }
    if (const int64_t then = command.Number("then"); then > 0) {
      request.segments.push_back(Tokens(static_cast<uint32_t>(then), then));
    }
    const int64_t copies = command.Number("copies");
    for (int64_t i = 0; i < std::max<int64_t>(copies, 1); ++i) {
      SimulatedRequest copy = request;
      if (copies > 0) absl::StrAppend(&copy.id, i);
      const RequestId name = copy.id;
      cluster_->Submit(0, std::move(copy),
                       [this, id, name, copies] { (copies > 0 ? copies_ended_[id] : ended_).push_back(name); });
    }
  }
  std::string Put(const RequestId& id, const ScenarioCommand& command) {
    const absl::Status put =
        cluster_->Put({.id = id,
                       .cache_domain = command.Option("tenant"),
                       .agent = command.Option("agent"),
                       .text = command.Option("text"),
                       .last = command.Number("more") == 0,
                       .status = command.Number("breaks") == 1 ? absl::CancelledError("left") : absl::OkStatus()});
    return put.ok() ? "" : absl::StrCat("value ", id, ": ", CodeAndMessage(put), "\n");
  }
  static Reference ReferenceTo(const std::string& upstream, const ScenarioCommand& command) {
    Reference reference{.upstream = upstream, .announced = command.Number("announced") == 1};
    if (command.Option("failure") == "partial") reference.on_failure = OnFailure::kPartial;
    if (command.Option("failure") == "substitute") {
      reference.on_failure = OnFailure::kSubstitute;
      reference.substitute = Tokens(99, 5);
    }
    if (const int64_t timeout = command.Number("timeout"); timeout > 0) reference.timeout = absl::Seconds(timeout);
    return reference;
  }

  std::string Ended() {
    std::string printed;
    for (const RequestId& id : std::exchange(ended_, {})) absl::StrAppend(&printed, id, ": ", Outcome(id), "\n");
    for (const auto& [name, ids] : std::exchange(copies_ended_, {})) {
      std::set<std::string> outcomes;
      for (const RequestId& id : ids) outcomes.insert(Outcome(id));
      absl::StrAppend(&printed, ids.size(), " of ", name, ": ", *outcomes.begin());
      absl::StrAppend(&printed, outcomes.size() > 1 ? ", and others" : "", "\n");
    }
    return printed;
  }
  std::string Computed() {
    std::map<WorkerAddress, int64_t> tokens;
    for (; steps_printed_ < cluster_->steps().size(); ++steps_printed_) {
      const StepRecord& step = cluster_->steps()[steps_printed_];
      if (step.worker.starts_with("prefill")) tokens[step.worker] += step.tokens;
    }
    std::string printed;
    for (const auto& [worker, computed] : tokens)
      absl::StrAppend(&printed, worker, " computed ", computed, " tokens\n");
    return printed.empty() ? "nothing\n" : printed;
  }
  std::string Outcome(const RequestId& id) const {
    const SimulatedCluster::Ran& ran = cluster_->ran(id);
    if (!ran.status.ok()) return CodeAndMessage(ran.status);
    std::string text;
    for (const TokenId token : ran.tokens) text += static_cast<char>('0' + token);
    return text;
  }

  const LetterTokenizer letters_;
  std::unique_ptr<SimulatedCluster> cluster_;
  std::vector<RequestId> ended_;
  std::map<std::string, std::vector<RequestId>> copies_ended_;
  size_t steps_printed_ = 0;
  int32_t quota_ = 0;
};

TEST_CASE("Agents and sessions behave as their scenarios when workers fail") {
  spdlog::set_level(spdlog::level::off);
  const int files = RunScenarios<Scenario>({"agents_", "sessions_"});
  spdlog::set_level(spdlog::level::info);
  CHECK(files == 44);
}

}  // namespace
}  // namespace baton
