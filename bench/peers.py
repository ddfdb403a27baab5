"""Compares forward passes of Baton with llama.cpp (llama-cpp-python) and OpenVINO GenAI.

All engines have the same weights and threads, and alternate in one run on this machine.

- `bench/peers` measures SmolLM2-135M-Instruct on all cores.
- `bench/peers --peers llama.cpp --rounds 1` is a quick check.

The first run installs both engines from PyPI into the environment build/peers. It takes about 700
MB with the converted models. pip compiles llama-cpp-python for this machine, which takes several
minutes on two cores.

The first run also writes the weights as GGUF: bf16 for llama.cpp, and f16 for OpenVINO. OpenVINO's
GGUF reader does not support bf16. OpenVINO computes in bf16 if the processor does. The figures of
Baton and llama.cpp are without sampling. OpenVINO's pipeline always samples, here greedily.

CI does not run this. Stop other work first, because only ratios of one run on a quiet machine are
meaningful.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
HOME = ROOT / "build" / "peers"
PYTHON = HOME / "bin" / "python"
PACKAGES = ["llama-cpp-python==0.3.36", "openvino-genai==2026.4.1.0", "gguf==0.19.0"]
PEERS = {"llama.cpp": ("peer_llama.py", "bf16"), "openvino": ("peer_openvino.py", "f16")}
# Figures: name, title, tokens of a step, the equal case of bench_forward, and the wanted ratio.
FIGURES = [("prefill", "prefill of 512", 512, ("prefill", 1, 512, 0), 1.5),
           ("decode", "decode, 1 stream", 1, ("decode", 1, 1, 64), 1.2),
           ("decode32", "decode, 32 streams", 32, ("decode", 32, 1, 256), 2.0)]


def fail(message):
    sys.exit(f"peers: {message}")


def run(command, **options):
    """Runs a command and returns its stdout. Ends the program if the command fails."""
    try:
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, **options).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        fail(f"{' '.join(map(str, command))}: {error}")


def install():
    # Written after all packages are installed.
    done = HOME / "packages.txt"
    if done.exists() and done.read_text() == "\n".join(PACKAGES):
        return
    print(f"Installing {', '.join(PACKAGES)} into {HOME}", flush=True)
    run([sys.executable, "-m", "venv", HOME])
    environment = {**os.environ, "CMAKE_ARGS": "-DGGML_NATIVE=ON"}
    for package in PACKAGES:
        print(f"  {package} ...", flush=True)
        subprocess.run([PYTHON, "-m", "pip", "install", "--prefer-binary", "--progress-bar", "on", package], check=True,
                       env=environment)
    done.write_text("\n".join(PACKAGES))


def converted(model, kind):
    path = HOME / f"{model.name}-{kind}.gguf"
    if not path.exists():
        print(f"Writing {path}", flush=True)
        unfinished = path.with_suffix(".unfinished")
        run([PYTHON, ROOT / "bench" / "peer_gguf.py", model, unfinished, kind])
        unfinished.rename(path)
    return path


def measure_peer(name, args):
    script, kind = PEERS[name]
    output = run([PYTHON, ROOT / "bench" / script, converted(args.model, kind), str(args.threads), "3"],
                 stderr=subprocess.DEVNULL)
    return json.loads(output.splitlines()[-1])


def measure_baton(args):
    path = HOME / "baton.json"
    run([args.bench_forward, "--model", args.model, "--threads", str(args.threads), "--rounds", "5", "--json", path],
        stderr=subprocess.DEVNULL)
    cases = {(c["name"], c["streams"], c["tokens"], c["history"]): c for c in json.loads(path.read_text())["cases"]}
    return {name: [cases[case]["seconds_median"]] for name, _, _, case, _ in FIGURES}


def report(seconds, args):
    """Prints rates, which are medians over all rounds, and ratios to the best peer."""
    rates = {engine: {name: tokens / statistics.median(all_seconds[name]) for name, _, tokens, _, _ in FIGURES}
             for engine, all_seconds in seconds.items()}
    peers = [engine for engine in rates if engine != "baton"]
    print(f"{'tokens/s':20}" + "".join(f"{engine:>12}" for engine in rates) + "   to the best peer   wanted")
    figures = []
    for name, title, _, _, wanted in FIGURES:
        ratio = rates["baton"][name] / max(rates[peer][name] for peer in peers)
        print(f"{title:20}" + "".join(f"{rates[engine][name]:12.0f}" for engine in rates) +
              f"   {ratio:14.2f} x   {wanted:.1f} x")
        figures.append({"figure": title, "tokens_per_s": {engine: rates[engine][name] for engine in rates},
                        "ratio_to_best_peer": ratio, "wanted": wanted})
    commit = run(["git", "-C", ROOT, "describe", "--always", "--dirty"]).strip()
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "")
    return {"date": datetime.date.today().isoformat(), "commit": commit, "cpu": cpu, "machine": platform.platform(),
            "threads": args.threads, "rounds": args.rounds, "packages": PACKAGES, "model": args.model.name,
            "figures": figures}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path, default=ROOT / "models" / "smollm2-135m-instruct",
                        help="Hugging Face directory of a Llama in bf16 with one model.safetensors")
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS), help="engines to compare with")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="threads of each engine")
    parser.add_argument("--rounds", type=int, default=3, help="number of measurements of each engine")
    parser.add_argument("--bench-forward", type=pathlib.Path, default=ROOT / "build/release/bin/bench_forward",
                        help="Baton's benchmark program")
    parser.add_argument("--json", type=pathlib.Path, help="write the result to this file")
    args = parser.parse_args()
    if not (args.model / "model.safetensors").exists():
        fail(f"{args.model}: no model.safetensors; run tools/fetch_model {args.model.name}")
    if not args.bench_forward.exists():
        fail(f"{args.bench_forward} is missing; build it: cmake --build --preset release")
    install()
    seconds = {engine: {name: [] for name, *_ in FIGURES} for engine in ["baton", *args.peers]}
    for round_ in range(args.rounds):
        for engine in seconds:
            print(f"round {round_ + 1} of {args.rounds}: {engine}", flush=True)
            measured = measure_baton(args) if engine == "baton" else measure_peer(engine, args)
            for name in seconds[engine]:
                seconds[engine][name] += measured[name]
    result = report(seconds, args)
    if args.json:
        args.json.write_text(json.dumps(result, indent=2) + "\n")


main()
