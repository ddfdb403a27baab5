// The picture: a row for each lane, a bar for each span, an arrow from each output to the prompt that waited for it.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/strings.h"
#include "cli/trace_layout.h"
#include "cli/trace_render.h"

namespace baton {
namespace {

// In units of the picture, which are pixels where it is shown in full size.
constexpr double kWidth = 1000;
constexpr double kLeft = 150;  // where bars begin; names are cut off before it
constexpr double kRight = 25;  // beyond them, for half of the last tick's number
constexpr double kTop = 78;    // of the first row
constexpr double kRow = 30;
constexpr double kBar = 18;
constexpr double kFoot = 34;
constexpr int kTicks = 8;  // about

// For element content and for attributes in double quotes, in XML and in HTML. Control characters are allowed in
// neither.
std::string Escape(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '&') {
      result += "&amp;";
    } else if (c == '<') {
      result += "&lt;";
    } else if (c == '>') {
      result += "&gt;";
    } else if (c == '"') {
      result += "&quot;";
    } else {
      result += static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? '?' : c;
    }
  }
  return result;
}

class Picture {
 public:
  Picture(const std::string& workflow, const v1::TraceResponse& trace)
      : workflow_(workflow), trace_(trace), lanes_(LanesOf(trace)), end_us_(EndOf(trace)) {}

  std::string Draw() {
    Head();
    Axis();
    std::vector<size_t> row_of(static_cast<size_t>(trace_.requests_size()));
    for (size_t row = 0; row < lanes_.size(); ++row) {
      Row(row);
      for (const int request : lanes_[row].requests) row_of[static_cast<size_t>(request)] = row;
    }
    for (int to = 0; to < trace_.requests_size(); ++to) {
      for (const int from : trace_.requests(to).upstreams()) {
        Arrow(trace_.requests(from), row_of[static_cast<size_t>(from)], trace_.requests(to),
              row_of[static_cast<size_t>(to)]);
      }
    }
    return svg_ + "</svg>\n";
  }

 private:
  double X(int64_t us) const {
    const double share = static_cast<double>(us) / static_cast<double>(end_us_);
    return kLeft + std::clamp(share, 0.0, 1.0) * (kWidth - kLeft - kRight);
  }
  double Y(size_t row) const { return kTop + static_cast<double>(row) * kRow; }
  double bottom() const { return Y(lanes_.size()); }

  template <typename... Args>
  void Add(const absl::FormatSpec<Args...>& format, const Args&... args) {
    absl::StrAppendFormat(&svg_, format, args...);
  }

  void Style() {
    const auto colours = [this](const char* PhaseStyle::*colour) {
      for (const PhaseStyle& phase : Phases()) Add(".%s{fill:%s}", phase.css, phase.*colour);
    };
    svg_ += "<style>.ground{fill:#fff}text{fill:#1c2430}.faint{fill:#5a6472}.grid{stroke:#e3e7ee}";
    svg_ += ".arrow{fill:none;stroke:#1c2430;stroke-opacity:.6}.tip{fill:#1c2430}.failed{fill:#c62828}";
    colours(&PhaseStyle::light);
    svg_ += "@media(prefers-color-scheme:dark){.ground{fill:#14181f}text{fill:#e8ecf2}.faint{fill:#a3adba}";
    svg_ += ".grid{stroke:#2a313c}.arrow{stroke:#e8ecf2}.tip{fill:#e8ecf2}.failed{fill:#ff8a80}";
    colours(&PhaseStyle::dark);
    svg_ += "}</style>\n";
  }

  void Head() {
    const double height = bottom() + kFoot;
    Add("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" font-family=\"sans-serif\" "
        "font-size=\"13\">\n",
        kWidth, height);
    Style();
    Add("<defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" "
        "orient=\"auto\"><path class=\"tip\" d=\"M0 0L8 4L0 8z\"/></marker>\n"
        "<clipPath id=\"names\"><rect width=\"%g\" height=\"%g\"/></clipPath>\n"
        "<clipPath id=\"title\"><rect width=\"%g\" height=\"%g\"/></clipPath></defs>\n"
        "<rect class=\"ground\" width=\"%g\" height=\"%g\"/>\n",
        kLeft - 8, height, kWidth * 0.6, height, kWidth, height);
    Add("<text x=\"16\" y=\"26\" font-size=\"16\" font-weight=\"bold\" clip-path=\"url(#title)\">%s</text>\n",
        Escape(workflow_));
    Add("<text x=\"%g\" y=\"26\" text-anchor=\"end\" class=\"faint\">%s</text>\n", kWidth - kRight, Summarise(trace_));
    double x = 16;
    for (const PhaseStyle& phase : Phases()) {
      Add("<rect class=\"%s\" x=\"%g\" y=\"42\" width=\"14\" height=\"14\" rx=\"2\"/>"
          "<text x=\"%g\" y=\"54\">%s</text>\n",
          phase.css, x, x + 20, phase.name);
      x += 105;
    }
  }

  // Ticks at 1, 2 or 5 times a power of ten.
  void Axis() {
    const double end_ms = static_cast<double>(end_us_) / 1000;
    const double power = std::pow(10, std::floor(std::log10(end_ms / kTicks)));
    double step = power;
    for (const double factor : {2, 5, 10}) {
      if (end_ms / step > kTicks) step = power * factor;
    }
    for (int i = 0; i * step <= end_ms * (1 + 1e-9); ++i) {
      const double x = X(static_cast<int64_t>(std::llround(i * step * 1000)));
      Add("<path class=\"grid\" d=\"M%.1f %gV%g\"/><text x=\"%.1f\" y=\"%g\" text-anchor=\"middle\" class=\"faint\">%g"
          "</text>\n",
          x, kTop - 8, bottom(), x, bottom() + 18, i * step);
    }
    Add("<text x=\"16\" y=\"%g\" class=\"faint\">ms</text>\n", bottom() + 18);
  }

  void Row(size_t row) {
    const TraceLane& lane = lanes_[row];
    const bool failed = std::ranges::any_of(lane.requests, [&](int i) { return !trace_.requests(i).error().empty(); });
    std::string about;
    for (const int i : lane.requests) absl::StrAppend(&about, "\n", Escape(Describe(trace_.requests(i))));
    Add("<g clip-path=\"url(#names)\"><title>%s%s</title><text x=\"16\" y=\"%g\"%s>%s</text></g>\n", Escape(lane.name),
        about, Y(row) + kBar - 4, failed ? " class=\"failed\"" : "", Escape(lane.name));
    for (const int i : lane.requests) {
      for (const v1::Span& span : trace_.requests(i).spans()) Bar(row, span);
    }
  }

  void Bar(size_t row, const v1::Span& span) {
    const double x = X(span.begin_us());
    const double width = std::max(X(span.end_us()) - x, 0.6);  // a short step stays visible
    Add("<rect class=\"%s\" x=\"%.1f\" y=\"%g\" width=\"%.1f\" height=\"%g\"><title>%s</title></rect>\n",
        StyleOf(span.phase()).css, x, Y(row), width, kBar, Describe(span));
  }

  // From where the output ends to where the prompt that waits for it is at that time, or begins later.
  void Arrow(const v1::TracedRequest& from, size_t from_row, const v1::TracedRequest& to, size_t to_row) {
    if (from_row == to_row) return;  // one after the other, for all to see
    const bool down = to_row > from_row;
    const double x0 = X(from.ended_us()), x1 = X(std::clamp(from.ended_us(), to.arrived_us(), to.ended_us()));
    const double y0 = Y(from_row) + (down ? kBar : 0), y1 = Y(to_row) + (down ? 0 : kBar);
    Add("<path class=\"arrow\" marker-end=\"url(#tip)\" d=\"M%.1f %gL%.1f %g\"><title>%s waits for %s</title></path>\n",
        x0, y0, x1, y1, Escape(to.request_id()), Escape(from.request_id()));
  }

  const std::string& workflow_;
  const v1::TraceResponse& trace_;
  const std::vector<TraceLane> lanes_;
  const int64_t end_us_;
  std::string svg_;
};

}  // namespace

std::string RenderSvg(const std::string& workflow, const v1::TraceResponse& trace) {
  return Picture(workflow, trace).Draw();
}

std::string RenderHtml(const std::string& workflow, const v1::TraceResponse& trace) {
  return StrCat(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n<title>",
      Escape(workflow),
      "</title>\n<style>body{margin:0}svg{display:block;margin:auto;max-width:1600px}"
      "@media(prefers-color-scheme:dark){body{background:#14181f}}</style>\n</head>\n<body>\n",
      RenderSvg(workflow, trace), "</body>\n</html>\n");
}

}  // namespace baton
