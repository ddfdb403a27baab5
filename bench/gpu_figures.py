"""The speed that the CUDA backend is to reach, against what tools/gpu_check measured.

  python3 bench/gpu_figures.py FOLDER    with cuda.json, and sdpa.json and transport.json where they were made

A line for each figure, and which of the files are not there; ends with 1 if a figure is missed."""

import json
import pathlib
import sys


def load(folder, name):
    path = folder / name
    return json.loads(path.read_text()) if path.exists() else None


def share(rows, **wanted):
    return next(row for row in rows if all(row[key] == value for key, value in wanted.items()))


def cuda_figures(cuda):
    kernel = {row["kernel"]: row["share_of_ceiling"] for row in cuda["kernels"]}
    decode = next(value for name, value in kernel.items() if name.startswith("decode_attention hd128") and "256 x 1024" in name)
    yield "decode attention of 256 x 1,024, of the copy rate", decode, 0.85
    if "forward" not in cuda:
        return
    rows = [row for row in cuda["forward"] if not row["same_bits"] and not row.get("seen_tokens")]
    yield "prefill of 8,192, of the product's rate", share(rows, tokens=8192)["share_of_ceiling"], 0.75
    step = dict(tokens=1, history=1024)
    yield "decode of 1 stream, of the copy rate", share(rows, streams=1, **step)["share_of_ceiling"], 0.75
    yield "decode of 256 streams, of the roofline", share(rows, streams=256, **step)["share_of_ceiling"], 0.75
    host = max(row["host_seconds_median"] for row in rows if "host_seconds_median" in row)
    yield "host work of a decode step, 50 us over the most", 50e-6 / host, 1.0
    for row in rows:
        if "ahead_seconds_median" in row:
            yield (f"decode of {row['streams']} on {row['history']} begun ahead, times one that waits",
                   row["seconds_median"] / row["ahead_seconds_median"], 0.0)


def sdpa_figure(cuda, sdpa):
    best = min(row["seconds_median"] for row in sdpa["sdpa"] if tuple(row["shape"]) == (1, 8192, 32, 8, 128))
    ours = min(row["seconds_median"] for row in cuda["kernels"]
               if row["kernel"].startswith("prefill_attention") and row["kernel"].endswith("hd128 heads32/8 8192"))
    yield "prefill attention, times PyTorch's best backend", best / ours, 0.9


def transport_figures(transport):
    for blocks in transport["device_memory"]["blocks"]:
        yield (f"push of {blocks['block_bytes'] >> 10} KiB blocks, of a device copy", blocks["share_of_memcpy"],
               0.8 if blocks["block_bytes"] == 2 << 20 else 0.0)


def main():
    folder = pathlib.Path(sys.argv[1])
    cuda, sdpa, transport = (load(folder, name) for name in ("cuda.json", "sdpa.json", "transport.json"))
    figures = [*(cuda_figures(cuda) if cuda else []), *(sdpa_figure(cuda, sdpa) if cuda and sdpa else []),
               *(transport_figures(transport) if transport else [])]
    missed = 0
    for name, got, wanted in figures:
        missed += got < wanted
        verdict = "" if wanted == 0 else f"wanted {wanted:.2f}{'' if got >= wanted else ': MISSED'}"
        print(f"{name:52} {got:6.2f}  {verdict}")
    files = {"cuda.json": cuda, "sdpa.json": sdpa, "transport.json": transport}
    absent = " ".join(name for name, report in files.items() if report is None)
    print(f"figures: {missed} of {sum(wanted > 0 for _, _, wanted in figures)} missed" + (f", not run: {absent}" if absent else ""))
    sys.exit(missed > 0)


if __name__ == "__main__":
    main()
