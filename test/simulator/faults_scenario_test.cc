// Runs test/scenario/faults_*.txt on a simulated cluster whose processes, links and disks fail.
//
//   cluster [prefills=N] [decodes=N] [blocks=N] [host=N] [disk=N] [step_ms=N]
//                     makes a new cluster: N workers of each kind, N blocks per worker, N blocks
//                     of staged KV in host memory and on disk of each prefill worker, and steps of
//                     at least N ms
//   submit ID [prompt=NAME] [long=N] [out=N] [session=NAME] [copies=N]
//                     N tokens of NAME's prompt and N tokens of output; N requests ID0 to ID(N-1)
//   fault KIND [TARGET] [to=PEER] [for=SECONDS] [factor=N]
//                     begins a fault of kFaultTable
//   run [SECONDS]     until all requests have ended, or for this time
//   moves             how often ended requests were resumed or moved, in all
//   same ID ID        whether the outputs of two requests are equal
//   staged WORKER     the blocks that a prefill worker has staged, and whether its disk is off
//   held              the blocks and requests that the cluster holds
//
// `run` prints the requests that have ended: when, how, the number of tokens, and the longest time
// between two events that the client saw.
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "backend/simulated/shapes.h"
#include "base/logging.h"
#include "base/strings.h"
#include "catch.h"
#include "simulator/cluster.h"
#include "world/scenario.h"

namespace baton {
namespace {

class FaultScenario {
 public:
  FaultScenario() { Create(ScenarioCommand("cluster")); }

  std::string Run(const ScenarioCommand& command) {
    const std::string word = command.words.empty() ? "" : command.words[0];
    if (command.name == "cluster") {
      Create(command);
    } else if (command.name == "submit") {
      Submit(word, command);
    } else if (command.name == "fault") {
      Begin(word, command);
    } else if (command.name == "run") {
      word.empty() ? cluster_->RunUntilIdle() : cluster_->RunFor(absl::Seconds(std::stod(word)));
      return Ended();
    } else if (command.name == "moves") {
      return StrCat(resumed_, " resumed, ", moved_, " moved\n");
    } else if (command.name == "same") {
      return cluster_->ran(word).tokens == cluster_->ran(command.words[1]).tokens ? "the same\n" : "not the same\n";
    } else if (command.name == "staged") {
      return Staged(word);
    } else if (command.name == "held") {
      return Held();
    } else {
      FAIL("unknown command " << command.name);
    }
    return "";
  }

 private:
  void Create(const ScenarioCommand& command) {
    ClusterShape shape;
    shape.model = *ModelNamed("smollm2-135m");
    shape.model.layers = 2;
    shape.device = *DeviceNamed("a100");
    shape.device.step_overhead = absl::Milliseconds(command.Number("step_ms", 100));
    shape.blocks = command.Number("blocks", 512);
    shape.host_blocks = command.Number("host");
    shape.disk_blocks = command.Number("disk");
    shape.prefill_workers = static_cast<int32_t>(command.Number("prefills", 1));
    shape.decode_workers = static_cast<int32_t>(command.Number("decodes", 1));
    cluster_ = *SimulatedCluster::Create(shape);
    started_ = cluster_->Now();
    ended_.clear();
    resumed_ = moved_ = 0;
  }
  void Submit(const std::string& id, const ScenarioCommand& command) {
    SimulatedRequest request{.id = id, .model = SimulatedCluster::kModel, .session = command.Option("session")};
    std::mt19937 random(static_cast<uint32_t>(command.Option("prompt", id)[0]));
    std::vector<TokenId> tokens(static_cast<size_t>(command.Number("long", 48)));
    for (TokenId& token : tokens) token = static_cast<TokenId>(random() % SimulatedBackend::kVocab);
    request.segments.emplace_back(tokens);
    request.max_tokens = static_cast<int32_t>(command.Number("out", 20));
    const int64_t copies = command.Number("copies");
    for (int64_t i = 0; i < std::max<int64_t>(copies, 1); ++i) {
      SimulatedRequest copy = request;
      if (copies > 0) absl::StrAppend(&copy.id, i);
      const RequestId name = copy.id;
      cluster_->Submit(0, std::move(copy), [this, name] { ended_.push_back(name); });
    }
  }
  void Begin(const std::string& kind, const ScenarioCommand& command) {
    const auto named = FaultNamed(kind);
    REQUIRE(named.ok());
    Fault fault{.kind = *named, .peer = command.Option("to")};
    if (command.words.size() > 1) fault.target = command.words[1];
    fault.lasts = absl::Seconds(std::stod(command.Option("for", "0")));
    fault.factor = static_cast<double>(command.Number("factor", 1));
    cluster_->Begin(fault);
  }

  std::string Ended() {
    std::string printed;
    for (const RequestId& id : std::exchange(ended_, {})) {
      const SimulatedCluster::Ran& ran = cluster_->ran(id);
      resumed_ += ran.resumed;
      moved_ += ran.moved;
      absl::StrAppendFormat(&printed, "%s ended at %.1f s: %s, %d tokens, longest gap %.1f s\n", id,
                            absl::ToDoubleSeconds(ran.ended - started_), CodeAndMessage(ran.status), ran.tokens.size(),
                            absl::ToDoubleSeconds(ran.longest_gap));
    }
    return printed;
  }
  std::string Staged(const WorkerAddress& worker) const {
    const KvStaging::Counts staged = cluster_->PrefillAt(worker).load().staged;
    return absl::StrCat(staged.host, " in host memory, ", staged.disk, " on disk, disk ",
                        staged.disk_off > 0 ? "off" : "on", "\n");
  }
  std::string Held() const {
    const SimulatedCluster::Holdings held = cluster_->Held();
    return absl::StrCat(held.blocks, " blocks, ", held.quarantined, " in quarantine, ", held.router_requests,
                        " requests\n");
  }

  std::unique_ptr<SimulatedCluster> cluster_;
  absl::Time started_;
  std::vector<RequestId> ended_;
  int64_t resumed_ = 0, moved_ = 0;
};

}  // namespace

TEST_CASE("Requests end as their scenarios when processes, links and disks fail") {
  spdlog::set_level(spdlog::level::off);
  const int files = RunScenarios<FaultScenario>({"faults_"});
  spdlog::set_level(spdlog::level::info);
  CHECK(files == 12);
}

}  // namespace baton
