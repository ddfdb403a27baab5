"""Measures llama.cpp. Runs in the peers' own environment:

python peer_llama.py MODEL.gguf THREADS ROUNDS

Prints one JSON object with the seconds of each step, without sampling. Histories have the lengths
of bench_forward.
"""

import ctypes
import json
import sys
import time

import llama_cpp as ll

SILENT = ll.llama_log_callback(lambda level, text, data: None)


class Model:
    def __init__(self, path, threads, streams):
        ll.llama_log_set(SILENT, ctypes.c_void_p(0))
        ll.llama_backend_init()
        self.model = ll.llama_model_load_from_file(path.encode(), ll.llama_model_default_params())
        params = ll.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = streams * 512, 512, 512
        params.n_seq_max = streams
        params.n_threads = params.n_threads_batch = threads
        self.context = ll.llama_init_from_model(self.model, params)
        self.batch = ll.llama_batch_init(512, 0, 1)

    def step(self, rows):
        """Runs a step and returns its seconds.

        `rows` are (stream, position, whether to compute logits).
        """
        for i, (stream, position, logits) in enumerate(rows):
            self.batch.token[i] = 17
            self.batch.pos[i] = position
            self.batch.n_seq_id[i] = 1
            self.batch.seq_id[i][0] = stream
            self.batch.logits[i] = logits
        self.batch.n_tokens = len(rows)
        start = time.perf_counter()
        if ll.llama_decode(self.context, self.batch) != 0:
            sys.exit("peer_llama: llama_decode failed")
        ll.llama_synchronize(self.context)
        return time.perf_counter() - start

    def prefill(self, stream, tokens):
        return self.step([(stream, p, p == tokens - 1) for p in range(tokens)])

    def clear(self):
        ll.llama_memory_clear(ll.llama_get_memory(self.context), True)


def main():
    path, threads, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    model = Model(path, threads, 32)
    model.prefill(0, 64)
    seconds = {"prefill": [], "decode": [], "decode32": []}
    for _ in range(rounds):
        model.clear()
        seconds["prefill"].append(model.prefill(0, 512))
        model.clear()
        model.prefill(0, 64)
        seconds["decode"] += [model.step([(0, p, True)]) for p in range(64, 96)]
    model.clear()
    for stream in range(32):
        model.prefill(stream, 256)
    for step in range(4 * rounds):
        seconds["decode32"].append(model.step([(s, 256 + step, True) for s in range(32)]))
    print(json.dumps(seconds))


main()
