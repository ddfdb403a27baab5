// --- The graph -----------------------------------------------------------------------

const NODE = { width: 220, height: 68, across: 40, down: 14 };
const LEAST_WIDTH = 150, WAIT_HEIGHT = 18;  // of a node; what the text of a wait adds

// A request stands right of its upstream requests, in their middle or as near below as there is
// room.
function placeNodes(requests) {
  const columns = [];
  for (const request of requests) (columns[request.depth] ??= []).push(request);
  const middle = request => request.upstreams.reduce((sum, upstream) => sum + (upstream.line ?? 0), 0) / (request.upstreams.length || 1);
  for (const column of columns) {
    let next = 0;
    for (const { request, at } of (column ?? []).map(request => ({ request, at: middle(request) })).sort((a, b) => a.at - b.at)) {
      request.line = Math.max(next, at);
      next = request.line + 1;
    }
  }
}

const leftOf = request => 4 + request.depth * (NODE.width + NODE.across);
const topOf = request => 4 + request.line * (NODE.height + NODE.down);
const isCritical = (upstream, request) => upstream.critical && request.critical
  && !request.upstreams.some(other => other !== upstream && other.critical && other.depth > upstream.depth);

// The path of an arrow from the right side of one node to the left side of another.
function edge(upstream, request) {
  const x = leftOf(upstream) + NODE.width, y = topOf(upstream) + NODE.height / 2;
  const toX = leftOf(request), toY = topOf(request) + NODE.height / 2, bend = Math.max(20, (toX - x) / 2);
  return `M${x} ${y}C${x + bend} ${y} ${toX - bend} ${toY} ${toX} ${toY}m-6 -4l6 4l-6 4`;
}

function drawEdges() {
  const paths = { plain: [], critical: [], near: [] }, picked = chosenRequest();
  for (const request of trace.requests) {
    for (const upstream of request.upstreams) {
      const near = picked === request || picked === upstream, critical = isCritical(upstream, request);
      if (!near && !critical && trace.arrows > MOST_ARROWS) continue;
      paths[critical ? "critical" : near ? "near" : "plain"].push(edge(upstream, request));
    }
  }
  for (const name in paths) $(name).setAttribute("d", paths[name].join(""));
}

const waitOf = request => {
  const [id, ...others] = request.awaited, first = id && (requestOf(id)?.name ?? id);
  return "waits for " + (id ? first + (others.length ? ` and ${others.length} more` : "") : request.waitsFor);
};

// The end of a node's text: why the request failed, or what it waits for. The details have the rest.
const hintOf = request => request.error.split(":")[0] || (request.waitsFor && waitOf(request))
  || `${count(request.usage.prompt_tokens)} + ${count(request.usage.completion_tokens)} tokens`;

function showGraph() {
  if ($("graph").hidden) return;
  placeNodes(trace.requests);
  const columns = 1 + Math.max(0, ...trace.requests.map(request => request.depth));
  NODE.height = 68 + (trace.requests.some(request => request.waitsFor) ? WAIT_HEIGHT : 0);
  NODE.width = Math.min(220, Math.max(LEAST_WIDTH, Math.floor(($("graph").clientWidth - 10) / columns) - NODE.across));
  const nodes = fit($("nodes"), trace.requests.length, () => {
    const node = make("button");
    node.append(make("span"), make("span"), make("span"));
    node.addEventListener("click", () => choose(trace.requests[[...$("nodes").children].indexOf(node)]));
    return node;
  });
  let width = 0, height = 0;
  trace.requests.forEach((request, i) => {
    const node = nodes[i], state = stateOfRequest(request), [name, facts, hint] = node.children;
    write(name, request.name);
    write(facts, `${state}, ${milliseconds(request.end - request.begin)}`);
    write(hint, hintOf(request));
    node.className = `${state}${request.error ? " error" : ""}${request.critical ? " critical" : ""}${request.dim ? " dim" : ""}`;
    node.title = [request.name, request.id, request.critical ? "critical path" : "", request.error || hint.textContent].filter(text => text).join("\n");
    node.setAttribute("aria-current", request === chosenRequest());
    Object.assign(node.style, { left: leftOf(request) + "px", top: topOf(request) + "px", width: NODE.width + "px", height: NODE.height + "px" });
    width = Math.max(width, leftOf(request) + NODE.width + 6);
    height = Math.max(height, topOf(request) + NODE.height + 6);
  });
  rove(nodes, trace.requests.indexOf(chosenRequest()));
  $("graph").style.height = height + 16 + "px";  // leaves room for a scroll bar
  for (const [side, size] of Object.entries({ width, height })) $("edges").setAttribute(side, size);
  drawEdges();
}

// The arrow keys lead along the edges, and to the neighbours in a column.
$("nodes").addEventListener("keydown", event => {
  const nodes = [...$("nodes").children], request = trace.requests[nodes.indexOf(document.activeElement)];
  if (!request) return;
  const column = trace.requests.filter(other => other.depth === request.depth).sort((a, b) => a.line - b.line);
  const step = way => column[column.indexOf(request) + way];
  const next = { ArrowLeft: request.upstreams.find(upstream => upstream.critical) ?? request.upstreams[0],
                 ArrowRight: request.downstreams.find(downstream => downstream.critical) ?? request.downstreams[0],
                 ArrowUp: step(-1), ArrowDown: step(1) }[event.key];
  if (!next) return;
  event.preventDefault();
  nodes[trace.requests.indexOf(next)].focus();
});
