// One client's value (Values), from the first message of its call to its end.
#pragma once

#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "agent/values.h"
#include "frontend/admission.h"
#include "inference.pb.h"
#include "model/served_model.h"
#include "shell/router.h"

namespace baton {

// Not thread-safe.
class ValueWriter {
 public:
  // The references must outlive this object. `caller` may be null if Add is never called.
  ValueWriter(Router& router, ServedModels& models, ClientAdmission& admission, Caller caller)
      : router_(&router), models_(&models), admission_(&admission), caller_(std::move(caller)) {}

  // Reads a message, and passes it on. The first begins the value. After an error the value, if it
  // has begun, has ended with it, and further calls have no effect. If it has not begun, the error
  // counts as the refusal of a request with this id (AgentGraph::Refused).
  //
  // - UNAVAILABLE: the router shuts down.
  // - INVALID_ARGUMENT: the message is wrong. The error names the field, the value and the limit.
  // - the errors of Values
  absl::Status Add(const v1::PutOutputRequest& message, std::shared_ptr<ValueSink> sink);
  // Refuses a value before its first message is complete. Prompts that wait for it are ended, as
  // for an error of Add.
  void Refuse(const v1::PutOutputRequest& first, const absl::Status& status);
  // Returns whether a value has begun. It may have ended.
  bool began() const { return ticket_.has_value(); }
  // Ends the value, if it has begun, as Values::End.
  void End(const absl::Status& status);

 private:
  absl::Status Begin(const v1::PutOutputRequest& first, std::shared_ptr<ValueSink> sink);
  absl::StatusOr<ValueSpec> ReadSpec(const v1::PutOutputRequest& first);
  absl::Status CheckContent(const v1::PutOutputRequest& message) const;
  static absl::Status Append(Values& values, const ValueTicket& ticket, const v1::PutOutputRequest& message,
                             absl::Time now);

  Router* router_;
  ServedModels* models_;
  ClientAdmission* admission_;
  Caller caller_;
  const ServedModel* model_ = nullptr;  // null: the value is a text
  std::optional<ValueTicket> ticket_;
};

}  // namespace baton
