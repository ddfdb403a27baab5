// The table of the fields in the bodies of the HTTP APIs.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "frontend/openai/completion_call.h"
#include "frontend/openai/field_reader.h"
#include "inference.pb.h"
#include "model/sampling_params.h"
#include "model/served_model.h"
#include "text/chat_values.h"

namespace baton {

// The kinds of bodies.
enum class Api : uint8_t {
  kCompletions,
  kChat,
  kPrefillHint,   // an element of a chat's `followers`
  kTokenizeText,  // /tokenize with a prompt
  kTokenizeChat,  // /tokenize with messages
  kDetokenize,
};

// A set of APIs.
class Apis {
 public:
  constexpr explicit Apis(std::same_as<Api> auto... apis) : bits_((0u | ... | (1u << static_cast<unsigned>(apis)))) {}
  constexpr bool contains(Api api) const { return (bits_ >> static_cast<unsigned>(api) & 1u) != 0; }

 private:
  uint32_t bits_;
};

// The values that the fields of one body are read into. Errors go to `body`.
struct BodyDraft {
  Api api;
  FieldReader& body;
  const ServedModels& models;
  CompletionCall& call;          // `model` may be set; a body without a model then has it
  v1::GenerateRequest& request;  // the fields that all requests of the call share
  ChatValues& values;            // of the chat

  bool may_call_tools = true;           // `tools`
  bool may_call_functions = true;       // `functions`, the older name of tools
  std::vector<v1::Segments> prompts{};  // of completions
  const std::string* text = nullptr;    // to tokenise
  bool with_prefix = true;              // whether the tokenizer's prefix precedes the text
  v1::TokenIds ids{};                   // to detokenise
};

// The draft of a whole body. Its fields are read into `call` and `request`.
inline BodyDraft DraftOf(Api api, FieldReader& body, const ServedModels& models, CompletionCall& call,
                         v1::GenerateRequest& request) {
  return {.api = api, .body = body, .models = models, .call = call, .request = request, .values = call.values};
}

struct ApiField {
  enum class State {
    kSupported,
    kFixed,    // accepted at a value that changes nothing
    kRefused,  // recognised, and refused with a reason
  };

  std::string_view name;
  Apis apis;
  State state = State::kSupported;
  // For a supported field. It is called for a body without the field too, so that it can set a
  // default.
  void (*read)(BodyDraft& draft, const ApiField& field) = nullptr;
  std::string_view value{};                 // of a fixed field, in JSON; 1 and 1.0 are equal
  std::string_view other_value{};           // a second accepted value, if there is one
  std::string_view reason{};                // of a refused field
  std::string_view note{};                  // of a supported field, for docs/api-fields.md
  const SamplingField* sampling = nullptr;  // the parameter that `read` reads
};

// All fields, in the order in which they are read. A reader may rely on fields before its own.
std::span<const ApiField> ApiFields();

// Reads the fields of draft.api. Returns the first error in the table's order. INVALID_ARGUMENT
// also names the first field of the body that the API does not have.
absl::Status ReadFields(BodyDraft& draft);

}  // namespace baton
