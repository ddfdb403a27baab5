#include "frontend/openai/request_fields.h"

#include <array>
#include <utility>

#include "base/status.h"
#include "base/strings.h"
#include "frontend/openai/agent_fields.h"
#include "model/sampling_params.h"
#include "rpc/sampling_convert.h"

namespace baton {
namespace {

// Reads one parameter into a value, by the value's type. It returns whether the body has the parameter.
struct ParamReader {
  FieldReader& body;
  const SamplingField& field;

  bool operator()(float& value) const { return Take(body.Number(field.json), value); }
  bool operator()(int32_t& value) const {
    const bool read = Take(body.Integer32(field.json), value);
    if (read && field.zero_is_off && value == -1) value = 0;
    return read;
  }
  bool operator()(bool& value) const { return Take(body.Bool(field.json), value); }
  bool operator()(std::optional<int32_t>& value) const { return Take(body.Integer32(field.json), value); }
  bool operator()(std::optional<uint64_t>& value) const {
    const auto read = body.Integer(field.json);
    if (read) value = static_cast<uint64_t>(*read);
    return read.has_value();
  }
  bool operator()(std::vector<std::string>& texts) const {
    const Json* list = body.Any(field.json);
    if (list == nullptr) return false;
    if (list->is_string()) {
      texts.push_back(list->get<std::string>());
      return true;
    }
    if (!list->is_array()) return Refuse(field.json, "a string or a list of strings", *list);
    for (size_t i = 0; i < list->size(); ++i) {
      const Json& element = (*list)[i];
      if (!element.is_string()) return Refuse(ElementPath(field.json, i), "a string", element);
      texts.push_back(element.get<std::string>());
    }
    return true;
  }
  bool operator()(std::vector<TokenId>& ids) const {
    const Json* list = body.Array(field.json);
    if (list == nullptr) return false;
    for (size_t i = 0; i < list->size(); ++i) {
      const auto id = AsInteger((*list)[i], 0, std::numeric_limits<TokenId>::max());
      if (!id) return Refuse(ElementPath(field.json, i), "a token id", (*list)[i]);
      ids.push_back(static_cast<TokenId>(*id));
    }
    return true;
  }

 private:
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

void ReadStreamOptions(FieldReader& body, CompletionCall& call) {
  const Json* object = body.Object("stream_options");
  if (object == nullptr) return;
  FieldReader options(*object, "stream_options");
  call.include_usage = options.Bool("include_usage").value_or(false);
  for (const char* name : {"continuous_usage_stats", "include_obfuscation"}) {
    if (options.Bool(name).value_or(false)) options.Refuse(name, "is not supported");
  }
  body.Check(options.Finish());
  if (!call.stream && !object->empty()) body.Refuse("stream_options", "is for stream: true only");
}

// A field of OpenAI's and the one value of it that asks for nothing.
struct FixedField {
  std::string_view name;
  std::string_view value;  // in JSON
};

constexpr std::array kFixedFields = {
    FixedField{"prompt_cache_retention", R"("in_memory")"},
    FixedField{"store", "false"},
    FixedField{"service_tier", R"("auto")"},
    FixedField{"verbosity", R"("medium")"},
    FixedField{"logit_bias", "{}"},
    FixedField{"suffix", R"("")"},
    FixedField{"response_format", R"({"type":"text"})"},
    FixedField{"modalities", R"(["text"])"},
    FixedField{"functions", "[]"},
    FixedField{"function_call", R"("none")"},
    FixedField{"min_tokens", "0"},
};

void ReadSampling(FieldReader& body, v1::Sampling& sampling) {
  SamplingParams params;
  for (const SamplingField& field : SamplingFields()) {
    if (field.json.empty()) continue;
    bool read = false;
    VisitValue(params, field, [&](auto& value) { read = ParamReader{body, field}(value); });
    if (read) SetField(params, field, sampling);
  }
}

void ReadAnswerFields(FieldReader& body, CompletionCall& call) {
  call.samples = static_cast<int32_t>(body.Integer("n", 1, kMaxSamples).value_or(1));
  call.stream = body.Bool("stream").value_or(false);
  ReadStreamOptions(body, call);
  const auto timeout_ms = body.Integer("timeout_ms", 1, kMaxTimeoutMs);
  if (timeout_ms) call.timeout = absl::Milliseconds(*timeout_ms);
}

// Labels and hints promise nothing about the answer. A cache is found by the prompt itself, so a key for it adds
// nothing.
void ReadLabels(FieldReader& body) {
  for (const char* name : {"user", "safety_identifier", "prompt_cache_key"}) body.Text(name);
  const Json* metadata = body.Object("metadata");
  if (metadata == nullptr) return;
  for (const auto& [name, value] : metadata->items()) {
    if (!value.is_string()) return body.RefuseType("metadata", "an object of strings", value);
  }
}

void ReadFixedFields(FieldReader& body, const CompletionCall& call) {
  for (const FixedField& field : kFixedFields) {
    const Json* value = body.Any(field.name);
    if (value == nullptr || value->dump() == field.value) continue;
    if (field.name == "service_tier" && *value == "default") continue;
    body.Refuse(field.name, StrCat("is not supported beside ", field.value, ", got ", ShowJson(*value)));
  }
  const auto best_of = body.Integer("best_of");
  if (best_of && *best_of != call.samples) {
    body.Refuse("best_of", StrCat("is not supported beside n, got ", *best_of, " with n ", call.samples));
  }
}

}  // namespace

absl::StatusOr<const ServedModel*> ReadModel(FieldReader& body, const ServedModels& models) {
  const std::string* name = body.Text("model");
  if (!body.ok()) return body.Finish();
  auto model = models.Find(name == nullptr ? "" : *name);
  if (model.ok() || name == nullptr || name->empty()) return model;
  return absl::NotFoundError(model.status().message());
}

absl::StatusOr<v1::GenerateRequest> ReadCommon(FieldReader& body, const ServedModels& models, CompletionCall& call) {
  ASSIGN_OR_RETURN(call.model, ReadModel(body, models));
  v1::GenerateRequest common;
  common.set_model(call.model->name);
  ReadAnswerFields(body, call);
  ReadAgentFields(body, common);
  ReadSampling(body, *common.mutable_sampling());
  ReadLabels(body);
  ReadFixedFields(body, call);
  return common;
}

absl::Status MakeRequests(const v1::GenerateRequest& common, std::vector<v1::Segments> prompts, CompletionCall& call) {
  for (v1::Segments& prompt : prompts) {
    v1::GenerateRequest& request = call.requests.emplace_back(common);
    if (prompt.segments_size() > 0) *request.mutable_segments() = std::move(prompt);
  }
  if (call.choices() > kMaxChoices) {
    return absl::InvalidArgumentError(StrCat("n: ", call.samples, " of each of ", prompts.size(), " prompts, limit ",
                                             kMaxChoices, " choices in all"));
  }
  if (call.choices() > 1 && !common.request_id().empty()) {
    return absl::InvalidArgumentError(StrCat("request_id: expected one choice to call so, got ", call.choices()));
  }
  return absl::OkStatus();
}

}  // namespace baton
