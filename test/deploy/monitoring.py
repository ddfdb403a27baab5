"""usage: monitoring.py BUILD_FOLDER

Checks that Prometheus' own checks pass. Checks that each expression of rules, alerts and dashboard
names only metrics and labels that Baton exports."""

import json
import pathlib
import re
import subprocess
import sys
import time
import urllib.request

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
MODEL = ROOT / "test/golden/tiny_llama3_bf16"
# A metric and its labels. Every metric has job and instance.
OF_PROMETHEUS = {"up": {"job", "instance"}}
HISTOGRAMS = {"Seconds", "Tokens"}  # kinds of the table
OF_ETCD = {"baton_etcd_up"}  # only for processes with an etcd


def promtool(*arguments):
    run = subprocess.run(["promtool", *arguments], cwd=DEPLOY / "prometheus", capture_output=True, text=True)
    return [] if run.returncode == 0 else [f"promtool {' '.join(arguments)}: {run.stdout}{run.stderr}"]


def exported():
    """Returns metric -> (kind, labels), from the source of the table of metrics."""
    text = (ROOT / "src/metrics/metric_table.cc").read_text()
    table = re.findall(r'\{"(\w+)",\s*Kind::k(\w+),\s*((?:"(?:\\.|[^"\\])*"\s*)+),', text)
    return {name: (kind, set(re.findall(r"`(\w+)`", help_text))) for name, kind, help_text in table}


def rules():
    """Yields (where, rule) of each rule in the rule files."""
    for name in ("rules.yml", "alerts.yml"):
        for group in yaml.safe_load((DEPLOY / "prometheus" / name).read_text())["groups"]:
            for rule in group["rules"]:
                yield f"{name}: {rule.get('alert') or rule['record']}", rule


def expressions():
    """Yields (where, expression) of each expression in all files."""
    for where, rule in rules():
        yield where, rule["expr"]
    dashboard = json.loads((DEPLOY / "grafana/baton.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield f"dashboard: {panel['title']}", target["expr"]


def series_of(expression):
    """Yields (metric, labels that it is selected by) for each selector of a PromQL expression."""
    bare = re.sub(r'"[^"]*"', '""', expression)
    for name, selector in re.findall(r"\b(up|baton[_:][\w:]+)\b(?:\{([^}]*)\})?", bare):
        yield name, set(re.findall(r"(\w+)\s*(?:=|!)", selector or ""))


def problems_of(where, expression, metrics, recorded):
    by = {label.strip() for labels in re.findall(r"\bby \(([^)]*)\)", expression) for label in labels.split(",")}
    known = {"job", "instance", "le"}
    for name, labels in series_of(expression):
        if name in OF_PROMETHEUS or name in recorded:
            continue
        metric = re.sub(r"_(bucket|sum|count)$", "", name)
        kind, has = metrics.get(name) or metrics.get(metric) or (None, set())
        known |= has
        if kind is None or (kind in HISTOGRAMS) != (name != metric):
            yield f"{where}: there is no {name}"
        elif labels - has - {"job", "instance"}:
            yield f"{where}: {name} has no label {sorted(labels - has)}"
        # A counter that was above 0 stays above 0 until its process restarts.
        elif kind == "Counter" and not re.search(rf"\b(rate|increase)\({name}\b|^{name} > 0$", expression):
            yield f"{where}: {name} only grows: expected its rate or increase, or whether it is above 0"
    if by - known and not recorded & {name for name, _ in series_of(expression)}:
        yield f"{where}: groups by {sorted(by - known)}, but no metric of the expression has these labels"


def await_exported(names, binaries):
    """Waits until a process exports all `names` after one request. Prints the missing names,
    because only ctest's time-out ends the wait for a metric that is never exported."""
    server = subprocess.Popen(
        [binaries / "baton", "serve", MODEL, "--listen", "127.0.0.1:0", "--http", "off", "--kv-memory-mb", "8", "--threads", "1"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        found = {}
        for line in server.stdout:
            for key, pattern in (("metrics", r"metrics on (\S+)"), ("listen", r"listening on (\S+)"), ("ready", r"( serving)")):
                match = re.search(pattern, line)
                if match:
                    found[key] = match.group(1)
            if len(found) == 3:
                break
        subprocess.run([binaries / "baton", "generate", "--server", found["listen"], "--prompt", "a b c", "--max-tokens", "3"],
                       check=True, capture_output=True)
        printed = set()
        while names:  # workers report from time to time
            text = urllib.request.urlopen(found["metrics"]).read().decode()
            names = names - set(re.findall(r"^(\w+)", text, re.MULTILINE))
            if names and names != printed:
                print(f"monitoring: waits until a running server exports {', '.join(sorted(names))}", flush=True)
                printed = names
            time.sleep(0.01)
    finally:
        server.terminate()
        server.wait()


def main():
    problems = promtool("check", "rules", "rules.yml", "alerts.yml")
    problems += promtool("check", "config", "prometheus.yml") + promtool("test", "rules", "alerts_test.yml")
    metrics = exported()
    recorded = {rule["record"] for _, rule in rules() if "record" in rule}
    if len(metrics) < 30:
        problems.append(f"src/metrics/metric_table.cc: read {len(metrics)} metrics of its table, expected more")
    names = set()
    for where, expression in expressions():
        problems += problems_of(where, expression, metrics, recorded)
        names |= {name for name, _ in series_of(expression)}

    runbook = (ROOT / "docs/runbook.md").read_text()
    problems += [f"docs/runbook.md: there is no {name}" for name in sorted(set(re.findall(r"\bbaton_\w+", runbook)) - set(metrics))]
    documented = set(re.findall(r"^\| `(Baton\w+)`", runbook, re.MULTILINE))
    alerts = {rule["alert"] for _, rule in rules() if "alert" in rule}
    problems += [f"docs/runbook.md and alerts.yml differ: {name}" for name in sorted(alerts ^ documented)]
    tested = (DEPLOY / "prometheus/alerts_test.yml").read_text()
    problems += [f"alerts_test.yml does not test {name}" for name in sorted(alerts) if f"alertname: {name}\n" not in tested]
    if problems:
        print("\n".join(problems))
        return 1
    await_exported(names - recorded - set(OF_PROMETHEUS) - OF_ETCD, pathlib.Path(sys.argv[1]).resolve() / "bin")
    print(f"monitoring: {len(alerts)} alerts and {len(names)} series are right")
    return 0


if __name__ == "__main__":
    sys.exit(main())
