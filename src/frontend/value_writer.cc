#include "frontend/value_writer.h"

#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/scoped_id.h"
#include "base/root_cause.h"
#include "base/status.h"
#include "frontend/prompt_reader.h"
#include "frontend/request_reader.h"

namespace baton {
namespace {

// Returns a request with the names of the value. The checks and refusals of requests apply to it.
v1::GenerateRequest NamesOf(const v1::PutOutputRequest& first) {
  v1::GenerateRequest names;
  names.set_request_id(first.request_id());
  names.set_workflow(first.workflow());
  names.set_agent(first.agent());
  names.set_cache_salt(first.cache_salt());
  if (first.has_workflow_limits()) *names.mutable_workflow_limits() = first.workflow_limits();
  return names;
}

// Only the first message has names.
absl::Status CheckFurther(const v1::PutOutputRequest& message) {
  for (const auto& [field, value] :
       {std::pair("request_id", &message.request_id()), std::pair("workflow", &message.workflow()),
        std::pair("agent", &message.agent()), std::pair("cache_salt", &message.cache_salt()),
        std::pair("model", &message.model())}) {
    if (!value->empty()) {
      return absl::InvalidArgumentError(absl::StrCat(field, ": expected in the first message only"));
    }
  }
  for (const auto& [field, is_set] :
       {std::pair("workflow_limits", message.has_workflow_limits()), std::pair("if_unknown", message.if_unknown())}) {
    if (is_set) return absl::InvalidArgumentError(absl::StrCat(field, ": expected in the first message only"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValueWriter::Add(const v1::PutOutputRequest& message, std::shared_ptr<ValueSink> sink) {
  if (!ticket_) return Begin(message, std::move(sink));
  absl::Status status = CheckFurther(message);
  if (status.ok()) status = CheckContent(message);
  if (!status.ok()) {
    End(status);
    return status;
  }
  return router_->ChangeValues([&](Values& values, absl::Time now) { return Append(values, *ticket_, message, now); });
}

absl::Status ValueWriter::Begin(const v1::PutOutputRequest& first, std::shared_ptr<ValueSink> sink) {
  absl::StatusOr<ValueSpec> spec = ReadSpec(first);
  if (!spec.ok()) {
    Refuse(first, spec.status());
    return spec.status();
  }
  bool began = false;
  const absl::Status status = router_->ChangeValues([&](Values& values, absl::Time now) -> absl::Status {
    ASSIGN_OR_RETURN(ValueTicket ticket, values.Begin(*std::move(spec), std::move(sink), now));
    began = true;
    ticket_ = ticket;
    return Append(values, ticket, first, now);
  });
  if (!began) router_->metrics().OnValue(status.code());
  return status;
}

void ValueWriter::Refuse(const v1::PutOutputRequest& first, const absl::Status& status) {
  admission_->NoteRefused(caller_, NamesOf(first), status);
  router_->metrics().OnValue(status.code());
}

absl::StatusOr<ValueSpec> ValueWriter::ReadSpec(const v1::PutOutputRequest& first) {
  RETURN_IF_ERROR(admission_->Open());
  if (first.request_id().empty()) return absl::InvalidArgumentError("request_id: is empty, expected an id");
  const v1::GenerateRequest names = NamesOf(first);
  RETURN_IF_ERROR(CheckNames(names));
  ASSIGN_OR_RETURN(const WorkflowLimits workflow_limits, ReadWorkflowLimits(names));
  if (!first.model().empty()) {
    if (!models_->Contains(first.model())) admission_->JoinDecoders();
    ASSIGN_OR_RETURN(model_, models_->Find(first.model()));
  }
  RETURN_IF_ERROR(CheckContent(first));
  const std::string domain = CacheDomainOf(*caller_, first.cache_salt());
  return ValueSpec{.id = ScopedId(domain, first.request_id()),
                   .cache_domain = domain,
                   // Without keys, each cache domain counts as a tenant.
                   .tenant = caller_->name.empty() ? domain : caller_->name,
                   .workflow = first.workflow(),
                   .agent = first.agent(),
                   .workflow_limits = workflow_limits,
                   .if_unknown = first.if_unknown(),
                   .tokenizer = model_ == nullptr ? nullptr : model_->tokenizer.get()};
}

absl::Status ValueWriter::CheckContent(const v1::PutOutputRequest& message) const {
  // The router keeps the text with the output, and in traces.
  if (message.error().size() > kMaxCauseBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("error: ", message.error().size(), " bytes, limit ", kMaxCauseBytes));
  }
  if (model_ == nullptr) {
    if (message.token_ids().empty()) return absl::OkStatus();
    return absl::InvalidArgumentError("token_ids: requires `model`, whose tokens they are, in the first message");
  }
  if (!message.text().empty()) {
    return absl::InvalidArgumentError("text: expected token_ids, because the value has a model; a text has none");
  }
  return CheckIds("token_ids", {message.token_ids().data(), static_cast<size_t>(message.token_ids_size())}, *model_);
}

absl::Status ValueWriter::Append(Values& values, const ValueTicket& ticket, const v1::PutOutputRequest& message,
                                 absl::Time now) {
  if (!message.text().empty()) RETURN_IF_ERROR(values.AppendText(ticket, message.text(), now));
  if (!message.token_ids().empty()) {
    const std::span ids(message.token_ids().data(), static_cast<size_t>(message.token_ids_size()));
    RETURN_IF_ERROR(values.AppendTokens(ticket, ids, now));
  }
  if (!message.error().empty()) values.End(ticket, absl::AbortedError(message.error()), now);
  return absl::OkStatus();
}

void ValueWriter::End(const absl::Status& status) {
  if (!ticket_) return;
  (void)router_->ChangeValues([&](Values& values, absl::Time now) {
    values.End(*ticket_, status, now);
    return absl::OkStatus();
  });
}

}  // namespace baton
