"""Measures OpenVINO GenAI. Runs in the peers' own environment:

python peer_openvino.py MODEL.gguf THREADS ROUNDS

Prints one JSON object with the seconds of each step of the continuous batching pipeline. They
include greedy sampling, which cannot be turned off. Histories have the lengths of bench_forward.
"""

import itertools
import json
import sys
import time

import numpy as np
import openvino
import openvino_genai as genai


class Model:
    def __init__(self, path, threads):
        scheduler = genai.SchedulerConfig()
        scheduler.cache_size = 1  # GB
        scheduler.max_num_batched_tokens = 512
        scheduler.max_num_seqs = 64
        scheduler.enable_prefix_caching = False
        self.pipeline = genai.ContinuousBatchingPipeline(path, scheduler, "CPU", {"INFERENCE_NUM_THREADS": threads})
        self.ids = itertools.count()

    def add(self, prompt, output):
        config = genai.GenerationConfig(max_new_tokens=output, ignore_eos=True, do_sample=False)
        ids = openvino.Tensor(np.full((1, prompt), 17, dtype=np.int64))
        return self.pipeline.add_request(next(self.ids), ids, config)

    def step(self):
        start = time.perf_counter()
        self.pipeline.step()
        return time.perf_counter() - start

    def drain(self):
        while self.pipeline.has_non_finished_requests():
            self.pipeline.step()


def main():
    path, threads, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    model = Model(path, threads)
    # OpenVINO cancels a request if its handle is dropped.
    handles = [model.add(64, 4)]
    model.drain()
    seconds = {"prefill": [], "decode": [], "decode32": []}
    for _ in range(rounds):
        handles.append(model.add(512, 1))
        seconds["prefill"].append(model.step())
        model.drain()
        handles.append(model.add(64, 34))
        model.step()
        seconds["decode"] += [model.step() for _ in range(32)]
        model.drain()
    handles += [model.add(256, 4 * rounds + 40) for _ in range(32)]
    # Prefills all prompts at 512 tokens a step. The first streams already decode in these steps.
    for _ in range(32):
        model.step()
    seconds["decode32"] = [model.step() for _ in range(4 * rounds)]
    model.drain()
    print(json.dumps(seconds))


main()
