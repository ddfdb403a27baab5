// --- The chosen workflow -------------------------------------------------------------

// The workflow that is shown. Until the reader chooses one, it is the latest.
let chosen = null, follows = true;
let listed = [];  // the workflows of the last answer
let trace = { requests: [], lanes: [], end: 1, arrows: 0, omitted: 0 };
let picked = null;  // the key of the chosen request

const chosenRequest = () => trace.requests.find(request => request.key === picked);

// Makes one of `elements` reachable by the Tab key. Arrow keys lead to the others.
function rove(elements, at) {
  const focused = elements.indexOf(document.activeElement), open = focused >= 0 ? focused : Math.max(at, 0);
  elements.forEach((element, i) => { element.tabIndex = i === open ? 0 : -1; });
}

function open(name) {
  chosen = name;
  follows = false;
  picked = null;
  disarm();
  poll();
}

function choose(request) {
  if (!request) return;
  picked = request.key;
  follows = false;
  showViews();
}

function showWorkflows(workflows) {
  listed = workflows;
  if (follows) chosen = workflows[0]?.name ?? null;
  const words = $("find-workflow").value.toLowerCase();
  const found = workflows.filter(workflow => workflow.name.toLowerCase().includes(words));
  const buttons = fit($("workflows"), found.length, () => {
    const button = make("button");
    button.addEventListener("click", () => open(button.title));
    return button;
  });
  found.forEach((workflow, i) => {
    const live = number(workflow.live), refused = number(workflow.refused);
    write(buttons[i], workflow.name + (live > 0 ? ` · ${live} live` : "") + (refused > 0 ? ` · ${refused} refused` : ""));
    buttons[i].title = workflow.name;
    buttons[i].setAttribute("aria-pressed", workflow.name === chosen);
  });
}

function summarise() {
  if (trace.requests.length === 0) {
    return chosen === null ? "No request has named a workflow in the last ten minutes."
      : `${chosen}: no request of this workflow is live or ended in the last ten minutes.`;
  }
  const agents = new Set(trace.requests.map(request => request.agent || request.name)).size;
  const number = state => trace.requests.filter(request => stateOfRequest(request) === state).length;
  const states = ["live", "failed", "refused"].filter(number).map(state => `; ${count(number(state))} ${state}`).join("");
  return `${chosen}: ${plural(agents, "agent")}, ${plural(trace.requests.length, "request")}, ${milliseconds(trace.end)}${states}` +
    (trace.omitted ? `; ${count(trace.omitted)} earlier left out` : "");
}

function showTrace(answer) {
  trace = read(answer);
  const words = summarise();
  write($("summary"), words);
  $("bars").setAttribute("aria-label", words);
  showCancel();
  showErrors();
  showSums(answer);
  showViews();
}

// Shows what depends on the chosen request and on the search.
function showViews() {
  const words = $("find-request").value.trim().toLowerCase();
  for (const request of trace.requests) request.dim = words !== "" && !searched(request, words);
  const found = trace.requests.filter(request => !request.dim).length;
  write($("found"), words === "" ? "" : `${count(found)} of ${plural(trace.requests.length, "request")}`);
  showNames();
  showGraph();
  showDetails();
  draw();
}

function showAs(graph) {
  $("graph").hidden = !graph;
  $("chart").hidden = $("window").hidden = graph;
  $("legend").classList.toggle("graph", graph);
  $("as-graph").setAttribute("aria-pressed", graph);
  $("as-timeline").setAttribute("aria-pressed", !graph);
  showViews();
}

// Enter leads from one found request to the next.
$("find-request").addEventListener("keydown", event => {
  if (event.key !== "Enter") return;
  const found = trace.requests.filter(request => !request.dim);
  choose(found[(found.indexOf(chosenRequest()) + 1) % Math.max(found.length, 1)]);
});
$("find-request").addEventListener("input", showViews);
$("find-workflow").addEventListener("input", () => showWorkflows(listed));
// Enter opens the workflow with this name, even if it is too old for the list.
$("find-workflow").addEventListener("keydown", event => {
  const name = $("find-workflow").value;
  if (event.key === "Enter" && name) open($("workflows").children.length === 1 ? $("workflows").firstChild.title : name);
});
$("names").addEventListener("keydown", event => {
  const names = [...$("names").children], way = { ArrowUp: -1, ArrowDown: 1 }[event.key];
  if (!way) return;
  event.preventDefault();
  names[names.indexOf(document.activeElement) + way]?.focus();
});
$("as-timeline").addEventListener("click", () => showAs(false));
$("as-graph").addEventListener("click", () => showAs(true));
$("window").addEventListener("change", draw);
addEventListener("resize", showViews);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);

// --- Cancel --------------------------------------------------------------------------

let armed = null;  // the workflow that the next click on the button cancels

function disarm(words = "") {
  armed = null;
  write($("cancelled"), words);
  showCancel();
}

function showCancel() {
  const live = trace.requests.filter(request => !request.over).length;
  if (live === 0) armed = null;
  $("cancel").hidden = live === 0 || !!$("inlined");
  $("keep").hidden = armed === null;
  if (armed === null) write($("cancel"), "Cancel workflow", "");
  else write($("cancel"), `Cancel ${plural(live, "live request")}`, "failed");
}

$("cancel").addEventListener("click", async () => {
  const name = armed;
  if (name === null) {
    armed = chosen;
    follows = false;
    return showCancel();
  }
  const words = await ask("v1/workflows/" + encodeURIComponent(name), { cache_salt: $("salt").value }, "DELETE")
    .then(answer => `${plural(number(answer.cancelled_requests), "request")} cancelled`, error => error.message);
  if (name === armed) disarm(words);
});
$("keep").addEventListener("click", () => { disarm(); $("cancel").focus(); });
