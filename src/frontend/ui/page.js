// --- The router ----------------------------------------------------------------------

const PERIOD_MS = 1000, PATIENCE_MS = 5000;
let key = sessionStorage.getItem("baton-key") ?? "";
// Answers to requests of earlier rounds (with another key or salt) are dropped.
let round = 0;

class Refusal extends Error {
  constructor(status, message) { super(message); this.status = status; }
}

async function ask(path, body, method = body ? "POST" : "GET") {
  const headers = key ? { authorization: "Bearer " + key } : {};
  if (body) headers["content-type"] = "application/json";
  const answer = await fetch(path, { method, headers, body: body && JSON.stringify(body),
                                     cache: "no-store", credentials: "omit", signal: AbortSignal.timeout(PATIENCE_MS) })
    .catch(() => { throw new Refusal(0, "the router does not answer"); });
  const json = await answer.json().catch(() => null);
  if (!answer.ok) throw new Refusal(answer.status, json?.error?.message ?? answer.statusText);
  if (json === null) throw new Refusal(0, "expected an answer of a Baton router, got no JSON");
  return json;
}

// Gives null for an error with this HTTP status: a caller without permission, or a missing thing.
const unless = status => error => { if (error.status === status) return null; throw error; };

async function poll() {
  const mine = ++round;
  if (!document.hidden) {
    try {
      const salt = $("salt").value;
      const asked = ask("ui/workflows", { cache_salt: salt });
      asked.catch(() => {});  // it is awaited below
      const status = await ask("ui/status").catch(unless(403));
      if (mine !== round) return;
      $("login").hidden = true;
      $("forget").hidden = !key;
      document.querySelector("main").hidden = false;  // a hidden canvas has no size
      showStatus(status);
      const workflows = await asked;
      if (mine !== round) return;
      showWorkflows(workflows.workflows ?? []);
      const name = chosen;
      const trace = name === null ? null : await ask("ui/trace", { workflow: name, cache_salt: salt }).catch(unless(404));
      if (mine !== round) return;
      showTrace(trace);
      write($("link"), "live", "state push ready");
    } catch (error) {
      if (mine !== round) return;
      if (error.status === 401) return askForKey();
      if (!(error instanceof Refusal)) console.error(error);
      write($("link"), error instanceof Refusal ? error.message : "error in this page: " + error.message, "state push gone");
    }
  }
  setTimeout(() => { if (mine === round) poll(); }, PERIOD_MS);
}

// Hides all data that only the key's owner may see, and asks for a key.
function askForKey(refusal = key ? "This router does not accept this key." : "") {
  ++round;
  key = "";
  sessionStorage.removeItem("baton-key");
  document.querySelector("main").hidden = true;
  chosen = picked = null;
  follows = true;
  for (const id of ["salt", "find-workflow", "find-request"]) $(id).value = "";
  disarm();
  showStatus(null);
  showWorkflows([]);
  showTrace(null);
  samples.length = 0;
  for (const element of document.querySelectorAll("#tiles b, #tiles span[id]")) write(element, "");
  drawSpark([]);
  write($("tip"), "");
  $("tip").hidden = true;
  $("forget").hidden = true;
  $("login").hidden = false;
  write($("version"), "");
  write($("link"), "");
  write($("refusal"), refusal);
}

$("login").addEventListener("submit", event => {
  event.preventDefault();
  const given = $("key").value.trim();
  $("key").value = "";
  if (!/^[\x21-\x7e]+$/.test(given)) return askForKey("A key has letters, digits and punctuation only.");
  key = given;
  sessionStorage.setItem("baton-key", key);
  poll();
});
$("forget").addEventListener("click", () => askForKey(""));
$("salt").addEventListener("change", poll);
document.addEventListener("visibilitychange", () => { if (!document.hidden && $("login").hidden && !$("inlined")) poll(); });

// `baton trace --html` writes this page with one workflow in it. The page then sends no requests.
if ($("inlined")) {
  const { workflow, trace } = JSON.parse($("inlined").textContent);
  for (const id of ["operator", "choice", "link"]) $(id).hidden = true;
  document.querySelector("main").hidden = false;
  chosen = workflow;
  showTrace(trace);
} else {
  poll();
}
