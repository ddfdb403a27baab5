// The text of answers, as workers send it and as clients read it.
#pragma once

#include <string>
#include <string_view>

#include "catch.h"
#include "request/answers.h"

namespace baton {

// Returns an update of one token for each byte of the text.
inline TokenUpdate Text(const std::string& text, bool logprobs = false) {
  TokenUpdate update;
  update.text = text;
  for (const char c : text) {
    update.tokens.push_back(static_cast<unsigned char>(c));
    if (logprobs) update.logprobs.push_back({.logprob = -1});
  }
  return update;
}

// Checks that the part is in the text.
inline bool Has(const std::string& text, std::string_view part) {
  INFO(text);
  CHECK(text.find(part) != std::string::npos);
  return text.find(part) != std::string::npos;
}

}  // namespace baton
