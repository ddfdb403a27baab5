"""Measures PyTorch's scaled_dot_product_attention for causal prefill in bf16.

Measures all backends of PyTorch on the shapes of bench_cuda. kernels/prefill_attention is compared
with them. Prints a table. --json FILE writes the figures to FILE.
"""

import argparse
import json
import statistics

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

# batch, tokens, query heads, KV heads, head_dim
SHAPES = [(1, 8192, 32, 8, 128), (4, 2048, 32, 8, 128), (1, 8192, 32, 8, 64)]
BACKENDS = {
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
}


def seconds(run):
    for _ in range(5):
        run()
    times = []
    for _ in range(20):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        run()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1e3)
    return statistics.median(times)


def measure(shape, backend):
    batch, tokens, heads, kv_heads, head_dim = shape
    q = torch.randn(batch, heads, tokens, head_dim, device="cuda", dtype=torch.bfloat16)
    # Repeats KV heads before the measurement, because some backends do not support grouped heads.
    # That makes the peer faster.
    k, v = (torch.randn_like(q[:, :kv_heads]).repeat_interleave(heads // kv_heads, dim=1) for _ in range(2))
    with sdpa_kernel(backend):
        return seconds(lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", help="write the figures to this file")
    options = parser.parse_args()
    results = []
    for shape in SHAPES:
        batch, tokens, heads, kv_heads, head_dim = shape
        flops = 4 * batch * heads * head_dim * tokens * (tokens + 1) / 2
        for name, backend in BACKENDS.items():
            try:
                took = measure(shape, backend)
            except RuntimeError as error:
                print(f"sdpa {name:9} {shape}: {str(error).splitlines()[0]}")
                continue
            print(f"sdpa {name:9} {batch} x {tokens} heads {heads}/{kv_heads} hd{head_dim}: "
                  f"{took * 1e6:8.1f} us {flops / took / 1e12:6.1f} TFLOP/s")
            results.append({"backend": name, "shape": shape, "seconds_median": took, "flops": flops})
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"torch": torch.__version__, "device": torch.cuda.get_device_name(), "sdpa": results}, file, indent=2)


if __name__ == "__main__":
    main()
