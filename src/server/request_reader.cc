#include "server/request_reader.h"

#include <algorithm>
#include <string_view>

#include "absl/strings/ascii.h"
#include "base/status.h"
#include "base/strings.h"
#include "server/worker_convert.h"

namespace baton {
namespace {

constexpr int kMaxSegments = 4096;
constexpr int kMaxMessages = 4096;
constexpr size_t kMaxNameBytes = 256;  // session_id, cache_salt
constexpr size_t kMaxRequestIdBytes = 128;
constexpr size_t kMaxRoleBytes = 64;
constexpr int32_t kMaxPriority = 1000;

absl::Status CheckLength(std::string_view field, size_t bytes, size_t limit) {
  if (bytes <= limit) return absl::OkStatus();
  return absl::InvalidArgumentError(StrCat(field, ": ", bytes, " bytes, limit ", limit));
}

absl::Status CheckRequestId(const std::string& id) {
  RETURN_IF_ERROR(CheckLength("request_id", id.size(), kMaxRequestIdBytes));
  const bool plain = std::ranges::all_of(id, [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || std::string_view("-_.:").find(c) != std::string::npos;
  });
  if (plain) return absl::OkStatus();
  return absl::InvalidArgumentError("request_id: expected letters, digits and \"-_.:\" only");
}

// What a prompt may be at most.
struct Room {
  const ServedModel& model;
  int32_t reserve;  // tokens of the context that must stay free
  int64_t limit() const { return int64_t{model.context} - reserve; }

  absl::Status Check(int64_t tokens, std::string_view at_least = "") const {
    if (tokens <= limit()) return absl::OkStatus();
    return absl::InvalidArgumentError(StrCat("prompt: ", at_least, tokens, " tokens, limit ", limit(), " (context ",
                                             model.context, " of '", model.name, "'",
                                             reserve > 0 ? ", less one token to generate" : "", ")"));
  }
  // Before text is tokenised, which takes time: whether it could fit after `before` tokens.
  absl::Status CheckText(std::string_view text, size_t before) const {
    const int64_t tokens = static_cast<int64_t>(text.size()) / model.tokenizer->max_bytes_per_token();
    return Check(static_cast<int64_t>(before) + tokens, "at least ");
  }
};

// The tokens of one segment are added to `tokens`.
absl::Status AddSegment(const v1::Segment& segment, int index, const Room& room, std::vector<TokenId>& tokens) {
  const ServedModel& model = room.model;
  const auto field = [&](std::string_view rest) { return StrCat("segments[", index, "]", rest); };
  switch (segment.kind_case()) {
    case v1::Segment::kText: {
      if (index == 0) {
        const auto prefix = model.tokenizer->prompt_prefix();
        tokens.insert(tokens.end(), prefix.begin(), prefix.end());
      }
      RETURN_IF_ERROR(room.CheckText(segment.text(), tokens.size()));
      const auto ids = model.tokenizer->Encode(segment.text(), Tokenizer::SpecialTokens::kAsText);
      tokens.insert(tokens.end(), ids.begin(), ids.end());
      return absl::OkStatus();
    }
    case v1::Segment::kTokenIds: {
      const auto& ids = segment.token_ids().ids();
      for (int i = 0; i < ids.size(); ++i) {
        if (ids[i] < 0 || ids[i] >= model.vocab) {
          return absl::InvalidArgumentError(StrCat(field(".token_ids.ids["), i, "]: expected [0, ", model.vocab,
                                                   "), the vocabulary of '", model.name, "', got ", ids[i]));
        }
      }
      tokens.insert(tokens.end(), ids.begin(), ids.end());
      return absl::OkStatus();
    }
    case v1::Segment::kOutputOf:
      return absl::UnimplementedError(field(".output_of: references to other requests are not supported yet"));
    case v1::Segment::KIND_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError(field(": expected text, token_ids or output_of, got none"));
}

absl::StatusOr<std::vector<TokenId>> ReadSegments(const v1::Segments& segments, const Room& room) {
  if (segments.segments_size() > kMaxSegments) {
    return absl::InvalidArgumentError(
        StrCat("segments: ", segments.segments_size(), " segments, limit ", kMaxSegments));
  }
  std::vector<TokenId> tokens;
  for (int i = 0; i < segments.segments_size(); ++i) {
    RETURN_IF_ERROR(AddSegment(segments.segments(i), i, room, tokens));
  }
  return tokens;
}

absl::StatusOr<std::vector<TokenId>> ReadChat(const v1::Chat& chat, const Room& room, absl::Time now) {
  const ServedModel& model = room.model;
  if (model.chat_template == nullptr) {
    return absl::UnimplementedError(StrCat("chat: model '", model.name, "' has no chat template"));
  }
  const int count = chat.messages_size();
  if (count < 1 || count > kMaxMessages) {
    return absl::InvalidArgumentError(StrCat("chat.messages: expected 1 to ", kMaxMessages, ", got ", count));
  }
  ChatInput input;
  input.now = now;
  input.messages = nlohmann::ordered_json::array();
  for (int i = 0; i < count; ++i) {
    const v1::ChatMessage& message = chat.messages(i);
    const std::string field = StrCat("chat.messages[", i, "].role");
    if (message.role().empty()) return absl::InvalidArgumentError(StrCat(field, ": must not be empty"));
    RETURN_IF_ERROR(CheckLength(field, message.role().size(), kMaxRoleBytes));
    input.messages.push_back({{"role", message.role()}, {"content", message.content()}});
  }
  auto text = model.chat_template->Render(input);
  if (!text.ok()) return absl::Status(text.status().code(), StrCat("chat: ", text.status().message()));
  RETURN_IF_ERROR(room.CheckText(*text, 0));
  return model.tokenizer->Encode(*text, Tokenizer::SpecialTokens::kParse);
}

// The fields that both calls have.
template <typename Request>
absl::StatusOr<ClientRequest> ReadCommon(const Request& in, const Room& room, absl::Time now) {
  const ServedModel& model = room.model;
  ClientRequest out;
  out.model = model.name;
  RETURN_IF_ERROR(CheckLength("session_id", in.session_id().size(), kMaxNameBytes));
  RETURN_IF_ERROR(CheckLength("cache_salt", in.cache_salt().size(), kMaxNameBytes));
  RETURN_IF_ERROR(CheckRequestId(in.request_id()));
  if (in.priority() < -kMaxPriority || in.priority() > kMaxPriority) {
    return absl::InvalidArgumentError(
        StrCat("priority: expected [", -kMaxPriority, ", ", kMaxPriority, "], got ", in.priority()));
  }
  if (!in.has_segments() && !in.has_chat()) {
    return absl::InvalidArgumentError("prompt: expected segments or chat, got none");
  }
  ASSIGN_OR_RETURN(out.tokens, in.has_chat() ? ReadChat(in.chat(), room, now) : ReadSegments(in.segments(), room));
  if (out.tokens.empty()) return absl::InvalidArgumentError("prompt: is empty, expected at least one token");
  RETURN_IF_ERROR(room.Check(static_cast<int64_t>(out.tokens.size())));
  const auto bad = std::ranges::find_if(out.tokens, [&](TokenId id) { return id < 0 || id >= model.vocab; });
  if (bad != out.tokens.end()) {
    return absl::InternalError(
        StrCat("the tokenizer of '", model.name, "' made token ", *bad, ", its model has only ", model.vocab));
  }
  out.session = in.session_id();
  out.cache_salt = in.cache_salt();
  out.id = in.request_id();
  out.priority = in.priority();
  return out;
}

// What the client leaves unset is as the model's makers want it.
void FillIn(const SamplingParams& defaults, const v1::Sampling& given, SamplingParams& out) {
  if (!given.has_temperature()) out.temperature = defaults.temperature;
  if (!given.has_top_k()) out.top_k = defaults.top_k;
  if (!given.has_top_p()) out.top_p = defaults.top_p;
  if (!given.has_min_p()) out.min_p = defaults.min_p;
  if (!given.has_repetition_penalty()) out.repetition_penalty = defaults.repetition_penalty;
}

absl::Status ReadSampling(const v1::Sampling& sampling, const ServedModel& model, ClientRequest& out) {
  const auto prompt = static_cast<int32_t>(out.tokens.size());
  out.sampling = FromProto(sampling);
  FillIn(model.sampling, sampling, out.sampling);
  if (!sampling.has_max_tokens()) out.sampling.max_tokens = std::min(kDefaultMaxTokens, model.context - prompt);
  RETURN_IF_ERROR(Validate(out.sampling, model.vocab));
  if (out.sampling.max_tokens > model.context - prompt) {
    return absl::InvalidArgumentError(StrCat("sampling.max_tokens: ", out.sampling.max_tokens, " after a prompt of ",
                                             prompt, " tokens, limit ", model.context - prompt, " (context ",
                                             model.context, " of '", model.name, "')"));
  }
  return absl::OkStatus();
}

}  // namespace

size_t TextBytes(const v1::Segments& segments) {
  size_t bytes = 0;
  for (const v1::Segment& segment : segments.segments()) bytes += segment.text().size();
  return bytes;
}

size_t TextBytes(const v1::Chat& chat) {
  size_t bytes = 0;
  for (const v1::ChatMessage& message : chat.messages()) bytes += message.content().size();
  return bytes;
}

absl::StatusOr<ClientRequest> ReadRequest(const v1::GenerateRequest& request, const ServedModels& models,
                                          absl::Time now) {
  ASSIGN_OR_RETURN(const ServedModel* model, models.Find(request.model()));
  ASSIGN_OR_RETURN(ClientRequest out, ReadCommon(request, Room{*model, 1}, now));
  RETURN_IF_ERROR(ReadSampling(request.sampling(), *model, out));
  return out;
}

absl::StatusOr<ClientRequest> ReadRequest(const v1::PrefillOnlyRequest& request, const ServedModels& models,
                                          absl::Time now) {
  ASSIGN_OR_RETURN(const ServedModel* model, models.Find(request.model()));
  ASSIGN_OR_RETURN(ClientRequest out, ReadCommon(request, Room{*model, 0}, now));
  out.prefill_only = true;
  return out;
}

}  // namespace baton
