// The edge: turns what a client sent into a request that everything behind may trust.
#pragma once

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "inference.pb.h"
#include "model/served_model.h"
#include "router/client_request.h"
#include "text/chat_values.h"

namespace baton {

// Bytes of text in a prompt, to decide whether to tokenise at once or elsewhere.
size_t TextBytes(const v1::Segments& segments);
size_t TextBytes(const v1::Chat& chat);

// INVALID_ARGUMENT names field, value and limit; UNIMPLEMENTED: chat without a template. ReadRequest takes time linear
// in the text. `now` and `values` are as in ReadPrompt. The id is empty if the client sent none. The deadline is not
// set.
absl::StatusOr<ClientRequest> ReadRequest(const v1::GenerateRequest& request, const ServedModels& models,
                                          absl::Time now, const ChatValues* values = nullptr);

// The Generate request that a message of either call is: a PrefillOnly request is one with the same fields and without
// output.
inline v1::GenerateRequest AsGenerate(v1::GenerateRequest request) { return request; }
v1::GenerateRequest AsGenerate(v1::PrefillOnlyRequest request);

}  // namespace baton
