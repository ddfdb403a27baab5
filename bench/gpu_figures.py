"""Compares the measurements of tools/gpu_check with the speed that the CUDA backend must reach.

  python3 bench/gpu_figures.py FOLDER

FOLDER has cuda.json. It may have sdpa.json and transport.json. Prints a line for each figure, and
the names of missing files. The exit status is 1 if a figure is below its wanted value.
"""

import json
import pathlib
import sys


def load(folder, name):
    path = folder / name
    return json.loads(path.read_text()) if path.exists() else None


def share(rows, **wanted):
    return next(row["share_of_ceiling"] for row in rows if all(row[key] == value for key, value in wanted.items()))


def decode_attention(cuda):
    return next(row["share_of_ceiling"] for row in cuda["kernels"]
                if row["kernel"].startswith("decode_attention hd128") and "256 x 1024" in row["kernel"])


def host_work(rows):
    return 50e-6 / max(row["host_seconds_median"] for row in rows if "host_seconds_median" in row)


def sdpa(cuda, peer):
    best = min(row["seconds_median"] for row in peer["sdpa"] if tuple(row["shape"]) == (1, 8192, 32, 8, 128))
    ours = min(row["seconds_median"] for row in cuda["kernels"]
               if row["kernel"].startswith("prefill_attention") and row["kernel"].endswith("hd128 heads32/8 8192"))
    return best / ours


def figures(cuda, peer, transport):
    """Yields (name, function that returns the figure, wanted value).

    A figure with wanted value 0 is only printed.
    """
    rows = [row for row in cuda.get("forward", []) if not row["same_bits"] and not row.get("seen_tokens")]
    step = dict(tokens=1, history=1024)
    if cuda:
        yield "decode attention of 256 x 1,024, of the copy rate", lambda: decode_attention(cuda), 0.85
        yield "prefill of 8,192, of the product's rate", lambda: share(rows, tokens=8192), 0.75
        yield "decode of 1 stream, of the copy rate", lambda: share(rows, streams=1, **step), 0.75
        yield "decode of 256 streams, of the roofline", lambda: share(rows, streams=256, **step), 0.75
        yield "50 us / longest host work of a decode step", lambda: host_work(rows), 1.0
    for row in rows:
        if "host_seconds_median" in row:
            yield (f"decode of {row['streams']} on {row['history']} speed-up if enqueued ahead",
                   lambda row=row: row["seconds_median"] / row["ahead_seconds_median"], 0.0)
    if cuda and peer:
        yield "prefill attention, times PyTorch's best backend", lambda: sdpa(cuda, peer), 0.9
    for blocks in transport.get("device_memory", {}).get("blocks", []):
        yield (f"push of {blocks['block_bytes'] >> 10} KiB blocks, of a device copy",
               lambda blocks=blocks: blocks["share_of_memcpy"], 0.8 if blocks["block_bytes"] == 2 << 20 else 0.0)


def main():
    folder = pathlib.Path(sys.argv[1])
    files = {name: load(folder, name) for name in ("cuda.json", "sdpa.json", "transport.json")}
    judged = missed = 0
    for name, figure, wanted in figures(*(report or {} for report in files.values())):
        judged += wanted > 0
        try:
            got = figure()
        # The files have no row for this figure.
        except (KeyError, StopIteration, ValueError):
            missed += wanted > 0
            print(f"{name:52} not measured")
            continue
        missed += got < wanted
        verdict = "" if wanted == 0 else f"wanted {wanted:.2f}{'' if got >= wanted else ': MISSED'}"
        print(f"{name:52} {got:6.2f}  {verdict}")
    absent = " ".join(name for name, report in files.items() if report is None)
    print(f"figures: {missed} of {judged} missed" + (f", not run: {absent}" if absent else ""))
    sys.exit(missed > 0)


if __name__ == "__main__":
    main()
