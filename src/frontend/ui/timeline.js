// --- The timeline --------------------------------------------------------------------

const HEAD = 24, ROW = 24, BAR = 16, NAMES = 220, MOST_ARROWS = 3000;
let hovered = -1;  // a row

for (const phase in PHASES) {
  const mark = make("span", PHASES[phase], "phase");
  mark.style.setProperty("--mark", `var(${COLOURS[phase]})`);
  $("legend").append(mark);
}
$("legend").append(make("span", "critical path", "path"));

function showNames() {
  const names = fit($("names"), trace.lanes.length, () => {
    const button = make("button");
    button.addEventListener("click", () => choose(worthOf(trace.lanes[[...$("names").children].indexOf(button)])));
    return button;
  });
  trace.lanes.forEach((lane, row) => {
    const failed = lane.requests.some(request => request.error), found = lane.requests.some(request => !request.dim);
    write(names[row], lane.name, (failed ? "failed" : "") + (found ? "" : " dim"));
    names[row].title = lane.name;
    names[row].setAttribute("aria-current", lane.requests.includes(chosenRequest()));
  });
  rove(names, names.findIndex(name => name.getAttribute("aria-current") === "true"));
}

// The request of a row that a reader looks for first.
const worthOf = lane => lane.requests.findLast(request => !request.over || request.error) ?? lane.requests[lane.requests.length - 1];

// The span of time that is shown, and the position of a time in it.
function scaleOf(width) {
  const from = Math.max(0, Number($("window").value) ? trace.end - 1e6 * Number($("window").value) : 0);
  return { from, x: us => Math.max(us - from, 0) / Math.max(trace.end - from, 1) * (width - 12) };
}

// Draws only the rows in view, so that a workflow of hundreds of agents costs no more than them.
function draw() {
  const chart = $("chart"), height = Math.max(Math.min(trace.lanes.length * ROW + HEAD, chart.clientHeight), HEAD);
  const width = Math.max(chart.clientWidth - NAMES, 50), canvas = $("bars");
  canvas.style.width = width + "px";
  canvas.style.height = height + "px";
  const context = surface(canvas, width, height), style = getComputedStyle(document.documentElement);
  const colour = name => style.getPropertyValue(name);
  const colours = Object.fromEntries(Object.entries(COLOURS).map(([phase, name]) => [phase, colour(name)]));
  const { from, x } = scaleOf(width), y = row => HEAD + row * ROW - chart.scrollTop;
  const first = Math.max(0, Math.floor(chart.scrollTop / ROW)), last = Math.min(trace.lanes.length, Math.ceil((chart.scrollTop + height) / ROW));
  const picked = chosenRequest();
  for (let row = first; row < last; ++row) {
    for (const request of trace.lanes[row].requests) {
      context.globalAlpha = request.dim ? 0.2 : 1;
      for (const span of request.spans) {
        if (span.end < from) continue;
        context.fillStyle = colours[span.phase] ?? colours.WAITING;
        context.fillRect(x(span.begin), y(row) + 4, Math.max(x(span.end) - x(span.begin), 0.75), BAR);
      }
      context.fillStyle = colour("--bad");
      if (request.error && request.end >= from) context.fillRect(Math.max(x(request.end) - 3, 0), y(row) + 2, 3, BAR + 4);
      context.fillStyle = colour("--critical");
      if (request.critical && request.end >= from) context.fillRect(x(request.begin), y(row) + 21, Math.max(x(request.end) - x(request.begin), 3), 2);
      if (request !== picked || request.end < from) continue;
      context.strokeStyle = colour("--ink");
      context.strokeRect(x(request.begin) - 0.5, y(row) + 2.5, Math.max(x(request.end) - x(request.begin), 3) + 1, BAR + 2);
    }
  }
  for (const request of trace.requests) {
    for (const upstream of request.upstreams) {
      context.strokeStyle = colour(isCritical(upstream, request) ? "--critical" : "--ink");
      drawArrow(context, upstream, request, x, y, first, last);
    }
  }
  context.setLineDash([]);
  context.lineWidth = 1;
  context.globalAlpha = 1;
  drawAxis(context, width, height, from, colour);
}

// Draws an arrow from the end of an output to the prompt that waits for it. The arrow is dashed
// while the output is being written.
function drawArrow(context, upstream, request, x, y, first, last) {
  if (upstream.row === request.row) return;
  if (Math.max(upstream.row, request.row) < first || Math.min(upstream.row, request.row) >= last) return;
  const near = hovered === upstream.row || hovered === request.row || isCritical(upstream, request);
  if (!near && trace.arrows > MOST_ARROWS) return;
  const down = request.row > upstream.row, at = Math.min(Math.max(upstream.end, request.begin), request.end);
  const end = { x: x(at), y: y(request.row) + (down ? 4 : 4 + BAR) };
  context.globalAlpha = near ? 1 : 0.35;
  context.lineWidth = isCritical(upstream, request) ? 2 : 1;
  context.setLineDash(upstream.over ? [] : [3, 3]);
  context.beginPath();
  context.moveTo(x(upstream.end), y(upstream.row) + (down ? 4 + BAR : 4));
  context.lineTo(end.x, end.y);
  context.moveTo(end.x - 3, end.y + (down ? -5 : 5));
  context.lineTo(end.x, end.y);
  context.lineTo(end.x + 3, end.y + (down ? -5 : 5));
  context.stroke();
}

// Ticks at 1, 2 or 5 times a power of ten milliseconds.
function drawAxis(context, width, height, from, colour) {
  context.fillStyle = colour("--card");
  context.fillRect(0, 0, width, HEAD);
  const shown = Math.max(trace.end - from, 1) / 1e3, power = 10 ** Math.floor(Math.log10(shown / 8));
  const step = [1, 2, 5, 10].map(factor => factor * power).find(step => shown / step <= 8);
  context.font = "12px system-ui, sans-serif";
  context.lineWidth = 1;
  for (let i = Math.ceil(from / 1e3 / step); trace.requests.length && i * step <= trace.end / 1e3; ++i) {
    const at = (i * step * 1e3 - from) / Math.max(trace.end - from, 1) * (width - 12);
    const text = step >= 100 ? (i * step / 1e3).toFixed(1) + " s" : Number((i * step).toPrecision(6)) + " ms";
    context.fillStyle = colour("--faint");
    context.textAlign = at < 20 ? "left" : at > width - 40 ? "right" : "center";
    context.fillText(text, at, 14);
    context.fillStyle = colour("--line");
    context.fillRect(at, HEAD - 4, 1, 4);
  }
}

// The row at a position of the pointer, and what is drawn there.
function lookUp(event) {
  const box = $("bars").getBoundingClientRect(), down = event.clientY - box.top, here = event.clientX - box.left;
  const row = down < HEAD ? -1 : Math.floor((down - HEAD + $("chart").scrollTop) / ROW), { from, x } = scaleOf(box.width);
  const request = trace.lanes[row]?.requests.find(request => request.end >= from && x(request.begin) - 2 <= here && here <= x(request.end) + 2);
  return { row, request, span: request?.spans.find(span => x(span.begin) <= here && here <= x(span.end)) };
}

function hover(event) {
  const { row, request, span } = lookUp(event), redraws = row !== hovered;
  hovered = row;
  $("tip").hidden = !request;
  if (request) {
    write($("tip"), describe(request, span));
    $("tip").style.left = Math.max(0, Math.min(event.clientX + 14, innerWidth - $("tip").offsetWidth - 8)) + "px";
    $("tip").style.top = Math.min(event.clientY + 14, innerHeight - $("tip").offsetHeight - 8) + "px";
  }
  if (redraws) draw();
}

function describe(request, span) {
  const usage = request.usage;
  return `${request.name}\n` +
    (span ? `${PHASES[span.phase] ?? "?"}${span.tokens ? `, ${plural(span.tokens, "token")}` : ""}${span.steps > 1 ? ` in ${span.steps} steps` : ""}: ` +
            `${milliseconds(span.end - span.begin)} (${milliseconds(span.begin)} to ${milliseconds(span.end)})\n` : "") +
    `${request.id}: ${count(usage.prompt_tokens)} prompt tokens, ${count(usage.cached_tokens)} cached, ${count(usage.completion_tokens)} generated` +
    (request.over ? "" : "; runs still") + (request.error ? "\n" + request.error : "");
}

$("bars").addEventListener("mousemove", hover);
$("bars").addEventListener("mouseleave", () => { hovered = -1; $("tip").hidden = true; draw(); });
$("bars").addEventListener("click", event => { const { request } = lookUp(event); if (request) choose(request); });
$("chart").addEventListener("scroll", draw);
