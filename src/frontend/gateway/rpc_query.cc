#include "frontend/gateway/rpc_query.h"

#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "base/strings.h"
#include "frontend/openai/completion_call.h"

namespace baton {
namespace {

absl::Status Expected(std::string_view what, std::string_view got) {
  return absl::InvalidArgumentError(
      StrCat("query: expected ", what, ", got '", absl::CHexEscape(ToAbsl(got.substr(0, 256))), "'"));
}

absl::Status ReadStream(std::string_view value, RpcQuery& out, std::string_view part) {
  if (value != "true" && value != "false") return Expected("stream=true or stream=false", part);
  out.stream = value == "true";
  return absl::OkStatus();
}

absl::Status ReadTimeout(std::string_view value, RpcQuery& out, std::string_view part) {
  int64_t milliseconds = 0;
  const bool digits =
      // Digits only: SimpleAtoi would accept a sign or a space.
      value.find_first_not_of("0123456789") == std::string_view::npos;
  if (!digits || !absl::SimpleAtoi(ToAbsl(value), &milliseconds) || milliseconds < 1 || milliseconds > kMaxTimeoutMs) {
    return Expected(StrCat("timeout_ms in [1, ", kMaxTimeoutMs, "]"), part);
  }
  out.timeout = absl::Milliseconds(milliseconds);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RpcQuery> ReadRpcQuery(std::string_view query, bool may_stream) {
  RpcQuery out;
  if (query.empty()) return out;
  std::set<std::string> seen;
  for (const absl::string_view part : absl::StrSplit(ToAbsl(query), '&')) {
    const std::pair<std::string, std::string> field = absl::StrSplit(part, absl::MaxSplits('=', 1));
    const auto& [name, value] = field;
    if (name == "stream" && may_stream) {
      RETURN_IF_ERROR(ReadStream(value, out, ToStd(part)));
    } else if (name == "timeout_ms") {
      RETURN_IF_ERROR(ReadTimeout(value, out, ToStd(part)));
    } else {
      return Expected(may_stream ? "stream=true, stream=false or timeout_ms=N" : "timeout_ms=N", ToStd(part));
    }
    if (!seen.insert(name).second) return Expected(StrCat("one ", name), query);
  }
  return out;
}

}  // namespace baton
