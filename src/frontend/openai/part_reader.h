// Reads one part of a message's content.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "frontend/openai/field_reader.h"
#include "inference.pb.h"
#include "model/served_model.h"

namespace baton {

// The kinds of parts that a text model cannot read.
enum class Media : uint8_t { kImage, kAudio, kVideo, kFile };
inline constexpr std::array<std::string_view, 4> kMediaNames = {"image", "audio", "video", "file"};

// The number of parts of each kind that a chat left out.
using MediaCounts = std::array<int64_t, kMediaNames.size()>;

// The place of a part, which determines the types that it may have.
struct PartPlace {
  const ServedModel& model;
  // Parts of type "output" stand for the output of this call. Otherwise parts of type "output_of"
  // stand for the output of another one.
  bool own_output = false;
  bool may_reason = false;        // in an answer of the assistant
  bool leaves_out_media = false;  // in the result of a tool
};

// The reasoning of a message's parts, and the number of parts that a text replaced.
struct PartNotes {
  std::string reasoning{};
  MediaCounts left_out{};
};

// Reads a text, a refusal, a thought, token ids, a reference to an output or a part group. Appends
// at most one segment to `message.parts`. The text of a thought goes to `notes`. An image, a video,
// audio or a file is an error that names the part, or is replaced by a text. `path` is the name of
// the part in errors, which go to `owner`.
void ReadPart(const Json& part, const std::string& path, PartPlace place, FieldReader& owner, v1::ChatMessage& message,
              PartNotes& notes);

}  // namespace baton
