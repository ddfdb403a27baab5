#include "text/tokenizer_reader.h"

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/numbers.h"
#include "base/json/json_file.h"
#include "base/status.h"
#include "text/byte_alphabet.h"
#include "text/tokenizer_fields.h"
#include "text/tokenizer_json.h"
#include "text/tokenizer_pipeline.h"

namespace baton {
namespace {

using nlohmann::json;

constexpr int64_t kMaxTokens = int64_t{1} << 22;
// Bytes. For each byte of text, the search for added tokens takes time up to this length.
constexpr size_t kLongestAddedToken = 1024;
constexpr int64_t kMaxConfigBytes = int64_t{16} << 20;

absl::Status Invalid(std::string what) { return absl::InvalidArgumentError(what); }

class SpecReader {
 public:
  absl::Status ReadFile(const TokenizerJson& file) {
    const auto model = file.document.find("model");
    if (model == file.document.end() || !model->is_object()) return Invalid("model: expected an object");
    // Added tokens come first. In the vocabulary, only added tokens may be written as plain text.
    ASSIGN_OR_RETURN(const json::array_t added, OptionalArray(file.document, "added_tokens"));
    for (size_t i = 0; i < added.size(); ++i) {
      const std::string where = absl::StrCat("added_tokens[", i, "]");
      const auto id = Integer(added[i], "id");
      if (!id.ok()) return At(where, id.status());
      RETURN_IF_ERROR(At(where, ReadAddedToken(*id, added[i])));
    }
    RETURN_IF_ERROR(At("model.vocab", ReadVocab(file.vocab)));
    RETURN_IF_ERROR(At("model.merges", ReadMerges(file.merges)));
    RETURN_IF_ERROR(At("model", ReadOptions(*model)));
    RETURN_IF_ERROR(At("added_tokens", PlaceAddedTokens()));
    return ReadPipeline(file.document, spec_);
  }

  // Reads the added tokens that only the config lists. transformers adds them as well.
  absl::Status ReadConfig(const json& config) {
    const auto tokens = config.find("added_tokens_decoder");
    if (tokens == config.end()) return absl::OkStatus();
    if (!tokens->is_object()) return Invalid("added_tokens_decoder: expected an object");
    for (const auto& [key, token] : tokens->items()) {
      const std::string where = absl::StrCat("added_tokens_decoder['", key, "']");
      int64_t id = 0;
      if (!absl::SimpleAtoi(key, &id)) return Invalid(absl::StrCat(where, ": expected an id"));
      const auto content = Text(token, "content");
      if (!content.ok()) return At(where, content.status());
      if (added_ids_.contains(*content)) continue;
      RETURN_IF_ERROR(At(where, ReadAddedToken(id, token)));
    }
    return At("added_tokens_decoder", PlaceAddedTokens());
  }

  TokenizerSpec Finish() {
    std::sort(spec_.added.begin(), spec_.added.end(),
              [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
    return std::move(spec_);
  }

 private:
  absl::Status ReadAddedToken(int64_t id, const json& token) {
    AddedToken added;
    RETURN_IF_ERROR(CheckId(id));
    added.id = static_cast<TokenId>(id);
    ASSIGN_OR_RETURN(added.content, Text(token, "content"));
    if (added.content.empty() || added.content.size() > kLongestAddedToken) {
      return Invalid(absl::StrCat("content: expected 1 to ", kLongestAddedToken, " bytes, got ", added.content.size()));
    }
    for (const char* option : {"single_word", "lstrip", "rstrip"}) {
      ASSIGN_OR_RETURN(const bool set, Flag(token, option, false));
      if (set) return Invalid(absl::StrCat("'", added.content, "': ", option, " is not supported"));
    }
    ASSIGN_OR_RETURN(added.special, Flag(token, "special", false));
    ASSIGN_OR_RETURN(added.normalized, Flag(token, "normalized", !added.special));
    if (!added_ids_.emplace(added.content, added.id).second) {
      return Invalid(absl::StrCat("'", added.content, "' is listed twice"));
    }
    spec_.added.push_back(std::move(added));
    return absl::OkStatus();
  }

  absl::Status ReadVocab(const std::vector<std::pair<std::string, int64_t>>& vocab) {
    if (vocab.empty()) return Invalid("expected an object of tokens and their ids");
    vocab_.reserve(vocab.size());
    for (const auto& [token, id] : vocab) {
      RETURN_IF_ERROR(CheckId(id));
      if (!vocab_.emplace(token, static_cast<TokenId>(id)).second) {
        return Invalid(absl::StrCat("'", token, "' is listed twice"));
      }
      if (added_ids_.contains(token)) continue;  // The bytes of an added token are its content.
      const std::optional<std::string> bytes = BytesFromAlphabet(token);
      if (!bytes.has_value() || bytes->empty()) {
        return Invalid(absl::StrCat("'", token, "' (id ", id, ") is not a byte-level token"));
      }
      RETURN_IF_ERROR(Place(static_cast<TokenId>(id), *bytes));
    }
    return absl::OkStatus();
  }

  absl::Status ReadMerges(const std::vector<std::pair<std::string, std::string>>& merges) {
    spec_.merges.reserve(merges.size());
    for (size_t i = 0; i < merges.size(); ++i) {
      const auto& [left, right] = merges[i];
      const std::string merged = left + right;
      MergeRule rule{};
      for (auto [token, id] : {std::pair{&left, &rule.left}, {&right, &rule.right}, {&merged, &rule.merged}}) {
        const auto found = vocab_.find(*token);
        if (found == vocab_.end()) return Invalid(absl::StrCat("[", i, "]: '", *token, "' is not in model.vocab"));
        *id = found->second;
      }
      spec_.merges.push_back(rule);
    }
    return absl::OkStatus();
  }

  absl::Status ReadOptions(const json& model) {
    ASSIGN_OR_RETURN(const std::string type, Text(model, "type"));
    if (type != "BPE") return Invalid(absl::StrCat("type ", type, " is not supported"));
    const auto dropout = model.find("dropout");
    if (dropout != model.end() && !dropout->is_null() && *dropout != 0) {
      return Invalid(absl::StrCat("dropout ", dropout->dump(), " is not supported"));
    }
    for (const char* option : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      ASSIGN_OR_RETURN(const std::string affix, OptionalText(model, option));
      if (!affix.empty()) return Invalid(absl::StrCat(option, " '", affix, "' is not supported"));
    }
    ASSIGN_OR_RETURN(spec_.ignore_merges, Flag(model, "ignore_merges", false));
    return HasAllBytes() ? absl::OkStatus() : ReadUnknown(model);
  }

  // Reads the token that stands for bytes without a token.
  absl::Status ReadUnknown(const json& model) {
    ASSIGN_OR_RETURN(const bool fallback, Flag(model, "byte_fallback", false));
    if (fallback) return Invalid("byte_fallback is not supported for a vocabulary without all bytes");
    ASSIGN_OR_RETURN(const std::string unknown, OptionalText(model, "unk_token"));
    if (unknown.empty()) return absl::OkStatus();
    ASSIGN_OR_RETURN(const bool fuse, Flag(model, "fuse_unk", false));
    if (fuse) return Invalid("fuse_unk is not supported for a vocabulary without all bytes");
    const auto found = vocab_.find(unknown);
    if (found == vocab_.end()) return Invalid(absl::StrCat("unk_token '", unknown, "' is not in the vocabulary"));
    spec_.unknown = found->second;
    return absl::OkStatus();
  }

  bool HasAllBytes() const {
    return std::count_if(spec_.tokens.begin(), spec_.tokens.end(), [](auto& token) { return token.size() == 1; }) ==
           256;
  }

  absl::Status PlaceAddedTokens() {
    for (const AddedToken& token : spec_.added) {
      const auto in_vocab = vocab_.find(token.content);
      if (in_vocab != vocab_.end() && in_vocab->second != token.id) {
        return Invalid(
            absl::StrCat("'", token.content, "' has id ", token.id, ", but ", in_vocab->second, " in model.vocab"));
      }
      RETURN_IF_ERROR(Place(token.id, token.content));
    }
    return absl::OkStatus();
  }

  absl::Status Place(TokenId id, const std::string& bytes) {
    if (spec_.tokens.size() <= static_cast<size_t>(id)) spec_.tokens.resize(id + 1);
    std::string& slot = spec_.tokens[id];
    if (!slot.empty() && slot != bytes) {
      return Invalid(absl::StrCat("id ", id, " is given to '", slot, "' and '", bytes, "'"));
    }
    slot = bytes;
    return absl::OkStatus();
  }

  static absl::Status CheckId(int64_t id) {
    if (id >= 0 && id < kMaxTokens) return absl::OkStatus();
    return Invalid(absl::StrCat("id ", id, ": expected 0 to ", kMaxTokens - 1));
  }

  TokenizerSpec spec_;
  absl::flat_hash_map<std::string, TokenId> added_ids_;   // by content
  absl::flat_hash_map<std::string_view, TokenId> vocab_;  // by token; views into the file
};

}  // namespace

absl::StatusOr<TokenizerSpec> ReadTokenizerSpec(const std::string& directory) {
  const std::string path = directory + "/tokenizer.json";
  ASSIGN_OR_RETURN(const TokenizerJson file, ReadTokenizerJson(path));
  SpecReader reader;
  RETURN_IF_ERROR(At(path, reader.ReadFile(file)));
  const std::string config_path = directory + "/tokenizer_config.json";
  const auto config = ReadJsonObject(config_path, kMaxConfigBytes);
  if (config.ok()) {
    RETURN_IF_ERROR(At(config_path, reader.ReadConfig(*config)));
  } else if (!absl::IsNotFound(config.status())) {
    return config.status();
  }
  return reader.Finish();
}

}  // namespace baton
