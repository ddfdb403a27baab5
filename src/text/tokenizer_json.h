// A reader of tokenizer.json. It reads the file in one pass and stores the large tables in vectors.
// A JSON document of these tables would take ten times as long.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace baton {

struct TokenizerJson {
  nlohmann::json document;                                  // without model.vocab and model.merges
  std::vector<std::pair<std::string, int64_t>> vocab;       // token, as written, and id
  std::vector<std::pair<std::string, std::string>> merges;  // left and right, as written
};

// Fails with NOT_FOUND, or with INVALID_ARGUMENT that names the file and the reason.
absl::StatusOr<TokenizerJson> ReadTokenizerJson(const std::string& path);

}  // namespace baton
