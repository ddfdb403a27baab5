#include "agent/values.h"

#include "absl/strings/str_cat.h"
#include "agent/scoped_id.h"
#include "base/check.h"
#include "base/root_cause.h"
#include "base/status.h"

namespace baton {

absl::StatusOr<ValueTicket> Values::Begin(ValueSpec spec, std::shared_ptr<ValueSink> sink, absl::Time now) {
  auto value = std::make_unique<Value>(Value{.spec = std::move(spec), .number = ++numbers_, .began = now});
  value->sink = std::move(sink);
  value->node.id = &value->spec.id;
  value->node.agent = &value->spec.agent;
  value->flow.node = &value->node;
  value->node.keep = true;  // its client, and not a worker, makes it
  if (value->spec.tokenizer != nullptr) value->detokenizer.emplace(*value->spec.tokenizer);
  const WorkflowKey workflow{value->spec.cache_domain, value->spec.workflow};
  if (value->spec.if_unknown && !graph_.IsUnknown(value->spec.id, now)) {
    return absl::AlreadyExistsError(absl::StrCat("request_id: the router has had '", NameOf(value->spec.id), "'"));
  }
  absl::Status status = CheckRoom(value->spec.tenant, {.live = 1});
  if (status.ok() && !workflow.name.empty())
    status = workflows_.Check(workflow, value->spec.workflow_limits, absl::InfiniteFuture(), now);
  if (status.ok()) status = graph_.AddValue(value->node, value->spec.tokenizer);
  if (!status.ok()) {
    graph_.Refused(value->spec.id, value->spec.agent, status, absl::ZeroDuration(), now);
    return status;
  }
  if (!workflow.name.empty())
    workflows_.Arrived(value->flow, workflow, value->spec.tenant, value->spec.workflow_limits, now);
  Count(*value, {.live = 1});
  deadlines_.insert({now + limits_.time, value->spec.id});
  const ValueTicket ticket{value->spec.id, value->number};
  values_[ticket.id] = std::move(value);
  return ticket;
}

absl::Status Values::CheckRoom(const std::string& tenant, const Counts& more) const {
  if (!live_.HasRoom(tenant, more.live)) {
    return absl::ResourceExhaustedError(absl::StrCat("values: ", live_.total(), " are not complete, ", live_.Of(tenant),
                                                     " of them of this tenant, limit ", limits_.live,
                                                     ", of which a tenant may have as many as remain for others"));
  }
  if (!bytes_.HasRoom(tenant, more.bytes)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("values: those that are not complete have ", bytes_.total(), " bytes, ", bytes_.Of(tenant),
                     " of them of this tenant, limit ", limits_.live_bytes,
                     ", of which a tenant may have as many as remain for others; this one adds ", more.bytes));
  }
  return absl::OkStatus();
}

absl::Status Values::Grow(const ValueTicket& ticket, size_t bytes, absl::Time now) {
  Value* value = Find(ticket);
  if (value == nullptr) return absl::AbortedError(absl::StrCat("the value '", NameOf(ticket.id), "' has ended"));
  const auto more = static_cast<int64_t>(bytes);
  absl::Status status = CheckRoom(value->spec.tenant, {.bytes = more});
  if (value->bytes + more > limits_.bytes) {
    status = absl::InvalidArgumentError(absl::StrCat(value->spec.tokenizer == nullptr ? "text" : "token_ids", ": ",
                                                     value->bytes + more, " bytes, limit ", limits_.bytes,
                                                     " for one value (a token id counts as ", sizeof(TokenId), ")"));
  }
  if (!status.ok()) {
    Finish(*value, status, /*notify=*/false, now);
    return status;
  }
  Count(*value, {.bytes = more});
  value->bytes += more;
  return absl::OkStatus();
}

absl::Status Values::AppendText(const ValueTicket& ticket, std::string_view text, absl::Time now) {
  RETURN_IF_ERROR(Grow(ticket, text.size(), now));
  Value& value = *Find(ticket);
  BATON_CHECK(value.spec.tokenizer == nullptr, ticket.id);
  graph_.Made(value.node, {}, text);
  return absl::OkStatus();
}

absl::Status Values::AppendTokens(const ValueTicket& ticket, std::span<const TokenId> tokens, absl::Time now) {
  RETURN_IF_ERROR(Grow(ticket, tokens.size_bytes(), now));
  Value& value = *Find(ticket);
  BATON_CHECK(value.spec.tokenizer != nullptr, ticket.id);
  std::string text;
  for (const TokenId token : tokens) text += value.detokenizer->Push(token);
  graph_.Made(value.node, tokens, text);
  return absl::OkStatus();
}

void Values::End(const ValueTicket& ticket, const absl::Status& status, absl::Time now) {
  if (Value* value = Find(ticket)) Finish(*value, status, /*notify=*/false, now);
}

void Values::Fail(const RequestId& id, const absl::Status& status, absl::Time now) {
  Finish(*values_.at(id), status, /*notify=*/true, now);
}

void Values::EndAll(const absl::Status& status, absl::Time now) {
  std::vector<RequestId> ids;
  for (const auto& [deadline, id] : deadlines_) ids.push_back(id);
  for (const RequestId& id : ids) Fail(id, status, now);
}

void Values::Tick(absl::Time now) {
  while (NextTick() <= now) {
    Fail(RequestId(deadlines_.begin()->second),
         absl::DeadlineExceededError(
             absl::StrCat("the value was not complete within ", absl::FormatDuration(limits_.time), " (--value-time)")),
         now);
  }
}

void Values::Finish(Value& value, const absl::Status& status, bool notify, absl::Time now) {
  if (value.detokenizer) graph_.Made(value.node, {}, value.detokenizer->Finish());
  graph_.Ended(value.node, status.ok() ? status : AsRootCause(status, NameOf(value.spec.id), value.spec.agent), now);
  Count(value, {.live = -1, .bytes = -value.bytes});
  deadlines_.erase({value.began + limits_.time, value.spec.id});
  workflows_.Ended(value.flow, now);
  const std::unique_ptr<Value> ended = std::move(values_.extract(value.spec.id).mapped());
  ended_.push_back({std::move(ended->spec), ended->node.attempt, ended->began, now, status,
                    notify ? std::move(ended->sink) : nullptr});
}

void Values::Count(const Value& value, const Counts& more) {
  live_.Add(value.spec.tenant, more.live);
  bytes_.Add(value.spec.tenant, more.bytes);
}

AgentNode* Values::Find(const RequestId& id) const {
  const auto found = values_.find(id);
  return found == values_.end() ? nullptr : &found->second->node;
}

Values::Value* Values::Find(const ValueTicket& ticket) const {
  const auto found = values_.find(ticket.id);
  return found == values_.end() || found->second->number != ticket.number ? nullptr : found->second.get();
}

void Values::ForEach(absl::FunctionRef<void(const ValueSpec&, absl::Time, int32_t)> visit) const {
  for (const auto& [id, value] : values_) visit(value->spec, value->began, value->node.attempt);
}

void Values::CheckInvariants() const {
  Shares live(limits_.live), bytes(limits_.live_bytes);
  for (const auto& [id, value] : values_) {
    BATON_CHECK(value->spec.id == id && value->node.output != nullptr && value->node.output->is_value, id);
    BATON_CHECK(deadlines_.contains({value->began + limits_.time, id}), id);
    live.Add(value->spec.tenant, 1);
    bytes.Add(value->spec.tenant, value->bytes);
  }
  BATON_CHECK(live == live_ && bytes == bytes_ && deadlines_.size() == values_.size(),
              "the counts of values are wrong");
}

}  // namespace baton
