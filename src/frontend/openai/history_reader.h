// Reads the messages of a conversation.
#pragma once

#include <optional>

#include "frontend/openai/field_reader.h"
#include "frontend/openai/part_reader.h"
#include "inference.pb.h"
#include "text/chat_values.h"

namespace baton {

// Everything that an answer of this server, or an official client, puts into a message is accepted
// in a later call. Members that do not change the prompt are ignored (known_members.h). A message
// with such members renders to the same tokens as one without them.
class HistoryReader {
 public:
  // `own_output` means that parts stand for the output of this call (PartPlace). Messages go to
  // `chat`, and the calls of each message to `values`. All objects must outlive this reader.
  HistoryReader(const ServedModel& model, bool own_output, v1::Chat& chat, ChatValues& values)
      : model_(model), own_output_(own_output), chat_(chat), values_(values) {}

  // Reads one message. A developer's message becomes one of the system, and the result of a
  // function becomes one of a tool, because templates have these roles.
  // A name is passed on, although few templates show it. Errors go to `message`.
  void Read(FieldReader& message);
  // Returns the number of parts left out so far, by kind.
  const MediaCounts& left_out() const { return left_out_; }

 private:
  enum class Role { kSystem, kUser, kAssistant, kTool, kFunction };

  // Reads the role, and the members that only some roles have.
  static std::optional<Role> ReadRole(FieldReader& message);
  static void ReadReasoning(FieldReader& message, v1::ChatMessage& out);
  static void ReadToolCallId(FieldReader& message, Role role, v1::ChatMessage& out);
  // Reads a text, or a list of parts that are joined without separators.
  void ReadContent(FieldReader& message, Role role, v1::ChatMessage& out);
  void ReadParts(const Json& parts, FieldReader& message, Role role, v1::ChatMessage& out);

  const ServedModel& model_;
  const bool own_output_;
  v1::Chat& chat_;
  ChatValues& values_;
  MediaCounts left_out_{};
};

}  // namespace baton
