#include "agent/output_table.h"

#include "base/check.h"

namespace baton {

AgentOutput* OutputTable::Find(const RequestId& id) const {
  const auto found = outputs_.find(id);
  return found == outputs_.end() ? nullptr : found->second.get();
}

void OutputTable::Add(const RequestId& id, std::unique_ptr<AgentOutput> output, absl::Time until) {
  output->producer = nullptr;
  output->expires = until;
  output->bytes = output->text == nullptr ? 0 : output->text->bytes();
  counts_.kept_bytes += output->bytes;
  expiries_.insert({until, id});
  outputs_[id] = std::move(output);
}

AgentOutput& OutputTable::Announce(const RequestId& id, std::unique_ptr<AgentOutput> output, absl::Time until) {
  AgentOutput& announced = *output;
  announced.state = AgentOutput::State::kAnnounced;
  announced_.Add(OwnerOf(id), 1);
  Add(id, std::move(output), until);
  return announced;
}

void OutputTable::Keep(const RequestId& id, std::unique_ptr<AgentOutput> output, absl::Time until) {
  output->state = AgentOutput::State::kEnded;
  ++counts_.kept;
  Add(id, std::move(output), until);
  for (auto next = expiries_.begin(); counts_.kept_bytes > limits_.kept_bytes && next != expiries_.end();) {
    const RequestId oldest = (next++)->second;
    const AgentOutput& candidate = *outputs_.at(oldest);
    if (candidate.state == AgentOutput::State::kEnded && candidate.downstreams.empty()) Drop(oldest);
  }
}

void OutputTable::Extend(const RequestId& id, absl::Time until) {
  AgentOutput& output = *outputs_.at(id);
  expiries_.erase({output.expires, id});
  output.expires = until;
  expiries_.insert({until, id});
}

std::unique_ptr<AgentOutput> OutputTable::Drop(const RequestId& id) {
  const auto found = outputs_.find(id);
  std::unique_ptr<AgentOutput> output = std::move(found->second);
  expiries_.erase({output->expires, id});
  if (output->state == AgentOutput::State::kAnnounced) announced_.Add(OwnerOf(id), -1);
  counts_.kept -= output->state == AgentOutput::State::kEnded;
  counts_.kept_bytes -= std::exchange(output->bytes, 0);
  outputs_.erase(found);
  return output;
}

std::pair<absl::Time, RequestId> OutputTable::NextExpiry() const {
  return expiries_.empty() ? std::pair(absl::InfiniteFuture(), RequestId()) : *expiries_.begin();
}

void OutputTable::CheckInvariants() const {
  Counts counts;
  Shares announced(limits_.announced);
  for (const auto& [id, output] : outputs_) {
    if (output->state == AgentOutput::State::kAnnounced) announced.Add(OwnerOf(id), 1);
    counts.kept += output->state == AgentOutput::State::kEnded;
    counts.kept_bytes += output->bytes;
    BATON_CHECK(output->state != AgentOutput::State::kLive && output->producer == nullptr, id);
    BATON_CHECK(output->text != nullptr || output->state == AgentOutput::State::kAnnounced, id);
    BATON_CHECK(output->former == nullptr, id);
    BATON_CHECK(expiries_.contains({output->expires, id}), id);
  }
  BATON_CHECK(counts == counts_ && announced == announced_ && expiries_.size() == outputs_.size(),
              "the counts of the outputs are wrong");
}

}  // namespace baton
