// Joins the deltas of a stream's choice to a message.
#pragma once

#include <string_view>

#include "base/json/json_body.h"
#include "catch.h"

namespace baton {

// Adds a delta to a message by the rules of OpenAI's Python package (accumulate_delta): texts are
// joined, and elements of lists are found by their index.
inline void JoinDelta(Json& message, const Json& delta) {
  for (const auto& [name, value] : delta.items()) {
    if (!message.contains(name) || message[name].is_null() || name == "index" || name == "type") {
      message[name] = value;
    } else if (value.is_string()) {
      message[name] = message[name].get<std::string>() + value.get<std::string>();
    } else if (value.is_object()) {
      JoinDelta(message[name], value);
    } else {
      REQUIRE(value.is_array());
      for (const Json& element : value) {
        const size_t index = element.at("index").get<size_t>();
        REQUIRE(index <= message[name].size());
        index < message[name].size() ? JoinDelta(message[name][index], element) : message[name].push_back(element);
      }
    }
  }
}

// Joins the deltas of a stream with one choice.
inline Json JoinStream(std::string_view stream) {
  Json message = Json::object();
  while (!stream.empty()) {
    const size_t end = stream.find("\n\n");
    const std::string_view event = stream.substr(0, end);
    stream.remove_prefix(end + 2);
    if (event == "data: [DONE]") break;
    const Json chunk = Json::parse(event.substr(6));
    if (!chunk["choices"].empty()) JoinDelta(message, chunk["choices"][0]["delta"]);
  }
  return message;
}

}  // namespace baton
