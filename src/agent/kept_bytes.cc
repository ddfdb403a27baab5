#include "agent/kept_bytes.h"

#include "agent/shares.h"
#include "base/check.h"

namespace baton {

KeptBytes::Order KeptBytes::OrderOf(const AgentOutput& output) {
  return {output.counted.loss, output.counted.expires, output.serial};
}

void KeptBytes::Count(AgentOutput& output) {
  Remove(output);
  if (output.kept() == nullptr) return;
  output.counted = {output.kept()->bytes(), output.loss(), output.expires};
  const std::string owner = OwnerOf(output.id);
  Add(owner, output.counted.bytes);
  owners_.at(owner).outputs[OrderOf(output)] = &output;
}

void KeptBytes::Remove(AgentOutput& output) {
  if (output.counted.bytes == 0) return;
  const std::string owner = OwnerOf(output.id);
  owners_.at(owner).outputs.erase(OrderOf(output));
  Add(owner, -output.counted.bytes);
  output.counted = {};
}

void KeptBytes::Add(const std::string& owner, int64_t more) {
  Owner& own = owners_[owner];
  by_bytes_.erase({own.bytes, owner});
  own.bytes += more;
  total_ += more;
  if (own.bytes == 0) {
    owners_.erase(owner);
  } else {
    by_bytes_.insert({own.bytes, owner});
  }
}

AgentOutput* KeptBytes::Excess() const {
  if (total_ <= limit_) return nullptr;
  return owners_.at(by_bytes_.rbegin()->second).outputs.begin()->second;
}

void KeptBytes::CheckInvariants() const {
  int64_t total = 0;
  for (const auto& [name, owner] : owners_) {
    int64_t bytes = 0;
    for (const auto& [order, output] : owner.outputs) {
      BATON_CHECK(OwnerOf(output->id) == name && order == OrderOf(*output), output->id);
      BATON_CHECK(output->kept() != nullptr && output->counted.bytes == output->kept()->bytes(), output->id);
      BATON_CHECK(output->counted.loss == output->loss(), output->id);
      BATON_CHECK(output->counted.expires == output->expires, output->id);
      bytes += output->counted.bytes;
    }
    BATON_CHECK(bytes == owner.bytes && by_bytes_.contains({bytes, name}), name);
    total += bytes;
  }
  BATON_CHECK(total == total_ && by_bytes_.size() == owners_.size(), "kept bytes are miscounted");
}

}  // namespace baton
