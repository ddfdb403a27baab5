"""Sessions of four agents that take turns over one context, each with a model of its own: decoders over one prefill module
against a prefill and a decode worker for each model.

  bench/sessions                      on this machine's CPU: 4 prefill and 4 decode workers with one thread each
  bench/sessions --full --json FILE   1, 4 and 8 sessions at a time
  bench/sessions --simulated          4 + 4 A100s, Llama-3.1-8B and Qwen3-14B shapes, in virtual time (build target bench_simulator)
  bench/sessions --simulated --full   more sessions, rates and models
  bench/sessions --simulated --pressure   more sessions than KV memory holds, with --max-sessions and without
  bench/sessions --simulated --pauses ... any of these, and tools take time between turns

Lengths are those of ReAct's and Reflexion's transcripts; see session_profiles.py, which says what is measured and what assumed."""

import argparse
import datetime
import json
import os
import pathlib
import platform
import subprocess
import sys

import sessions_measured
import sessions_simulated

ROOT = pathlib.Path(__file__).resolve().parent.parent


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--simulated", action="store_true", help="A100s that are not here, in virtual time")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--repeats", type=int, default=3, help="of measured runs; figures are medians")
    parser.add_argument("--pressure", action="store_true", help="with --simulated: more sessions than KV memory holds")
    parser.add_argument("--pauses", action="store_true", help="with --simulated: tools take time")
    parser.add_argument("--model-dir", type=pathlib.Path, default=ROOT / "models" / "smollm2-135m-instruct",
                        help="the prefill module, of which decoders are made; measured runs")
    parser.add_argument("--seconds", type=float, default=3600, help="with --simulated: runs that would begin later are left out")
    parser.add_argument("--resume", help="with --simulated: runs that this file of figures has are not repeated")
    parser.add_argument("--json", help="write the figures here")
    parser.add_argument("--svg", help="with --simulated: draw p95 and throughput here")
    args = parser.parse_args()
    if not args.simulated and (args.pressure or args.pauses or args.resume or args.svg):
        parser.error("--pressure, --pauses, --resume and --svg are for --simulated")

    def write(figures):
        if args.json:
            commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
            where = {"date": datetime.date.today().isoformat(), "commit": commit.stdout.strip(), "setup": setup}
            pathlib.Path(args.json).write_text(json.dumps(where | figures, indent=1) + "\n")

    if args.simulated:
        setup = "simulated: no figure was measured"
        done = json.loads(pathlib.Path(args.resume).read_text())["runs"] if args.resume else []
        figures = sessions_simulated.run(args.full, args.pressure, args.pauses, args.seconds, done, write)
        sessions_simulated.report(figures)
    else:
        figures = sessions_measured.run(args.full, args.repeats, args.model_dir)
        setup = f"{platform.machine()}, {os.cpu_count()} cores; 8 workers with one thread each, and the load generator beside them"
        sessions_measured.report(figures)
    if args.svg:
        sessions_simulated.plot(figures["runs"], pathlib.Path(args.svg))
    write(figures)
    sys.exit(1 if figures.get("blocks_held") else 0)


if __name__ == "__main__":
    main()
