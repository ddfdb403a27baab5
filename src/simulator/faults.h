// The faults that a simulated cluster can have, and the class that decides about each message.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "base/named_value.h"
#include "simulator/event_queue.h"

namespace baton {

// --- messages ------------------------------------------------------------------------------------

// The way that a message travels. It decides what the loss of a message means.
enum class Way {
  kClient,  // between a client and the router; never disturbed
  kStream,  // in order; a lost message breaks the stream
  kCall,    // a call or its reply; if one is lost, the call ends with UNAVAILABLE
  kPush,    // a one-sided write; a lost write breaks the connection
};
struct MessageInfo {
  const WorkerAddress& from;
  const WorkerAddress& to;
  Way way = Way::kCall;
  std::string_view name{};     // for the trace
  std::string_view request{};  // for the trace; empty: the message belongs to no request
};
// The decision about a message.
struct Fate {
  bool fails = false;
  absl::Duration delay{};  // in addition to the network's latency
  absl::Time not_before = absl::InfinitePast();
  double slowness = 1;  // factor of the network's latency and of a push's time on the wire
};

// --- faults --------------------------------------------------------------------------------------

// Each fault begins at an instant and lasts for a time that is fixed at its beginning.
enum class FaultKind { kKill, kSilence, kClockStep, kPartition, kSlowLink, kMessages, kDiskFull, kDiskError };
// The processes that a fault can have as a target.
enum class FaultTarget { kWorker, kRouter, kLink, kCluster, kPrefill };
struct FaultRow : NamedValue<FaultKind> {
  FaultTarget target;
  const char* effect;
};
inline constexpr FaultRow kFaultTable[] = {
    {{"kill", FaultKind::kKill}, FaultTarget::kWorker, "the process ends; another one starts after the time"},
    {{"silence", FaultKind::kSilence}, FaultTarget::kWorker, "SIGSTOP; the process goes on after the time"},
    {{"clock_step", FaultKind::kClockStep}, FaultTarget::kRouter, "the router stops, and sees the time as one step"},
    {{"partition", FaultKind::kPartition}, FaultTarget::kLink, "messages from target to peer arrive after the time"},
    {{"slow_link", FaultKind::kSlowLink}, FaultTarget::kLink, "messages from target to peer take `factor` as long"},
    {{"messages", FaultKind::kMessages}, FaultTarget::kCluster, "1 in 16 messages is delayed, and 1 in 16 fails"},
    {{"disk_full", FaultKind::kDiskFull}, FaultTarget::kPrefill, "writes to the disk find no space"},
    {{"disk_error", FaultKind::kDiskError}, FaultTarget::kPrefill, "the next transfer fails, so the disk is off"},
};
const FaultRow& RowOf(FaultKind kind);
// Returns INVALID_ARGUMENT if no fault has this name.
absl::StatusOr<FaultKind> FaultNamed(std::string_view name);

struct Fault {
  FaultKind kind = FaultKind::kKill;
  WorkerAddress target{}, peer{};  // as FaultRow::target demands; the others are empty
  absl::Duration lasts{};
  double factor = 1;  // of kSlowLink
};
// Returns a line for the trace: "partition of prefill0 to decode0 for 2s".
std::string ToString(const Fault& fault);

// Decides about messages between processes. Decisions depend on the faults that have begun, and on
// one seed.
class FaultInjector {
 public:
  // The share of messages that kMessages delays, and the share that it fails.
  static constexpr double kShare = 1.0 / 16;
  static constexpr absl::Duration kLongestDelay = absl::Milliseconds(500);

  FaultInjector(uint64_t seed, const EventQueue& queue) : random_(seed), queue_(queue) {}

  // Begins a fault of a link or of messages. Another fault of the same kind and link goes on if it
  // lasts longer.
  void Begin(const Fault& fault);
  Fate FateOf(const MessageInfo& message);
  // The end of the last fault so far.
  absl::Time quiet_from() const { return quiet_from_; }

 private:
  using Link = std::pair<WorkerAddress, WorkerAddress>;
  struct LinkFaults {
    absl::Time cut_until = absl::InfinitePast(), slow_until = absl::InfinitePast();
    double slowness = 1;
  };
  bool Draw(double share) { return std::bernoulli_distribution(share)(random_); }

  std::mt19937_64 random_;
  const EventQueue& queue_;
  std::map<Link, LinkFaults> links_;
  absl::Time messages_until_ = absl::InfinitePast();
  absl::Time quiet_from_ = absl::InfinitePast();
};

}  // namespace baton
