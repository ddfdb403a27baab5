#include "agent/submission_check.h"

#include <algorithm>
#include <tuple>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "agent/scoped_id.h"
#include "base/status.h"
#include "base/strings.h"

namespace baton {

AgentOutput* SubmissionCheck::Find(const RequestId& id) const {
  if (AgentOutput* output = outputs_.Find(id)) return output;
  const AgentNode* node = find_(id);
  return node == nullptr ? nullptr : node->output.get();
}

bool SubmissionCheck::Announces(const Reference& reference, absl::Time now) const {
  if (Find(reference.upstream) != nullptr) return false;
  const Refusal* refusal = refusals_.Find(reference.upstream, now);
  return refusal == nullptr ? reference.announced : refusal->fails > now;
}

absl::Status SubmissionCheck::CheckId(const AgentNode& node, bool is_value) const {
  const std::string name = NameOf(*node.id);
  const AgentNode* live = find_(*node.id);
  if (node.output != nullptr || (live != nullptr && live != &node)) {
    return absl::AlreadyExistsError(absl::StrCat("request_id: '", name, "' is in use by a live request or value"));
  }
  const AgentOutput* found = outputs_.Find(*node.id);
  if (found == nullptr || found->state != AgentOutput::State::kEnded) return absl::OkStatus();
  if (!found->downstreams.empty()) {
    return absl::AlreadyExistsError(
        absl::StrCat("request_id: an unfinished prompt refers to the output of '", name, "'"));
  }
  // A client that repeats a value receives this error if the first one arrived.
  if ((is_value || found->is_value) && found->status.ok()) {
    return absl::AlreadyExistsError(
        absl::StrCat("request_id: '", name, "' has a complete output, which the router keeps"));
  }
  return absl::OkStatus();
}

absl::Status SubmissionCheck::CheckReferences(const RequestId& id, const PromptSpec& spec, absl::Time now) const {
  int64_t references = 0, announces = 0;
  for (const PromptSegment& segment : spec.segments) {
    const auto* reference = std::get_if<Reference>(&segment);
    if (reference == nullptr) continue;
    if (reference->upstream == id) {
      return absl::InvalidArgumentError(reference->path + ": a request cannot wait for itself");
    }
    if (spec.first == 0) RETURN_IF_ERROR(CheckUpstream(*reference, now));
    ++references;
    announces += Announces(*reference, now);
  }
  const std::string owner = OwnerOf(id);
  for (const auto& [what, shares, more] :
       {std::tuple("announced requests", &outputs_.announced(), announces), {"references", &references_, references}}) {
    if (more == 0 || shares->HasRoom(owner, more)) continue;
    return absl::ResourceExhaustedError(absl::StrCat(
        "output_of: the router has too many ", what, " of prompts that wait; this prompt adds ", more, " to ",
        shares->Of(owner), " of this tenant, which may have as many as remain for others, of ", shares->limit()));
  }
  if (!IsCycle(id, spec)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(spec.path, ": a cycle: an upstream request of '", NameOf(id),
                                                 "' waits for the output of '", NameOf(id), "'"));
}

absl::Status SubmissionCheck::CheckUpstream(const Reference& reference, absl::Time now) const {
  if (reference.announced || Find(reference.upstream) != nullptr) return absl::OkStatus();
  if (reference.on_failure != OnFailure::kAbort || refusals_.Find(reference.upstream, now) != nullptr) {
    return absl::OkStatus();
  }
  return NotFound(reference);
}

absl::Status SubmissionCheck::NotFound(const Reference& reference) const {
  return absl::NotFoundError(StrCat(reference.path, ": no request '", NameOf(reference.upstream),
                                    "' of this cache_salt is at this router, or its output is no longer kept (",
                                    absl::FormatDuration(limits_.keep_output), " after its end, and ",
                                    limits_.kept_bytes >> 20,
                                    " MiB of all outputs); set `announced` if it is submitted later"));
}

// Returns whether an upstream of the new prompt waits, directly or not, for the new prompt's
// output.
bool SubmissionCheck::IsCycle(const RequestId& id, const PromptSpec& spec) const {
  const AgentOutput* announced = Find(id);
  // Only an announced request that prompts refer to can close a cycle. The walk takes time linear
  // in the references of all prompts.
  if (announced == nullptr || announced->downstreams.empty()) return false;
  absl::flat_hash_set<const AgentOutput*> seen;
  std::vector<const AgentOutput*> open;
  const auto visit = [&](const AgentOutput* output) {
    if (output != nullptr && seen.insert(output).second) open.push_back(output);
  };
  for (const PromptSegment& segment : spec.segments) {
    if (const auto* reference = std::get_if<Reference>(&segment)) visit(Find(reference->upstream));
  }
  while (!open.empty()) {
    const AgentOutput* output = open.back();
    open.pop_back();
    if (output == announced) return true;
    if (output->producer == nullptr || output->producer->streaming == nullptr) continue;
    for (const auto& [upstream, indices] : output->producer->streaming->upstreams) {
      if (output->producer->streaming->WaitsFor(*upstream)) visit(upstream);
    }
  }
  return false;
}

}  // namespace baton
