// From the regular expressions of tokenizer.json to those of PCRE2.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace baton {

// Hugging Face's tokenizers run patterns on Oniguruma with Unicode 16; the PCRE2 that we run on differs in syntax, in
// what \s is, and in which letters and digits its Unicode version knows. The result matches what the original does
// there; what is not known to mean the same is refused by name.
absl::StatusOr<std::string> PcrePattern(std::string_view pattern);

}  // namespace baton
