// Tests of traces as JSON for Perfetto, as a page and as text.
#include "cli/trace_render.h"

#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "catch.h"
#include "cli/trace_layout.h"
#include "nlohmann/json.hpp"

namespace baton {
namespace {

v1::TracedRequest& AddRequest(v1::TraceResponse& trace, const std::string& id, const std::string& agent, int64_t begin,
                              int64_t end) {
  v1::TracedRequest& request = *trace.add_requests();
  request.set_request_id(id);
  request.set_agent(agent);
  request.set_arrived_us(begin);
  request.set_ended_us(end);
  request.set_over(true);
  return request;
}

void AddSpan(v1::TracedRequest& request, v1::Span::Phase phase, int64_t begin, int64_t end, int32_t tokens = 0) {
  v1::Span& span = *request.add_spans();
  span.set_phase(phase);
  span.set_begin_us(begin);
  span.set_end_us(end);
  span.set_tokens(tokens);
}

// A trace of a writer and of a reader that waits for the writer's output.
v1::TraceResponse Two(const std::string& name = "reader") {
  v1::TraceResponse trace;
  v1::TracedRequest& up = AddRequest(trace, "up-1", "writer", 0, 4000);
  AddSpan(up, v1::Span::PHASE_PREFILL, 0, 1000, 64);
  AddSpan(up, v1::Span::PHASE_DECODE, 1000, 4000, 8);
  v1::TracedRequest& down = AddRequest(trace, "down-1", name, 500, 8000);
  AddSpan(down, v1::Span::PHASE_WAITING, 500, 4000);
  AddSpan(down, v1::Span::PHASE_HANDOFF, 4000, 4500);
  AddSpan(down, v1::Span::PHASE_DECODE, 4500, 8000, 9);
  down.add_upstreams(0);
  REQUIRE(CheckTrace(trace).ok());
  return trace;
}

TEST_CASE("Each phase of a trace has a name and a mark of its own") {
  const google::protobuf::EnumDescriptor& phases = *v1::Span::Phase_descriptor();
  std::set<std::string> names;
  std::set<char> marks;
  for (int i = 0; i < phases.value_count(); ++i) {
    if (phases.value(i)->number() == v1::Span::PHASE_UNSPECIFIED) continue;
    const PhaseStyle& style = StyleOf(static_cast<v1::Span::Phase>(phases.value(i)->number()));
    CHECK(style.phase == phases.value(i)->number());
    CHECK(names.insert(style.name).second);
    CHECK(marks.insert(style.mark).second);
  }
}

constexpr char kHostile[] = "<script>alert(1)</script>\"&'\n\x1b[31m]]>";

TEST_CASE("RenderEvents writes nested slices with times and flows for Perfetto") {
  const nlohmann::json document = nlohmann::json::parse(RenderEvents("w", Two()));
  std::map<int, std::string> names;
  std::map<int, std::vector<std::pair<int64_t, int64_t>>> slices;
  std::map<int, std::vector<nlohmann::json>> flows;
  for (const auto& event : document.at("traceEvents")) {
    const std::string kind = event.at("ph");
    CHECK(event.at("name").is_string());
    CHECK(event.at("pid") == 1);
    const int lane = event.at("tid");
    if (kind == "M" && event["name"] == "thread_name") names[lane] = event["args"]["name"];
    if (kind == "X") slices[lane].push_back({event.at("ts"), event.at("dur")});
    if (kind == "s" || kind == "f") flows[event.at("id")].push_back(event);
  }
  CHECK(names == std::map<int, std::string>{{1, "writer"}, {2, "reader"}});
  REQUIRE(slices[1].size() == 3);
  CHECK(slices[1][0] == std::pair<int64_t, int64_t>{0, 4000});
  CHECK(slices[1][2] == std::pair<int64_t, int64_t>{1000, 3000});
  CHECK(slices[2].size() == 4);
  REQUIRE(flows.size() == 1);
  const auto& flow = flows.begin()->second;
  REQUIRE(flow.size() == 2);
  CHECK(flow[0]["ph"] == "s");
  CHECK(flow[0]["tid"] == 1);
  CHECK(flow[0]["ts"] == 3999);
  CHECK(flow[1]["tid"] == 2);
  CHECK(flow[1]["ts"] == 3999);
  CHECK(flow[1]["bp"] == "e");
}

TEST_CASE("RenderEvents gives an agent's requests one lane unless they overlap") {
  v1::TraceResponse trace;
  AddRequest(trace, "a1", "a", 0, 10);
  AddRequest(trace, "b1", "b", 0, 30);
  AddRequest(trace, "a2", "a", 5, 20);
  AddRequest(trace, "a3", "a", 10, 30);
  AddRequest(trace, "nameless", "", 12, 13);
  const auto lanes = LanesOf(trace);
  REQUIRE(lanes.size() == 4);
  CHECK(lanes[0].name == "a");
  CHECK(lanes[0].requests == std::vector<int>{0, 3});
  CHECK(lanes[1].requests == std::vector<int>{2});
  CHECK(lanes[2].name == "nameless");  // ends before b
  CHECK(lanes[3].name == "b");
}

size_t Count(const std::string& text, const std::string& what) {
  size_t count = 0;
  for (size_t at = text.find(what); at != text.npos; at = text.find(what, at + 1)) ++count;
  return count;
}

// The JSON between the tags of the page's inlined element.
nlohmann::json Inlined(const std::string& html) {
  const std::string begin = "<script type=\"application/json\" id=\"inlined\">", end = "</script>";
  const size_t from = html.find(begin);
  REQUIRE(from != html.npos);
  const size_t to = html.find(end, from);
  return nlohmann::json::parse(html.substr(from + begin.size(), to - from - begin.size()));
}

TEST_CASE("RenderHtml inlines the trace that /ui/trace returns") {
  const nlohmann::json inlined = Inlined(RenderHtml("run 7", Two()));
  CHECK(inlined.at("workflow") == "run 7");
  const nlohmann::json& requests = inlined.at("trace").at("requests");
  REQUIRE(requests.size() == 2);
  CHECK(requests[0].at("agent") == "writer");
  CHECK(requests[1].at("upstreams") == nlohmann::json::array({0}));
  CHECK(requests[1].at("spans").size() == 3);
}

TEST_CASE("All renderers show names and errors as text") {
  v1::TraceResponse trace = Two(kHostile);
  trace.mutable_requests(1)->set_error(kHostile);
  trace.mutable_requests(0)->set_request_id(kHostile);
  const std::string html = RenderHtml(kHostile, trace);
  CHECK(Count(html, "<script") == 2);  // the page's own script, and its data
  CHECK(html.find("\\u003cscript>alert(1)") != html.npos);
  CHECK(html.find('\x1b') == html.npos);
  // The page loads nothing from other hosts.
  CHECK(html.find("<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; ") != html.npos);
  CHECK(html.find("connect-src 'none'") != html.npos);
  CHECK(Inlined(html).at("workflow") == kHostile);
  CHECK(Inlined(html).at("trace").at("requests")[1].at("error") == kHostile);

  const std::string text = RenderText(kHostile, trace);
  CHECK(text.find('\x1b') == text.npos);
  CHECK(text.find("<script>alert(1)") != text.npos);
  CHECK(Count(RenderText("a\u009Bb\u202Ec\u2066d\u00E9", Two()), "a?b?c?d\u00E9: ") == 1);

  const auto document = nlohmann::json::parse(RenderEvents(kHostile, trace));
  CHECK(document["traceEvents"][0]["args"]["name"] == kHostile);
}

TEST_CASE("RenderText and RenderEvents show what a live request waits for") {
  v1::TraceResponse trace = Two();
  CHECK(RenderText("w", trace).find("waits for") == std::string::npos);
  CHECK(RenderEvents("w", trace).find("waits_for") == std::string::npos);
  trace.mutable_requests(1)->set_waits_for(absl::StrCat("the output of 'a'", kHostile));
  const std::string text = RenderText("w", trace);
  CHECK(Count(text, "\n                  waits for the output of 'a'<script>") == 1);
  CHECK(text.find('\x1b') == text.npos);
  CHECK(RenderEvents("w", trace).find(R"("waits_for":"the output of 'a')") != std::string::npos);
}

TEST_CASE("RenderText shows the phase with the most time in each column") {
  const std::string text = RenderText("w", Two());
  CAPTURE(text);
  CHECK(text.find("w: 2 requests, 8.0 ms\n") == 0);
  const auto bar = [](int before, int a, char x, int b, char y, int c, char z) {
    return " |" + std::string(before, ' ') + std::string(a, x) + std::string(b, y) + std::string(c, z);
  };
  CHECK(text.find("writer          " + bar(0, 8, '#', 24, '=', 32, ' ') + "|       4.0 ms\n") != text.npos);
  CHECK(text.find("reader          " + bar(4, 28, '.', 4, '>', 28, '=') + "|       8.0 ms\n") != text.npos);
}

TEST_CASE("RenderText shows refused requests and the sums of each agent") {
  v1::TraceResponse trace = Two();
  v1::TracedRequest& refused = AddRequest(trace, "", "", 6000, 6000);
  refused.set_refused(true);
  refused.set_error("INVALID_ARGUMENT: top_p");
  v1::AgentSums& sums = *trace.add_agents();
  sums.set_agent(kHostile);
  sums.set_requests(2);
  sums.set_prompt_tokens(300);
  sums.set_cached_tokens(20);
  sums.set_overlap_tokens(111);
  sums.set_completion_tokens(9);
  sums.set_total_ms(7.5);
  sums.set_upstream_ms(3.5);
  sums.set_queued_ms(0.5);
  trace.add_agents()->set_refused(1);
  trace.set_agents_omitted(3);
  trace.set_refused_omitted(4);
  const std::string text = RenderText("w", trace);
  CAPTURE(text);
  CHECK(text.find("w: 3 requests, 8.0 ms; 1 of them refused; 4 earlier left out\n") == 0);
  CHECK(text.find("(no id)         ") != text.npos);
  CHECK(text.find("  refused: INVALID_ARGUMENT: top_p\n") != text.npos);
  CHECK(text.find("<script>alert(1)        2       0      300       20      111        9         7.5         4.0\n") !=
        text.npos);
  CHECK(text.find("(no name)               0       1 ") != text.npos);
  CHECK(text.find("3 further agents left out\n") != text.npos);
  CHECK(text.find('\x1b') == text.npos);
}

TEST_CASE("RenderText and RenderEvents number the attempts of an id") {
  v1::TraceResponse trace = Two();
  trace.mutable_requests(0)->set_attempt(1);
  trace.mutable_requests(0)->set_error("UNAVAILABLE: lost");
  v1::TracedRequest& again = AddRequest(trace, "up-1", "writer", 4000, 6000);
  again.set_attempt(2);
  v1::TracedRequest& third = AddRequest(trace, "up-1", "writer", 6000, 7000);
  third.set_attempt(3);
  third.set_error("INTERNAL: broken");
  const std::string text = RenderText("w", trace);
  CHECK(text.find("  UNAVAILABLE: lost\n") != text.npos);
  CHECK(text.find("  attempt 2\n") != text.npos);
  CHECK(text.find("  attempt 3: INTERNAL: broken\n") != text.npos);
  CHECK(RenderEvents("w", trace).find(R"("attempt":3)") != std::string::npos);
}

TEST_CASE("All renderers draw an empty trace and a trace without length") {
  v1::TraceResponse trace;
  AddRequest(trace, "r", "", 0, 0);
  CHECK(CheckTrace(trace).ok());
  CHECK(Inlined(RenderHtml("w", trace)).at("trace").at("requests").size() == 1);
  CHECK(RenderText("w", trace).find("1 request, 0.0 ms") != std::string::npos);
  CHECK(nlohmann::json::parse(RenderEvents("w", trace))["traceEvents"].size() == 4);
}

TEST_CASE("CheckTrace refuses a trace that no server sends") {
  const auto refused = [](auto&& spoil) {
    v1::TraceResponse trace = Two();
    spoil(*trace.mutable_requests(1));
    return absl::IsInvalidArgument(CheckTrace(trace));
  };
  CHECK(refused([](auto& request) { request.add_upstreams(2); }));
  CHECK(refused([](auto& request) { request.add_upstreams(-1); }));
  CHECK(refused([](auto& request) { request.set_arrived_us(-1); }));
  CHECK(refused([](auto& request) { request.set_ended_us(int64_t{1} << 62); }));
  CHECK(refused([](auto& request) { request.mutable_spans(0)->set_begin_us(499); }));
  CHECK(refused([](auto& request) { request.mutable_spans(2)->set_end_us(8001); }));
  CHECK(refused([](auto& request) { request.mutable_spans(1)->set_end_us(3999); }));
}

}  // namespace
}  // namespace baton
