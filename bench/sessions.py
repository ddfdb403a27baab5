"""Measures sessions of four agents that share one conversation. Each agent has its own model.

The program compares two systems: decoders over one shared prefill module, and a prefill worker and
a decode worker for each model.

- `bench/sessions` runs 4 prefill and 4 decode workers with one thread each on this machine's CPU.
- `bench/sessions --full --json FILE` runs 1, 4 and 8 sessions at a time.
- `bench/sessions --device cuda` runs all 8 workers on one GPU, with random weights of --shape.
- `bench/sessions --simulated` simulates 4 + 4 A100s in virtual time, with the shapes of
  Llama-3.1-8B and Qwen3-14B. It needs the build target bench_simulator.
- `bench/sessions --simulated --full` simulates more sessions, rates and models.
- `bench/sessions --simulated --pressure` simulates more sessions than KV memory holds, with
  --max-sessions and without.
- `bench/sessions --simulated --host-tier` simulates a growing number of sessions, with host memory
  for evicted KV and without.
- `bench/sessions --simulated --pauses ...` adds the time of tools between turns to any of these.

The lengths are those of ReAct's and Reflexion's transcripts. session_profiles.py lists measured
lengths and assumptions.
"""

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
    parser.add_argument("--simulated", action="store_true", help="simulate A100s in virtual time")
    parser.add_argument("--full", action="store_true", help="more settings, as above")
    parser.add_argument("--repeats", type=int, default=3, help="number of measured runs; figures are their medians")
    parser.add_argument("--pressure", action="store_true", help="with --simulated: more sessions than KV memory holds")
    parser.add_argument("--host-tier", action="store_true", help="with --simulated: with and without host memory for evicted KV")
    parser.add_argument("--pauses", action="store_true", help="with --simulated: tools take time between turns")
    parser.add_argument("--model-dir", type=pathlib.Path, default=ROOT / "models" / "smollm2-135m-instruct",
                        help="measured runs on the CPU: the prefill module; decoders are made from it")
    parser.add_argument("--device", help="measured runs: cuda or cuda:N instead of the CPU")
    parser.add_argument("--shape", default="llama-3.2-3b", help="with --device: a shape of tools/convert/random_model.py")
    parser.add_argument("--kv-memory-mb", type=int, default=6144, help="with --device: KV memory of each worker")
    parser.add_argument("--at-once", type=lambda text: [int(n) for n in text.split(",")],
                        help="measured runs: sessions at a time, e.g. 4,16")
    parser.add_argument("--bin", type=pathlib.Path, help="measured runs: folder of the programs (default build/release/bin)")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build" / "bench_sessions",
                        help="measured runs: folder of models and logs")
    parser.add_argument("--seconds", type=float, default=3600, help="with --simulated: leave out runs that would begin later")
    parser.add_argument("--jobs", type=int, default=2, help="with --simulated: runs at a time")
    parser.add_argument("--resume", help="with --simulated: a file of figures of the same commit; its runs are not repeated")
    parser.add_argument("--json", help="write the figures to this file")
    parser.add_argument("--svg", help="with --simulated: write plots of p95 and throughput to this file")
    args = parser.parse_args()
    if not args.simulated and (args.pressure or args.host_tier or args.pauses or args.resume or args.svg):
        parser.error("--pressure, --host-tier, --pauses, --resume and --svg are for --simulated")

    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()

    def write(figures):
        if args.json:
            where = {"date": datetime.date.today().isoformat(), "commit": commit, "setup": setup}
            pathlib.Path(args.json).write_text(json.dumps(where | figures, indent=1) + "\n")

    if args.simulated:
        setup = "simulated: no figure was measured"
        begun = json.loads(pathlib.Path(args.resume).read_text()) if args.resume else {"commit": commit, "runs": []}
        if begun["commit"] != commit:
            parser.error(f"--resume: {args.resume} has runs of {begun['commit']}, and this is {commit}")
        figures = sessions_simulated.run(args, begun["runs"], write)
        sessions_simulated.report(figures)
    else:
        if args.bin:
            sessions_measured.cluster.BIN = args.bin.resolve()
        if args.device:
            made = sessions_measured.on_gpu(args.device, args.work, args.shape, args.kv_memory_mb)
            setup = f"8 workers on one {args.device}, {args.shape}, random weights"
        else:
            made = sessions_measured.on_cpu(args.model_dir, args.work)
            setup = f"{platform.machine()}, {os.cpu_count()} cores; 8 workers with one thread each, and the load generator beside them"
        figures = sessions_measured.run(made, args.at_once or ((1, 4, 8) if args.full else (4,)), args.repeats)
        sessions_measured.report(figures)
    if args.svg:
        sessions_simulated.plot(figures["runs"], pathlib.Path(args.svg))
    write(figures)
    sys.exit(1 if figures.get("blocks_held") else 0)


if __name__ == "__main__":
    main()
