#include "frontend/openai/request_fields.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/numbers.h"
#include "base/request_id.h"
#include "base/status.h"
#include "base/strings.h"
#include "frontend/openai/body_readers.h"
#include "frontend/openai/known_members.h"
#include "model/sampling_params.h"
#include "rpc/sampling_convert.h"

namespace baton {
namespace {

// Reads one parameter into a value, by the value's type. Returns whether the body has the
// parameter.
struct ParamReader {
  FieldReader& body;
  const SamplingField& field;

  // The range applies to the number as sent, which has more digits than a float.
  bool operator()(float& value) const {
    const auto number = body.Number(field.json);
    if (!number) return false;
    const absl::StatusOr<float> nearest = ToFloat(field, field.json, *number);
    body.Check(nearest.status());
    value = nearest.value_or(value);
    return nearest.ok();
  }
  bool operator()(int32_t& value) const {
    const bool read = Take(ReadInteger(), value);
    if (read && field.zero_is_off && value == -1) value = 0;
    return read;
  }
  bool operator()(bool& value) const { return Take(body.Bool(field.json), value); }
  bool operator()(std::optional<int32_t>& value) const { return Take(ReadInteger(), value); }
  // A negative number stands for the number with the same bits.
  bool operator()(std::optional<uint64_t>& value) const {
    const Json* number = body.Any(field.json);
    if (number == nullptr) return false;
    const auto read = AsInteger(*number, std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max());
    if (!read && !number->is_number_unsigned()) return Refuse(field.json, "an integer", *number);
    value = read ? static_cast<uint64_t>(*read) : number->get<uint64_t>();
    return true;
  }
  bool operator()(std::vector<std::string>& texts) const {
    const Json* list = body.Any(field.json);
    if (list == nullptr) return false;
    if (*list == "") return false;  // some clients send an empty text for none
    if (list->is_string()) {
      texts.push_back(list->get<std::string>());
      // The path of a lone text has no index.
      body.Check(CheckText(field, texts.back(), field.json));
      return true;
    }
    if (!list->is_array()) return Refuse(field.json, "a string or a list of strings", *list);
    // An answer reads the stop strings before all parameters are checked.
    if (!IsShort(list->size(), "strings")) return false;
    for (size_t i = 0; i < list->size(); ++i) {
      const Json& element = (*list)[i];
      if (!element.is_string()) return Refuse(ElementPath(field.json, i), "a string", element);
      if (element == "" && field.json == "stop") continue;
      texts.push_back(element.get<std::string>());
      body.Check(CheckText(field, texts.back(), ElementPath(field.json, i)));
    }
    return true;
  }
  bool operator()(std::vector<TokenId>& ids) const {
    const Json* list = body.Array(field.json);
    if (list == nullptr || !IsShort(list->size(), "ids")) return false;
    if (static_cast<double>(list->size()) < field.range.low) {
      body.Refuse(field.json, StrCat("expected at least ", field.range.low, " id, got none"));
      return false;
    }
    for (size_t i = 0; i < list->size(); ++i) {
      const auto id = AsInteger((*list)[i], 0, std::numeric_limits<TokenId>::max());
      if (!id) return Refuse(ElementPath(field.json, i), "a token id", (*list)[i]);
      ids.push_back(static_cast<TokenId>(*id));
    }
    return true;
  }

  // OpenAI's form: {"50256": -100}.
  bool operator()(std::vector<TokenBias>& biases) const {
    const Json* object = body.Object(field.json);
    if (object == nullptr || !IsShort(object->size(), "tokens")) return false;
    for (const auto& [name, value] : object->items()) {
      TokenId id = 0;
      if (!absl::SimpleAtoi(name, &id)) return Refuse(field.json, "token ids as names", Json(name));
      if (!value.is_number()) return Refuse(field.json, "numbers", value);
      const auto bias = value.get<double>();
      body.Check(CheckBias(bias, field.json));
      if (!body.ok()) return false;
      biases.push_back({id, static_cast<float>(bias)});
    }
    return true;
  }

 private:
  bool IsShort(size_t size, std::string_view unit) const {
    if (static_cast<double>(size) <= field.range.high) return true;
    body.Refuse(field.json, StrCat("expected at most ", field.range.high, " ", unit, ", got ", size));
    return false;
  }
  std::optional<int32_t> ReadInteger() const {
    const double high = std::min<double>(field.range.high, std::numeric_limits<int32_t>::max());
    return body.Integer32(field.json, field.zero_is_off ? -1 : static_cast<int32_t>(field.range.low),
                          static_cast<int32_t>(high));
  }
  template <typename Read, typename T>
  static bool Take(const std::optional<Read>& read, T& value) {
    if (read) value = *read;
    return read.has_value();
  }
  bool Refuse(std::string_view name, std::string_view expected, const Json& got) const {
    body.RefuseType(name, expected, got);
    return false;
  }
};

}  // namespace

void ReadModel(BodyDraft& draft, const ApiField& field) {
  FieldReader& body = draft.body;
  const std::string* name = body.Text(field.name);
  if (!body.ok()) return;
  if (name != nullptr || draft.call.model == nullptr) {
    const auto model = draft.models.Find(name == nullptr ? "" : *name);
    if (!model.ok()) {
      const bool named = name != nullptr && !name->empty();
      return body.Check(named ? absl::NotFoundError(StrCat(body.Path(""), Message(model.status()))) : model.status());
    }
    draft.call.model = *model;
    if (name != nullptr) draft.call.model_name = *name;
  }
  draft.request.set_model(draft.call.model->name);
}

void ReadSamples(BodyDraft& draft, const ApiField& field) {
  draft.call.samples = static_cast<int32_t>(draft.body.Integer(field.name, 1, kMaxSamples).value_or(1));
}

void ReadStream(BodyDraft& draft, const ApiField& field) {
  draft.call.stream = draft.body.Bool(field.name).value_or(false);
}

void ReadStreamOptions(BodyDraft& draft, const ApiField& field) {
  const Json* object = draft.body.Object(field.name);
  if (object == nullptr) return;
  FieldReader options(*object, draft.body.Path(field.name));
  draft.call.include_usage = options.Bool("include_usage").value_or(false);
  // As in vLLM, it has no effect alone.
  draft.call.continuous_usage = options.Bool("continuous_usage_stats").value_or(false) && draft.call.include_usage;
  draft.call.obfuscate = options.Bool("include_obfuscation").value_or(false);
  SkipMembers(options, StreamOptionMembers());
  draft.body.Check(options.Finish());
  if (!draft.call.stream && !object->empty()) draft.body.Refuse(field.name, "requires stream: true");
}

void ReadResponseFormat(BodyDraft& draft, const ApiField& field) {
  const Json* object = draft.body.Object(field.name);
  if (object == nullptr) return;
  constexpr std::string_view kWhy = "is not supported: output is not constrained";
  FieldReader format(*object, draft.body.Path(field.name));
  const std::string* type = format.Text("type");
  if (type == nullptr) {
    format.Refuse("type", "expected 'text', got none");
  } else if (*type != "text") {
    format.Refuse("type", StrCat("expected 'text', got ", ShowJson(*type), ", which ", kWhy));
  }
  SkipMembers(format, ResponseFormatMembers(), kWhy);
  draft.body.Check(format.Finish());
}

void ReadReturnTokenIds(BodyDraft& draft, const ApiField& field) {
  draft.call.return_token_ids = draft.body.Bool(field.name).value_or(false);
}

void ReadTokensAsIds(BodyDraft& draft, const ApiField& field) {
  draft.call.tokens_as_ids = draft.body.Bool(field.name).value_or(false);
}

void ReadTimeout(BodyDraft& draft, const ApiField& field) {
  const auto timeout_ms = draft.body.Integer(field.name, 1, kMaxTimeoutMs);
  if (timeout_ms) draft.call.timeout = absl::Milliseconds(*timeout_ms);
}

void ReadBestOf(BodyDraft& draft, const ApiField& field) {
  const auto best_of = draft.body.Integer(field.name);
  if (!best_of || *best_of == draft.call.samples) return;
  draft.body.Refuse(field.name, StrCat("expected the same as n, ", draft.call.samples, ", got ", *best_of));
}

void ReadPromptLogprobs(BodyDraft& draft, const ApiField& field) {
  const auto top = draft.body.Integer32(field.name, 0, kMaxTopLogprobs);
  if (!top) return;
  // As in vLLM. An echo with logprobs has a form for streams.
  if (draft.call.stream) return draft.body.Refuse(field.name, "is not supported with stream: true");
  draft.call.prompt_logprobs = top;
  draft.request.mutable_sampling()->set_prompt_logprobs(*top);
}

void ReadLabel(BodyDraft& draft, const ApiField& field) { draft.body.Text(field.name); }

void ReadIgnoredObject(BodyDraft& draft, const ApiField& field) { draft.body.Object(field.name); }

void ReadMetadata(BodyDraft& draft, const ApiField& field) {
  const Json* metadata = draft.body.Object(field.name);
  if (metadata == nullptr) return;
  for (const auto& [name, value] : metadata->items()) {
    if (!value.is_string()) return draft.body.RefuseType(field.name, "an object of strings", value);
  }
}

void ReadSampling(BodyDraft& draft, const ApiField& field) {
  SamplingParams params;
  bool read = false;
  VisitValue(params, *field.sampling, [&](auto& value) { read = ParamReader{draft.body, *field.sampling}(value); });
  if (read) SetField(params, *field.sampling, *draft.request.mutable_sampling());
}

absl::Status MakeRequests(const v1::GenerateRequest& common, std::vector<v1::Segments> prompts, CompletionCall& call) {
  for (v1::Segments& prompt : prompts) {
    v1::GenerateRequest& request = call.requests.emplace_back(common);
    // A chat has no segments, and a context may be continued without any.
    const bool may_lack = common.has_chat() || !common.context_id().empty();
    if (!may_lack || prompt.segments_size() > 0) *request.mutable_segments() = std::move(prompt);
  }
  if (call.choices() > kMaxChoices) {
    return absl::InvalidArgumentError(StrCat("n: ", call.samples, " choices for each of ", prompts.size(),
                                             " prompts, limit ", kMaxChoices, " choices per call"));
  }
  RETURN_IF_ERROR(CheckRequestId("request_id", common.request_id()));
  const size_t longest = call.IdOf(common.request_id(), call.choices() - 1).size();
  if (longest > kMaxRequestIdBytes) {
    return absl::InvalidArgumentError(
        StrCat("request_id: with the number of a choice it has ", longest, " bytes, limit ", kMaxRequestIdBytes));
  }
  return absl::OkStatus();
}

}  // namespace baton
