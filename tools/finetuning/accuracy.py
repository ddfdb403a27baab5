"""Accuracy: the share of answers that are exactly right.

The answers come from a running server, or from the reference implementation in this process.
"""

import concurrent.futures
import math

import grpc

from baton_client.messages import MESSAGES
from finetuning.errors import InputError
from finetuning.reference import generate_in_batches

REQUEST_SECONDS = 120
CONCURRENT_REQUESTS = 16


def wilson(right, total, z=1.96):
    """Returns the 95 % interval of a share (Wilson 1927). It is also valid near 0 and 1."""
    share, denominator = right / total, 1 + z * z / total
    middle = (share + z * z / (2 * total)) / denominator
    half = z / denominator * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    return max(0.0, middle - half), min(1.0, middle + half)


def score(examples, texts):
    """Returns the figures that `tools/finetune evaluate` prints and writes."""
    right = sum(text == example.text for example, text in zip(examples, texts))
    low, high = wilson(right, len(examples))
    return {"right": right, "total": len(examples), "accuracy": right / len(examples), "low": low, "high": high}


def _room(example):
    """Returns the upper bound on tokens of an answer.

    The bound is one more than the right answer has, so that a longer answer does not count as
    right.
    """
    return len(example.answer) + 1


def texts_of_reference(base, decoder, module, examples, share=1.0, *, max_tokens=None, batch=64):
    """Returns the answers of the reference. `max_tokens` None: the longest right answer decides."""
    outputs = generate_in_batches(base, decoder, [example.prompt for example in examples],
                                  max_tokens or max(map(_room, examples)), kv_dtype=module.dtype, eos_ids=module.eos_ids,
                                  share=share, batch=batch)
    return [module.tokenizer.decode([token for token in output["tokens"] if token not in module.eos_ids],
                                    skip_special_tokens=True) for output in outputs]


class Server:
    """A running Baton router."""

    def __init__(self, address, model=""):
        self._address, self._model = address, model
        self._types = MESSAGES
        self._channel = grpc.insecure_channel(address)
        self._generate = self._channel.unary_stream(
            "/baton.v1.Inference/Generate", request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=self._types["GenerateResponse"].FromString)

    def generate(self, prompt, max_tokens):
        """Returns (token ids, text) of a greedy request. Raises InputError."""
        request = self._types["GenerateRequest"](model=self._model)
        request.segments.segments.add().token_ids.ids.extend(prompt)
        request.sampling.max_tokens = max_tokens
        request.sampling.temperature = 0
        # Overrides the model's default.
        request.sampling.repetition_penalty = 1
        ids, text = [], ""
        try:
            for response in self._generate(request, timeout=REQUEST_SECONDS):
                ids.extend(response.token_ids)
                text += response.text
        except grpc.RpcError as error:
            raise InputError(f"{self._address}: {error.code().name}: {error.details()}") from None
        return ids, text

    def texts(self, examples, *, max_tokens=None, concurrent_requests=CONCURRENT_REQUESTS):
        with concurrent.futures.ThreadPoolExecutor(concurrent_requests) as pool:
            answers = [pool.submit(self.generate, e.prompt, max_tokens or _room(e)) for e in examples]
            try:
                return [answer.result()[1] for answer in answers]
            finally:
                # After an error, no further request begins.
                pool.shutdown(wait=False, cancel_futures=True)
