// tokenizer.json, read in one pass: its large tables go to vectors instead of a document, which would take ten times
// as long.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace baton {

struct TokenizerJson {
  nlohmann::json document;                                  // all but model.vocab and model.merges
  std::vector<std::pair<std::string, int64_t>> vocab;       // token, as written, and id
  std::vector<std::pair<std::string, std::string>> merges;  // left and right, as written
};

// NOT_FOUND, or INVALID_ARGUMENT that names file and reason.
absl::StatusOr<TokenizerJson> ReadTokenizerJson(const std::string& path);

}  // namespace baton
