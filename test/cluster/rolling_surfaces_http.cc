#include <cstdlib>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "http_client.h"
#include "nlohmann/json.hpp"
#include "rolling_surfaces.h"

namespace baton {
namespace {

using nlohmann::json;

// Returns the fields that all requests of a question have, without braces.
std::string Common(const Question& question) { return absl::StrCat(R"("cache_salt":")", question.tag, "\""); }

std::string Sampling(const Question& question) {
  return absl::StrCat(R"("max_tokens":24,"ignore_eos":true,"temperature":0.8,"seed":)", question.prompt, ",",
                      Common(question));
}

std::string Completion(const Question& question, bool stream) {
  std::vector<int> prompt;
  for (int i = 0; i < 25 + 5 * question.prompt; ++i) prompt.push_back(2 + (i * 5) % 250);
  return absl::StrCat("{\"prompt\":[", absl::StrJoin(prompt, ","),
                      "],\"logprobs\":0,\"stream\":", stream ? "true" : "false", ",", Sampling(question), "}");
}

std::string Chat(const Question& question) {
  return absl::StrCat(R"({"messages":[{"role":"user","content":"Tell me all about the number )", 17 * question.prompt,
                      R"("}],"logprobs":true,"stream":true,)", Sampling(question), "}");
}

std::string Prefill(const Question& question) {
  return absl::StrCat(R"({"segments":{"segments":[{"text":")", std::string(30 + 9 * question.prompt, 'x'), R"("}]},)",
                      Common(question), "}");
}

// The contents of a choice, which may come in parts.
struct Contents {
  std::string text, tokens, finish;
  void Add(const json& choice) {
    const json& part = choice.contains("delta") ? choice["delta"].value("content", json()) : choice["text"];
    if (part.is_string()) text += part.get<std::string>();
    const json logprobs = choice.value("logprobs", json());
    if (logprobs.is_object() && logprobs.contains("content")) {
      for (const json& token : logprobs["content"]) absl::StrAppend(&tokens, " ", token["logprob"].dump());
    } else if (logprobs.is_object()) {
      for (const json& token : logprobs["token_logprobs"]) absl::StrAppend(&tokens, " ", token.dump());
    }
    if (choice["finish_reason"].is_string()) finish = choice["finish_reason"].get<std::string>();
  }
};

// Returns the answer in a body, or an empty string if the body is incomplete.
using Reader = std::string (*)(const std::string& body);

std::string ReadWhole(const std::string& body) {
  Contents contents;
  contents.Add(json::parse(body)["choices"][0]);
  return contents.finish == "length" ? absl::StrCat(contents.text, contents.tokens) : "";
}

std::string ReadEvents(const std::string& body) {
  Contents contents;
  if (!body.ends_with("data: [DONE]\n\n")) return "";
  for (size_t at = 0, end; (end = body.find("\n\n", at)) != std::string::npos; at = end + 2) {
    const std::string event = body.substr(at, end - at);
    if (!event.starts_with("data: {")) continue;  // a comment or the end
    const json data = json::parse(event.substr(6));
    if (data.contains("error")) return "";
    for (const json& choice : data["choices"]) contents.Add(choice);
  }
  return contents.finish == "length" ? absl::StrCat(contents.text, contents.tokens) : "";
}

std::string ReadUsage(const std::string& body) {
  return absl::StrCat(json::parse(body)["usage"]["prompt_tokens"].dump(), " tokens");
}

// Returns an empty string for a truncated body, too.
std::string ReadIfWhole(Reader read, const std::string& body) {
  try {
    return read(body);
  } catch (const json::exception&) {
    return "";
  }
}

bool ShouldRetry(const HttpAnswer& answer) {
  const auto retry = answer.headers.find("x-should-retry");
  if (retry != answer.headers.end()) return retry->second == "true";
  return answer.status == 408 || answer.status == 409 || answer.status == 429 || answer.status >= 500;
}

class Calling final : public Surface {
 public:
  Calling(std::vector<std::string> routers, std::string path, std::string (*body)(const Question&), Reader read)
      : routers_(std::move(routers)), path_(std::move(path)), body_(body), read_(read), open_(routers_.size()) {}

  Try Ask(const Question& question) override {
    std::optional<HttpClient>& client = open_[question.router];
    if (!client) {
      std::optional<HttpClient> dialled = HttpClient::Dial(routers_[question.router]);
      if (!dialled) return {.failure = "connection refused", .may_repeat = true};
      client.emplace(*std::move(dialled));
    }
    HttpAnswer answer;
    if (client->Post(path_, body_(question))) answer = client->Read();
    const auto connection = answer.headers.find("connection");
    if (answer.status == 0 || (connection != answer.headers.end() && connection->second == "close")) client.reset();
    if (answer.status == 0) return {.failure = "the connection ended before an answer", .may_repeat = true};
    if (answer.status == 200) {
      std::string read = ReadIfWhole(read_, answer.body);
      return {.answer = std::move(read), .failure = absl::StrCat("200, but: ", answer.body)};
    }
    const auto after = answer.headers.find("retry-after");
    return {.failure = absl::StrCat(answer.status, " ", answer.body),
            .may_repeat = ShouldRetry(answer),
            .wait = std::chrono::seconds(after == answer.headers.end() ? 0 : std::atoi(after->second.c_str()))};
  }

 private:
  const std::vector<std::string> routers_;
  const std::string path_;
  std::string (*const body_)(const Question&);
  const Reader read_;
  std::vector<std::optional<HttpClient>> open_;  // by router, as a pool keeps them
};

}  // namespace

std::vector<SurfaceKind> HttpSurfaces(const std::vector<std::string>& routers) {
  constexpr size_t kTries = 3;  // its max_retries is 2
  const auto calling = [routers](const char* path, std::string (*body)(const Question&), Reader read) {
    return [=] { return std::make_unique<Calling>(routers, path, body, read); };
  };
  const auto whole = [](const Question& question) { return Completion(question, false); };
  const auto streamed = [](const Question& question) { return Completion(question, true); };
  return {{"/v1/completions", kTries, calling("/v1/completions", whole, ReadWhole)},
          {"/v1/completions, streamed", kTries, calling("/v1/completions", streamed, ReadEvents)},
          {"/v1/chat/completions, streamed", kTries, calling("/v1/chat/completions", Chat, ReadEvents)},
          {"/prefill_only", kTries, calling("/prefill_only", Prefill, ReadUsage)}};
}

}  // namespace baton
