#include "frontend/gateway/chat_log.h"

#include "base/strings.h"
#include "catch.h"
#include "http_client.h"
#include "log_capture.h"
#include "metric_value.h"
#include "shell/router_cluster.h"

namespace baton {
namespace {

TEST_CASE("ChatLog counts parts that were left out, and logs them once in 10 s") {
  Metrics metrics;
  ManualClock clock;
  ChatLog log(metrics, clock);
  const LogCapture lines;
  const auto counted = [&](const char* kind) {
    return MetricValue(metrics, StrCat("baton_chat_parts_left_out_total{kind=\"", kind, "\"}"));
  };
  CHECK(counted("image") == 0);
  log.OnAdmitted({});
  CHECK(lines.Count("left out") + lines.Count("cannot read") == 0);
  log.OnAdmitted({2, 0, 0, 1});
  log.OnAdmitted({1, 0, 0, 0});
  CHECK(counted("image") == 3);
  CHECK(counted("audio") == 0);
  CHECK(counted("file") == 1);
  CHECK(lines.Count("cannot read: 2 of type image, 1 of type file.") == 1);
  CHECK(lines.Count("cannot read") == 1);
  clock.Advance(absl::Seconds(10));
  log.OnAdmitted({0, 1, 0, 0});
  CHECK(lines.Count("cannot read: 1 of type audio. A text replaces each of them. 1 more such chats since the last such "
                    "line") == 1);
}

TEST_CASE("ChatLog counts headers that were ignored, and logs them once in 10 s") {
  Metrics metrics;
  ManualClock clock;
  ChatLog log(metrics, clock);
  const LogCapture lines;
  const auto counted = [&](const char* header) {
    return MetricValue(metrics, StrCat("baton_http_headers_ignored_total{header=\"", header, "\"}"));
  };
  CHECK(counted("session-id") == 0);
  log.OnIgnored({});
  CHECK(lines.Count("is ignored") == 0);
  log.OnIgnored({"x-session-id", "session-id"});
  log.OnIgnored({"session-id"});
  CHECK(counted("x-session-id") == 1);
  CHECK(counted("session-id") == 2);
  CHECK(lines.Count("the header x-session-id is ignored") == 1);
  CHECK(lines.Count("is ignored") == 1);
}

TEST_CASE("A router counts no parts of a chat that it refuses") {
  Cluster c;
  ServedModel model = ByteModel("bytes");
  model.chat_template = *ChatTemplate::Parse("{% for m in messages %}{{ m.content }}{% endfor %}", "", "");
  c.Serve(std::move(model));
  HttpClient client(c.node->http()->address());
  client.Post("/v1/chat/completions", R"({"max_tokens": 60, "messages": [{"role": "tool", "tool_call_id": "c",
      "content": [{"type": "image_url", "image_url": {"url": "u"}}]}]})");
  CHECK(client.Read().status == 400);
  CHECK(MetricValue(c.metrics, "baton_chat_parts_left_out_total{kind=\"image\"}") == 0);
}

TEST_CASE("A router replaces images in results of tools, and counts them") {
  Cluster c;
  ServedModel model = ByteModel("bytes");
  model.chat_template = *ChatTemplate::Parse("{% for m in messages %}{{ m.content }}{% endfor %}", "", "");
  model.context = 1024;  // the text around a result is long
  c.Serve(std::move(model));
  HttpClient client(c.node->http()->address());
  client.Post("/v1/chat/completions", R"({"max_tokens": 4, "messages": [{"role": "tool", "tool_call_id": "c",
      "content": [{"type": "image_url", "image_url": {"url": "u"}}]}]})");
  const RequestId id = c.prefill->Next().prefill().request_id();
  c.prefill->Send(DoneEvent(id, Incarnation(22)));
  c.decode->Next();
  c.decode->Send(TokensEvent(id, "x", FinishReason::kStop));
  CHECK(client.Read().status == 200);
  CHECK(MetricValue(c.metrics, "baton_chat_parts_left_out_total{kind=\"image\"}") == 1);
}

TEST_CASE("A router counts calls of strict tools when an answer ends") {
  Cluster c;
  ServedModel model = ByteModel("bytes");
  model.chat_template = *ChatTemplate::Parse("{% if tools %}<tool_call>{% endif %}{{ messages[0].content }}", "", "");
  c.Serve(std::move(model));
  HttpClient client(c.node->http()->address());
  client.Post("/v1/chat/completions", R"({"max_tokens": 8, "messages": [{"role": "user", "content": "a"}], "tools":
      [{"type": "function", "function": {"name": "f", "strict": true, "parameters": {"required": ["x"]}}}]})");
  const RequestId id = c.prefill->Next().prefill().request_id();
  c.prefill->Send(DoneEvent(id, Incarnation(22)));
  c.decode->Next();
  const auto call = [](const std::string& arguments) {
    return StrCat(R"(<tool_call>{"name": "f", "arguments": )", arguments, "}</tool_call>");
  };
  c.decode->Send(TokensEvent(id, call("{}") + call(R"({"x": 1})") + call("{}"), FinishReason::kStop));
  CHECK(client.Read().status == 200);
  CHECK(MetricValue(c.metrics, "baton_strict_tool_calls_total{arguments=\"match\"}") == 1);
  CHECK(MetricValue(c.metrics, "baton_strict_tool_calls_total{arguments=\"mismatch\"}") == 2);
}

}  // namespace
}  // namespace baton
