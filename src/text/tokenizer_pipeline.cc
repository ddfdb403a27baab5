#include "text/tokenizer_pipeline.h"

#include <string>

#include "base/status.h"
#include "text/tokenizer_fields.h"

namespace baton {
namespace {

using nlohmann::json;

// The pattern of ByteLevel with use_regex (Radford et al. 2019).
constexpr const char* kGpt2Pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

const json& Step(const json& document, const std::string& name) {
  static const json none;
  const auto found = document.find(name);
  return found == document.end() ? none : *found;
}

absl::Status NotSupported(const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(what, " is not supported"));
}

absl::Status ReadNormalizer(const json& step, TokenizerSpec& spec) {
  if (step.is_null()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string type, Text(step, "type"));
  if (type == "Sequence") {
    ASSIGN_OR_RETURN(const json::array_t steps, OptionalArray(step, "normalizers"));
    for (const json& inner : steps) RETURN_IF_ERROR(ReadNormalizer(inner, spec));
    return absl::OkStatus();
  }
  if (type != "NFC") return NotSupported(type);
  spec.nfc = true;
  return absl::OkStatus();
}

absl::StatusOr<std::string> SplitPattern(const json& step) {
  ASSIGN_OR_RETURN(const std::string behavior, Text(step, "behavior"));
  if (behavior != "Isolated") return NotSupported(absl::StrCat("Split with behavior ", behavior));
  const json& pattern = Step(step, "pattern");
  if (pattern.contains("String")) return NotSupported("Split by a String");
  auto regex = Text(pattern, "Regex");
  return regex.ok() ? regex : At("pattern", regex.status());
}

// Reads the step ByteLevel, which is the last. After it, the model gets bytes.
absl::Status ReadByteLevel(const json& step, TokenizerSpec& spec) {
  ASSIGN_OR_RETURN(const bool adds_space, Flag(step, "add_prefix_space", true));
  if (adds_space) return NotSupported("ByteLevel with add_prefix_space");
  ASSIGN_OR_RETURN(const bool splits, Flag(step, "use_regex", true));
  if (splits) spec.split.push_back(kGpt2Pattern);
  return absl::OkStatus();
}

absl::Status ReadPreTokenizer(const json& step, TokenizerSpec& spec, bool& byte_level) {
  if (step.is_null()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string type, Text(step, "type"));
  if (byte_level) return NotSupported(absl::StrCat(type, " after ByteLevel"));
  if (type == "Sequence") {
    ASSIGN_OR_RETURN(const json::array_t steps, OptionalArray(step, "pretokenizers"));
    for (size_t i = 0; i < steps.size(); ++i) {
      RETURN_IF_ERROR(At(absl::StrCat("pretokenizers[", i, "]"), ReadPreTokenizer(steps[i], spec, byte_level)));
    }
    return absl::OkStatus();
  }
  if (type == "Split") {
    ASSIGN_OR_RETURN(std::string pattern, SplitPattern(step));
    spec.split.push_back(std::move(pattern));
    return absl::OkStatus();
  }
  if (type == "Digits") {
    ASSIGN_OR_RETURN(const bool individual, Flag(step, "individual_digits", false));
    spec.split.push_back(individual ? R"(\p{N})" : R"(\p{N}+)");
    return absl::OkStatus();
  }
  if (type != "ByteLevel") return NotSupported(type);
  byte_level = true;
  return ReadByteLevel(step, spec);
}

// Appends to spec.prompt_prefix the ids of a special token of a template.
absl::Status AppendSpecialToken(const json& part, const json& special_tokens, TokenizerSpec& spec) {
  ASSIGN_OR_RETURN(const std::string name, Text(part, "id"));
  const json& token = Step(special_tokens, name);
  if (token.is_null()) return absl::InvalidArgumentError(absl::StrCat("special_tokens: '", name, "' is missing"));
  ASSIGN_OR_RETURN(const json::array_t ids, OptionalArray(token, "ids"));
  for (const json& id : ids) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= spec.tokens.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("special_tokens: '", name, "': expected ids below ", spec.tokens.size(), ", got ", id.dump()));
    }
    spec.prompt_prefix.push_back(id.get<TokenId>());
  }
  return absl::OkStatus();
}

absl::Status ReadTemplate(const json& step, TokenizerSpec& spec) {
  if (!spec.prompt_prefix.empty()) return NotSupported("a second TemplateProcessing");
  ASSIGN_OR_RETURN(const json::array_t parts, OptionalArray(step, "single"));
  bool text_seen = false;
  for (const json& part : parts) {
    if (part.contains("Sequence")) {
      if (text_seen) return NotSupported("TemplateProcessing that repeats the text");
      text_seen = true;
    } else if (part.contains("SpecialToken")) {
      if (text_seen) return NotSupported("TemplateProcessing with tokens after the text");
      RETURN_IF_ERROR(AppendSpecialToken(part["SpecialToken"], Step(step, "special_tokens"), spec));
    } else {
      return absl::InvalidArgumentError("single: expected SpecialToken or Sequence");
    }
  }
  return text_seen ? absl::OkStatus() : absl::InvalidArgumentError("single: expected a Sequence");
}

absl::Status ReadPostProcessor(const json& step, TokenizerSpec& spec) {
  if (step.is_null()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string type, Text(step, "type"));
  if (type == "ByteLevel") return absl::OkStatus();  // It changes offsets and no tokens.
  if (type == "TemplateProcessing") return ReadTemplate(step, spec);
  if (type != "Sequence") return NotSupported(type);
  ASSIGN_OR_RETURN(const json::array_t steps, OptionalArray(step, "processors"));
  for (size_t i = 0; i < steps.size(); ++i) {
    RETURN_IF_ERROR(At(absl::StrCat("processors[", i, "]"), ReadPostProcessor(steps[i], spec)));
  }
  return absl::OkStatus();
}

absl::Status CheckDecoder(const json& step) {
  ASSIGN_OR_RETURN(const std::string type, Text(step, "type"));
  return type == "ByteLevel" ? absl::OkStatus() : NotSupported(type);
}

}  // namespace

absl::Status ReadPipeline(const json& document, TokenizerSpec& spec) {
  RETURN_IF_ERROR(At("normalizer", ReadNormalizer(Step(document, "normalizer"), spec)));
  bool byte_level = false;
  RETURN_IF_ERROR(At("pre_tokenizer", ReadPreTokenizer(Step(document, "pre_tokenizer"), spec, byte_level)));
  if (!byte_level) return absl::InvalidArgumentError("pre_tokenizer: expected ByteLevel as its last step");
  RETURN_IF_ERROR(At("post_processor", ReadPostProcessor(Step(document, "post_processor"), spec)));
  return At("decoder", CheckDecoder(Step(document, "decoder")));
}

}  // namespace baton
