// --- The requests of a workflow ------------------------------------------------------

const PHASES = { WAITING: "waiting", QUEUED: "queued", PREFILL: "prefill", HANDOFF: "hand-off", DECODE_QUEUE: "decode queue", FIRST_STEP: "first step", DECODE: "decode" };
const COLOURS = { WAITING: "--waiting", QUEUED: "--queued", PREFILL: "--prefill", HANDOFF: "--handoff", DECODE_QUEUE: "--decode-queue", FIRST_STEP: "--first", DECODE: "--decode" };
const CODES = ["OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
               "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED",
               "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"];

// `key` identifies a request from one answer to the next.
function readRequest(request, origin) {
  const begin = number(request.arrived_us);
  return {
    id: request.request_id ?? "", agent: request.agent ?? "", key: `${request.request_id} ${origin + begin}`,
    begin, end: number(request.ended_us), over: !!request.over, refused: !!request.refused, error: request.error ?? "",
    root: request.root ?? null, waitsFor: request.waits_for ?? "", awaited: request.awaited ?? [],
    upstreams: request.upstreams ?? [], downstreams: [], usage: request.usage ?? {}, overlap: number(request.overlap_tokens),
    traceId: request.trace_id ?? "", attempt: number(request.attempt), critical: false,
    spans: (request.spans ?? []).map(span => ({ phase: (span.phase ?? "PHASE_WAITING").slice(6), begin: number(span.begin_us),
      end: number(span.end_us), tokens: number(span.tokens), steps: number(span.steps) })) };
}

function read(answer) {
  const requests = (answer?.requests ?? []).map(request => readRequest(request, number(answer.origin_us)));
  for (const request of requests) {
    request.upstreams = request.upstreams.map(index => requests[index]).filter(upstream => upstream);
    for (const upstream of request.upstreams) upstream.downstreams.push(request);
  }
  for (const request of requests) request.depth = depthOf(request);
  nameRequests(requests);
  markCriticalPath(requests);
  return { requests, lanes: lanesOf(requests), end: requests.reduce((end, request) => Math.max(end, request.end), 1),
           arrows: requests.reduce((sum, request) => sum + request.upstreams.length, 0),
           omitted: number(answer?.omitted) + number(answer?.refused_omitted) };
}

// The length of the longest chain of upstream requests.
function depthOf(request) {
  if (request.depth === undefined) {
    request.depth = 0;  // ends the recursion if the data has a cycle
    request.depth = Math.max(0, ...request.upstreams.map(upstream => 1 + depthOf(upstream)));
  }
  return request.depth;
}

// Requests with the same agent name are numbered by arrival.
function nameRequests(requests) {
  const groups = new Map();
  for (const request of requests) groups.set(request.agent, [...groups.get(request.agent) ?? [], request]);
  for (const [agent, group] of groups) {
    group.forEach((request, i) => {
      request.ordinal = i + 1;
      request.name = !agent ? request.id || "(no id)" : group.length > 1 ? `${agent} ${i + 1}` : agent;
    });
  }
}

// The critical path leads from the request that ended last back, always to the upstream request that
// ended last. Live requests end now; of these, the one with the longest chain of upstream requests
// comes first.
function markCriticalPath(requests) {
  const later = (a, b) => a.end - b.end || a.depth - b.depth;
  const last = of => of.reduce((last, request) => !last || later(request, last) > 0 ? request : last, undefined);
  let request = last(requests.filter(request => !request.refused));
  while (request && !request.critical) {
    request.critical = true;
    request = last(request.upstreams);
  }
}

// Requests of one agent stand in one row, or in several if they overlap in time. Agents stand below
// the agents for which their first requests waited.
function lanesOf(requests) {
  const agents = new Map();
  for (const request of requests) {
    const name = request.agent || request.name, lanes = agents.get(name) ?? agents.set(name, []).get(name);
    let lane = lanes.find(lane => lane.end <= request.begin);
    if (!lane) lanes.push(lane = { name, requests: [] });
    lane.requests.push(request);
    lane.end = request.end;
  }
  for (const lanes of agents.values()) {
    if (lanes.length === 1) continue;
    for (const lane of lanes) lane.name += " " + lane.requests.map(request => request.ordinal).join(", ");
  }
  const first = agent => agent[0].requests[0].depth;
  const lanes = [...agents.values()].sort((a, b) => first(a) - first(b)).flat();
  lanes.forEach((lane, row) => { for (const request of lane.requests) request.row = row; });
  return lanes;
}

const stateOfRequest = request => request.refused ? "refused" : request.error ? "failed" : request.over ? "done" : "live";

function describeRoot(root) {
  const name = root.agent ? `${root.agent} (${root.request_id})` : root.request_id || "?";
  return `${name}: ${CODES[root.code ?? 0] ?? root.code}: ${root.message ?? ""}`;
}

// The latest request of the trace with this id that was accepted, or else one that was refused.
const requestOf = id => trace.requests.findLast(request => request.id === id && !request.refused)
  ?? trace.requests.findLast(request => request.id === id);

function searched(request, words) {
  const texts = [request.name, request.id, request.error, request.traceId, request.waitsFor, request.root?.request_id ?? "", request.root?.agent ?? ""];
  return texts.some(text => text.toLowerCase().includes(words));
}
