#include "agent/output_table.h"

#include "base/check.h"

namespace baton {

using State = AgentOutput::State;

AgentOutput* OutputTable::Find(const RequestId& id) const {
  const auto found = outputs_.find(id);
  return found == outputs_.end() ? nullptr : found->second.get();
}

AgentOutput& OutputTable::Add(std::unique_ptr<AgentOutput> output, State state, absl::Time until) {
  AgentOutput& added = *output;
  added.state = state;
  added.producer = nullptr;
  added.expires = until;
  expiries_.insert({until, added.id});
  outputs_[added.id] = std::move(output);
  bytes_.Count(added);
  return added;
}

AgentOutput& OutputTable::Announce(std::unique_ptr<AgentOutput> output, absl::Time until) {
  announced_.Add(OwnerOf(output->id), 1);
  return Add(std::move(output), State::kAnnounced, until);
}

void OutputTable::Keep(std::unique_ptr<AgentOutput> output, absl::Time until) {
  ++kept_;
  Add(std::move(output), State::kEnded, until);
}

void OutputTable::Extend(AgentOutput& output, absl::Time until) {
  expiries_.erase({output.expires, output.id});
  output.expires = until;
  expiries_.insert({until, output.id});
  bytes_.Count(output);
}

std::unique_ptr<AgentOutput> OutputTable::Drop(const RequestId& id) {
  const auto found = outputs_.find(id);
  std::unique_ptr<AgentOutput> output = std::move(found->second);
  outputs_.erase(found);
  expiries_.erase({output->expires, output->id});
  bytes_.Remove(*output);
  if (output->state == State::kAnnounced) announced_.Add(OwnerOf(output->id), -1);
  kept_ -= output->state == State::kEnded;
  return output;
}

std::pair<absl::Time, RequestId> OutputTable::NextExpiry() const {
  return expiries_.empty() ? std::pair(absl::InfiniteFuture(), RequestId()) : *expiries_.begin();
}

void OutputTable::CheckInvariants() const {
  bytes_.CheckInvariants();
  int64_t kept = 0;
  Shares announced(announced_.limit());
  for (const auto& [id, output] : outputs_) {
    if (output->state == State::kAnnounced) announced.Add(OwnerOf(id), 1);
    kept += output->state == State::kEnded;
    BATON_CHECK(output->id == id && output->state != State::kLive && output->producer == nullptr, id);
    BATON_CHECK(output->current.text != nullptr || output->state == State::kAnnounced, id);
    BATON_CHECK(output->former.text == nullptr, id);
    BATON_CHECK((output->counted.bytes > 0) == (output->kept() != nullptr), id);
    BATON_CHECK(expiries_.contains({output->expires, id}), id);
  }
  BATON_CHECK(kept == kept_ && announced == announced_ && expiries_.size() == outputs_.size(),
              "the counts of the outputs are wrong");
}

}  // namespace baton
