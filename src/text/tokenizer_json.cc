#include "text/tokenizer_json.h"

#include <string_view>

#include "base/mapped_file.h"
#include "base/status.h"

namespace baton {
namespace {

using nlohmann::json;

constexpr size_t kMaxTokenizerBytes = size_t{256} << 20;
constexpr size_t kMaxDepth = 64;

// A parser that fills a TokenizerJson.
class Reader final : public nlohmann::json_sax<json> {
 public:
  TokenizerJson result;
  std::string problem;  // the reason, set before a method returns false

  bool null() override { return Value(nullptr); }
  bool boolean(bool value) override { return Value(value); }
  bool number_float(double value, const std::string&) override { return Value(value); }
  bool binary(binary_t&) override { return Fail("binary value"); }

  bool number_integer(int64_t value) override {
    if (place_ == Place::kVocab) return Fail(absl::StrCat("model.vocab: negative id ", value));
    return Value(value);
  }
  bool number_unsigned(uint64_t value) override {
    if (place_ != Place::kVocab) return Value(value);
    if (value > INT32_MAX) return Fail(absl::StrCat("model.vocab: id ", value, " is too large"));
    result.vocab.back().second = static_cast<int64_t>(value);
    return true;
  }

  bool string(std::string& value) override {
    if (place_ == Place::kMerges) return MergeText(value);
    if (place_ == Place::kMergePair) {
      merge_.push_back(std::move(value));
      return merge_.size() <= 2 || Fail("model.merges: expected two tokens in a merge, got more");
    }
    return Value(std::move(value));
  }

  bool start_object(size_t) override {
    if (place_ == Place::kDocument && At("model", "vocab")) {
      place_ = Place::kVocab;
      return true;
    }
    return Open(json::object());
  }
  bool key(std::string& name) override {
    if (place_ == Place::kVocab) {
      result.vocab.emplace_back(std::move(name), 0);
    } else {
      key_ = std::move(name);
    }
    return true;
  }
  bool end_object() override { return Close(Place::kVocab); }

  bool start_array(size_t) override {
    if (place_ == Place::kMerges) {
      place_ = Place::kMergePair;
      return true;
    }
    if (place_ == Place::kDocument && At("model", "merges")) {
      place_ = Place::kMerges;
      return true;
    }
    return Open(json::array());
  }
  bool end_array() override {
    if (place_ != Place::kMergePair) return Close(Place::kMerges);
    place_ = Place::kMerges;
    if (merge_.size() != 2) return Fail("model.merges: expected two tokens in a merge, got fewer");
    result.merges.emplace_back(std::move(merge_[0]), std::move(merge_[1]));
    merge_.clear();
    return true;
  }

  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& error) override {
    return Fail(absl::StrCat("not JSON: ", error.what()));
  }

 private:
  enum class Place { kDocument, kVocab, kMerges, kMergePair };

  struct Level {
    json* node;
    std::string key;  // its key in its parent
  };

  // Returns true if the value that starts now is document[first][second].
  bool At(std::string_view first, std::string_view second) const {
    return levels_.size() == 2 && levels_[1].key == first && levels_[1].node->is_object() && key_ == second;
  }

  bool MergeText(const std::string& text) {
    const size_t space = text.find(' ');
    if (space == std::string::npos || space == 0 || space + 1 == text.size() ||
        text.find(' ', space + 1) != text.npos) {
      return Fail(absl::StrCat("model.merges[", result.merges.size(),
                               "]: expected two tokens with a space between, got '", text, "'"));
    }
    result.merges.emplace_back(text.substr(0, space), text.substr(space + 1));
    return true;
  }

  json* Insert(json value) {
    if (levels_.empty()) return &(result.document = std::move(value));
    json& parent = *levels_.back().node;
    if (parent.is_object()) return &(parent[key_] = std::move(value));
    parent.push_back(std::move(value));
    return &parent.back();
  }

  bool Value(json value) {
    if (place_ == Place::kVocab) return Fail(absl::StrCat("model.vocab: expected ids, got ", value.type_name()));
    if (place_ != Place::kDocument) return Fail(absl::StrCat("model.merges: expected tokens, got ", value.type_name()));
    Insert(std::move(value));
    return true;
  }

  bool Open(json container) {
    if (place_ != Place::kDocument) return Value(std::move(container));
    if (levels_.size() == kMaxDepth) return Fail(absl::StrCat("nested deeper than ", kMaxDepth));
    const std::string key = levels_.empty() || !levels_.back().node->is_object() ? "" : key_;
    levels_.push_back({Insert(std::move(container)), key});
    return true;
  }

  bool Close(Place table) {
    if (place_ == table) {
      place_ = Place::kDocument;
    } else {
      levels_.pop_back();
    }
    return true;
  }

  bool Fail(std::string what) {
    if (problem.empty()) problem = std::move(what);
    return false;
  }

  Place place_ = Place::kDocument;
  std::vector<Level> levels_;  // the open containers, from the outermost
  std::string key_;            // the last key
  std::vector<std::string> merge_;
};

}  // namespace

absl::StatusOr<TokenizerJson> ReadTokenizerJson(const std::string& path) {
  ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  if (text.size() > kMaxTokenizerBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", text.size(), " bytes, expected at most ", kMaxTokenizerBytes));
  }
  Reader reader;
  try {
    if (!json::sax_parse(text, &reader)) return absl::InvalidArgumentError(absl::StrCat(path, ": ", reader.problem));
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": not JSON: ", error.what()));
  }
  if (!reader.result.document.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": expected a JSON object"));
  }
  return std::move(reader.result);
}

}  // namespace baton
