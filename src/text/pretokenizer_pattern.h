// The translation of the regular expressions in tokenizer.json to PCRE2.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace baton {

// Returns a PCRE2 pattern with the same matches as `pattern` has in Hugging Face's tokenizers.
// Those use Oniguruma with Unicode 16. PCRE2 differs in syntax, in the meaning of \s, and in the
// letters and digits of its Unicode version. A construct that may have another meaning in PCRE2 is
// refused, and the error names it.
absl::StatusOr<std::string> PcrePattern(std::string_view pattern);

}  // namespace baton
