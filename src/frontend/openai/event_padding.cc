#include "frontend/openai/event_padding.h"

#include "base/strings.h"
#include "frontend/openai/json_text.h"

namespace baton {
namespace {

constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

}  // namespace

void EventPadding::Pad(size_t begin, size_t fixed, std::string& events) {
  while (begin < events.size()) {
    const size_t end = events.find(kEventEnd, begin) + kEventEnd.size(), size = end - begin;
    const size_t beyond = (size + kUnit - fixed % kUnit) % kUnit;  // after the last whole unit
    std::string padding(kUnit - beyond, '\0');
    for (char& c : padding) c = kLetters[random_() % kLetters.size()];
    const std::string member = StrCat(",\"obfuscation\":\"", padding, "\"");
    events.insert(end - kEventEnd.size() - 1, member);
    begin = end + member.size();
  }
}

}  // namespace baton
