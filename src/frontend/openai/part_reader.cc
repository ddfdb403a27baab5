#include "frontend/openai/part_reader.h"

#include <algorithm>

#include "base/strings.h"
#include "frontend/openai/agent_fields.h"
#include "frontend/openai/known_members.h"

namespace baton {
namespace {

enum class Kind { kText, kReasoning, kHiddenReasoning, kMedia, kTokenIds, kOutputOf, kGroup, kOwnOutput };

struct PartType {
  std::string_view name;
  Kind kind;
  std::string_view text{};  // the member that has the text
  Media media{};
};

// The types of the chats, the Responses API and Anthropic's messages, and those of vLLM.
constexpr PartType kTypes[] = {
    {"text", Kind::kText, "text"},
    {"input_text", Kind::kText, "text"},
    {"output_text", Kind::kText, "text"},
    {"refusal", Kind::kText, "refusal"},
    {"thinking", Kind::kReasoning, "thinking"},
    {"reasoning", Kind::kReasoning, "reasoning"},
    {"redacted_thinking", Kind::kHiddenReasoning, "data"},
    {"token_ids", Kind::kTokenIds},
    {"output_of", Kind::kOutputOf},
    {"group", Kind::kGroup},
    {"output", Kind::kOwnOutput},
    {"image_url", Kind::kMedia, {}, Media::kImage},
    {"input_image", Kind::kMedia, {}, Media::kImage},
    {"image", Kind::kMedia, {}, Media::kImage},
    {"image_pil", Kind::kMedia, {}, Media::kImage},
    {"image_embeds", Kind::kMedia, {}, Media::kImage},
    {"input_audio", Kind::kMedia, {}, Media::kAudio},
    {"audio_url", Kind::kMedia, {}, Media::kAudio},
    {"audio", Kind::kMedia, {}, Media::kAudio},
    {"audio_embeds", Kind::kMedia, {}, Media::kAudio},
    {"video_url", Kind::kMedia, {}, Media::kVideo},
    {"video", Kind::kMedia, {}, Media::kVideo},
    {"file", Kind::kMedia, {}, Media::kFile},
    {"input_file", Kind::kMedia, {}, Media::kFile},
    {"document", Kind::kMedia, {}, Media::kFile},
};

bool IsAllowed(Kind kind, PartPlace place) {
  switch (kind) {
    case Kind::kReasoning:
    case Kind::kHiddenReasoning:
      return place.may_reason;
    case Kind::kOutputOf:
    case Kind::kGroup:
      return !place.own_output;
    case Kind::kOwnOutput:
      return place.own_output;
    default:
      return true;
  }
}

const PartType* FindType(std::string_view name, PartPlace place) {
  const auto* const type = std::ranges::find(kTypes, name, &PartType::name);
  return type != std::end(kTypes) && IsAllowed(type->kind, place) ? type : nullptr;
}

void ReadMedia(const PartType& type, const std::string& path, PartPlace place, FieldReader& owner,
               v1::ChatMessage& message, PartNotes& notes) {
  if (!place.leaves_out_media) {
    return owner.Check(
        absl::InvalidArgumentError(StrCat(path, ": this model reads text, got a part of type '", type.name, "'")));
  }
  const auto index = static_cast<size_t>(type.media);
  message.add_parts()->set_text(StrCat("[", kMediaNames[index], " left out: this model reads text]"));
  ++notes.left_out[index];
}

void ReadText(FieldReader& fields, const PartType& type, v1::ChatMessage& message, PartNotes& notes) {
  const std::string* text = fields.Text(type.text);
  if (type.kind == Kind::kReasoning) {
    // A thought may have a signature only.
    if (text != nullptr) notes.reasoning += *text;
  } else if (text == nullptr) {
    fields.Refuse(type.text, "expected a string, got none");
  } else {
    message.add_parts()->set_text(*text);
  }
}

}  // namespace

void ReadPart(const Json& part, const std::string& path, PartPlace place, FieldReader& owner, v1::ChatMessage& message,
              PartNotes& notes) {
  FieldReader fields(part, path);
  const std::string* name = fields.Text("type");
  if (!fields.ok()) return owner.Check(fields.Finish());
  const PartType* type = name == nullptr ? nullptr : FindType(*name, place);
  if (type == nullptr) {
    const std::string known = StrCat("expected 'text' or '", place.own_output ? "output" : "output_of", "', got ");
    fields.Refuse("type",
                  name == nullptr ? known + "none" : StrCat(known, ShowJson(*name), ", which is not supported"));
    return owner.Check(fields.Finish());
  }
  switch (type->kind) {
    case Kind::kText:
    case Kind::kReasoning:
      ReadText(fields, *type, message, notes);
      break;
    case Kind::kHiddenReasoning:
      fields.Any(type->text);
      break;
    case Kind::kMedia:
      return ReadMedia(*type, path, place, owner, message, notes);
    case Kind::kTokenIds: {
      const Json* ids = fields.Array("token_ids");
      if (ids == nullptr) {
        fields.Refuse("token_ids", "expected a list of token ids, got none");
      } else {
        v1::TokenIds& out = *message.add_parts()->mutable_token_ids();
        fields.Check(ReadTokenIds(*ids, fields.Path("token_ids"), place.model, out));
      }
      break;
    }
    case Kind::kOutputOf:
      if (fields.Any("output_of") == nullptr) {
        fields.Refuse("output_of", "expected a request id or an object, got none");
      }
      ReadOutputOf(fields, *message.add_parts()->mutable_output_of());
      break;
    case Kind::kGroup:
      if (fields.Any("group") == nullptr) fields.Refuse("group", "expected a list of segments, got none");
      ReadGroup(fields, place.model, *message.add_parts()->mutable_group());
      break;
    case Kind::kOwnOutput:
      message.add_parts()->mutable_output_of();
      break;
  }
  SkipMembers(fields, PartMembers());
  owner.Check(fields.Finish());
}

}  // namespace baton
