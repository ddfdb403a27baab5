#include "frontend/openai/request_fields.h"

#include <array>
#include <utility>

#include "base/status.h"
#include "base/strings.h"
#include "frontend/openai/agent_fields.h"

namespace baton {
namespace {

void ReadStops(FieldReader& body, v1::Sampling& sampling) {
  const Json* stop = body.Any("stop");
  if (stop == nullptr) return;
  if (stop->is_string()) {
    sampling.add_stop(stop->get_ref<const std::string&>());
    return;
  }
  if (!stop->is_array()) return body.RefuseType("stop", "a string or a list of strings", *stop);
  for (size_t i = 0; i < stop->size(); ++i) {
    const Json& element = (*stop)[i];
    if (!element.is_string()) return body.Check(WrongType(ElementPath("stop", i), "a string", element));
    sampling.add_stop(element.get_ref<const std::string&>());
  }
}

void ReadStopIds(FieldReader& body, v1::Sampling& sampling) {
  const Json* ids = body.Array("stop_token_ids");
  if (ids == nullptr) return;
  for (size_t i = 0; i < ids->size(); ++i) {
    const auto id = AsInteger((*ids)[i], 0, std::numeric_limits<TokenId>::max());
    if (!id) return body.Check(WrongType(ElementPath("stop_token_ids", i), "a token id", (*ids)[i]));
    sampling.add_stop_ids(static_cast<TokenId>(*id));
  }
}

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
  if (const auto value = body.Number("temperature")) sampling.set_temperature(*value);
  if (const auto value = body.Number("top_p")) sampling.set_top_p(*value);
  if (const auto value = body.Integer32("top_k")) sampling.set_top_k(*value == -1 ? 0 : *value);  // -1: off, with vLLM
  if (const auto value = body.Number("min_p")) sampling.set_min_p(*value);
  if (const auto value = body.Number("repetition_penalty")) sampling.set_repetition_penalty(*value);
  if (const auto value = body.Number("presence_penalty")) sampling.set_presence_penalty(*value);
  if (const auto value = body.Number("frequency_penalty")) sampling.set_frequency_penalty(*value);
  if (const auto value = body.Integer("seed")) sampling.set_seed(static_cast<uint64_t>(*value));
  if (const auto value = body.Bool("ignore_eos")) sampling.set_ignore_eos(*value);
  ReadStops(body, sampling);
  ReadStopIds(body, sampling);
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
