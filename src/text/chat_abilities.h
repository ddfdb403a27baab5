// The parts of a chat that a chat template can show.
#pragma once

namespace baton {

class ChatTemplate;

struct ChatAbilities {
  bool tools = true;
  bool calls = true;           // calls of tools in answers
  bool several_calls = true;   // in one answer
  bool results = true;         // messages of the role "tool", in a form of their own
  bool system = true;          // a system message
  bool repeated_users = true;  // two messages of the user without an answer between them
};

// Renders short chats, and looks for their parts in the text. The source of a template does not
// show reliably what it refuses or leaves out.
ChatAbilities AbilitiesOf(const ChatTemplate& chat_template);

}  // namespace baton
