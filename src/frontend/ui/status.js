// --- Workers and sessions ------------------------------------------------------------

const SAMPLES = 90;
const samples = [];  // {at, made}

function meter(cell, used, cached, quarantined, total) {
  if (!cell.firstChild) {
    const bar = make("span", "", "meter");
    bar.append(make("i"), make("i"), make("i"));
    cell.append(bar, make("span"));
  }
  const [bar, text] = cell.children;
  bar.children[0].style.width = 100 * used / Math.max(total, 1) + "%";
  bar.children[1].style.width = 100 * cached / Math.max(total, 1) + "%";
  bar.children[2].style.width = 100 * quarantined / Math.max(total, 1) + "%";
  const kept = quarantined > 0 ? ` + ${count(quarantined)}` : "";
  write(text, total > 0 ? `${count(used)} + ${count(cached)}${kept} of ${count(total)}` : "");
}

const avoided = ["silent", "hung", "returning"];
const stateOf = worker => worker.draining ? "draining" : worker.drained ? "drained" : avoided.includes(worker.health) ? worker.health
  : worker.attached ? "ready" : worker.problem?.startsWith("refused: ") ? "refused" : "gone";
const usedOf = worker => number(worker.blocks_total) - number(worker.blocks_free) - number(worker.blocks_cached)
  - number(worker.blocks_quarantined);
const isPrefill = worker => worker.role === "ROLE_PREFILL";

function showStatus(status) {
  $("operator").hidden = status === null;
  $("tenant").hidden = status !== null;
  const workers = status?.workers ?? [], sessions = status?.sessions ?? [];
  rows($("workers"), workers, ["whole", "", "", "", "number", "number", "number", "whole"], (worker, cells) => {
    write(cells[0], isPrefill(worker) ? "prefill" : "decode");
    write(cells[1], worker.address ?? "");
    cells[1].title = worker.address ?? "";
    write(cells[2], stateOf(worker), "state " + stateOf(worker));
    cells[2].title = worker.problem || worker.health_reason || "";
    write(cells[3], worker.model ?? "");
    write(cells[4], count(worker.running_requests));
    write(cells[5], count(worker.queued_requests));
    write(cells[6], count(worker.queued_tokens));
    meter(cells[7], usedOf(worker), number(worker.blocks_cached), number(worker.blocks_quarantined),
          number(worker.blocks_total));
  });
  rows($("sessions"), sessions, ["", "", "", "number"], (session, cells) => {
    const running = number(session.running_requests), waiting = number(session.waiting_requests);
    write(cells[0], session.session_id ?? "");
    cells[0].title = session.session_id ?? "";
    write(cells[1], session.tenant ?? "");
    if (running > 0) write(cells[2], plural(running, "request"), "state active");
    else if (waiting > 0) write(cells[2], plural(waiting, "request") + " waiting", "state waits");
    else write(cells[2], "between turns", "faint");
    write(cells[3], count(session.kv_blocks));
  });
  if (status !== null) showTiles(status, workers);
}

function showTiles(status, workers) {
  write($("version"), "router " + (status.version ?? ""));
  write($("live"), count(status.live_requests));
  write($("live-more"), `live, ${count(status.waiting_requests)} waiting for a worker or for room`);
  write($("active"), count(status.active_sessions));
  const limit = number(status.session_limit);
  write($("active-more"), `active${limit ? " of " + count(limit) : ""}, ${count(status.waiting_sessions)} waiting`);
  write($("hits"), percent(number(status.cached_tokens), number(status.prompt_tokens)));
  write($("hits-more"), `of ${count(status.prompt_tokens)} prompt tokens`);
  const share = of => percent(of.reduce((sum, worker) => sum + usedOf(worker), 0),
                              of.reduce((sum, worker) => sum + number(worker.blocks_total), 0));
  write($("kv"), share(workers));
  write($("kv-more"), `prefill ${share(workers.filter(isPrefill))}, decode ${share(workers.filter(worker => !isPrefill(worker)))}`);
  const made = number(status.completion_tokens), at = performance.now();
  if (samples.length && made < samples[samples.length - 1].made) samples.length = 0;  // another router, or a restart
  samples.push({ at, made });
  if (samples.length > SAMPLES) samples.shift();
  const rates = samples.slice(1).map((sample, i) => 1000 * (sample.made - samples[i].made) / Math.max(sample.at - samples[i].at, 1));
  write($("rate"), count(Math.round(rates[rates.length - 1] ?? 0)));
  drawSpark(rates);
}

function drawSpark(rates) {
  const width = $("spark").clientWidth, height = $("spark").clientHeight;
  const context = surface($("spark"), width, height), most = Math.max(...rates, 1);
  context.strokeStyle = getComputedStyle(document.documentElement).getPropertyValue("--accent");
  context.lineWidth = 1.5;
  context.beginPath();
  rates.forEach((rate, i) => context.lineTo(width * (i + SAMPLES - 1 - rates.length) / (SAMPLES - 2), height - 2 - (height - 4) * rate / most));
  context.stroke();
}
