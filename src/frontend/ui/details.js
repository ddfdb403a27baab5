// --- The chosen request, errors and sums ---------------------------------------------

// Writes a text and one button for each request.
function writeFact(cell, text, requests) {
  if (!cell.firstChild) cell.append(make("span"), make("div"));
  const [words, links] = cell.children;
  write(words, text);
  const buttons = fit(links, requests.length, () => {
    const button = make("button", "", "link");
    button.addEventListener("click", () => choose(trace.requests.find(request => request.key === button.dataset.key)));
    return button;
  });
  requests.forEach((request, i) => {
    write(buttons[i], request.name);
    buttons[i].title = request.id;
    buttons[i].dataset.key = request.key;
  });
}

const stepsOf = request => request.spans.map(span => `${PHASES[span.phase] ?? "?"} ${milliseconds(span.end - span.begin)}`).join(", ");

// Rows of [title, text, requests].
function factsOf(request) {
  const usage = request.usage, awaited = request.awaited.map(id => [id, requestOf(id)]);
  const missing = awaited.filter(([id, upstream]) => !upstream && !request.waitsFor.includes(id)).map(([id]) => id).join("\n");
  const rootRequest = request.root && requestOf(request.root.request_id);
  return [
    ["id", request.id || "(none)", []],
    ["state", `${stateOfRequest(request)}, ${milliseconds(request.end - request.begin)} from ${milliseconds(request.begin)}`, []],
    ["attempt", request.attempt > 1 ? count(request.attempt) : "", []],
    ["waits for", [request.waitsFor, missing].filter(text => text).join("\n"), awaited.map(([, request]) => request).filter(request => request)],
    ["error", request.error, []],
    ["root cause", request.root ? describeRoot(request.root) : "", rootRequest ? [rootRequest] : []],
    ["prompt", request.refused ? "" : `${plural(number(usage.prompt_tokens), "token")}, ${count(usage.cached_tokens)} cached` +
      (request.overlap ? `, ${count(request.overlap)} before the last upstream output was complete` : ""), []],
    ["output", request.refused ? "" : plural(number(usage.completion_tokens), "token"), []],
    ["upstream", "", request.upstreams],
    ["downstream", "", request.downstreams],
    ["phases", stepsOf(request), []],
    ["W3C trace", request.traceId, []],
  ].filter(([, text, requests]) => text || requests.length);
}

function showDetails() {
  const request = chosenRequest(), facts = request ? factsOf(request) : [];
  write($("who"), request ? request.name : trace.requests.length ? "Choose a request to see what it does." : "");
  const cells = fit($("facts"), 2 * facts.length, () => make($("facts").children.length % 2 ? "dd" : "dt"));
  facts.forEach(([title, text, requests], i) => {
    write(cells[2 * i], title);
    writeFact(cells[2 * i + 1], text, requests);
  });
}

function showErrors() {
  const failures = trace.requests.filter(request => request.error);
  $("errors").hidden = failures.length === 0;
  rows($("failures"), failures, ["number", "", "", ""], (request, cells) => {
    write(cells[0], milliseconds(request.end));
    writeFact(cells[1], "", [request]);
    write(cells[2], (request.refused ? "refused: " : "") + request.error);
    const root = request.root && requestOf(request.root.request_id);
    writeFact(cells[3], !request.root ? "–" : root ? "" : describeRoot(request.root), root ? [root] : []);
  });
}

function showSums(answer) {
  const agents = answer?.agents ?? [], omitted = number(answer?.agents_omitted);
  $("sums").hidden = agents.length === 0;
  rows($("agents"), agents, ["", ...Array(10).fill("number")], (sums, cells) => {
    write(cells[0], sums.agent ?? "(no name)");
    ["requests", "failed", "refused", "prompt_tokens", "cached_tokens", "overlap_tokens", "completion_tokens"]
      .forEach((name, i) => write(cells[i + 1], count(sums[name])));
    ["total_ms", "upstream_ms", "queued_ms"].forEach((name, i) => write(cells[i + 8], milliseconds(1e3 * number(sums[name]))));
  });
  write($("agents-more"), "Overlap: prompt tokens that were computed before the last upstream output was complete. For outputs, for workers: the parts of the time in which requests waited for these."
    + (omitted ? ` ${plural(omitted, "further agent")} left out.` : ""));
}
