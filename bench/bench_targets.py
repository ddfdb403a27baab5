"""The servers that bench_serve can measure: Baton over gRPC, and OpenAI-compatible servers."""

import asyncio
import json
import urllib.parse

import grpc
from baton_client.messages import MESSAGES


class RequestError(Exception):
    """A request that the server refused or lost. Equal failures have equal messages."""


class Baton:
    """Sends greedy requests to Baton. Ends of sequence are ignored.

    Prompts are token ids, so that nothing depends on a tokenizer.
    """

    def __init__(self, address, model):
        self.types = MESSAGES
        self.channel = grpc.aio.insecure_channel(address, options=[("grpc.max_receive_message_length", 64 << 20)])
        self.model = model
        self.call = self.channel.unary_stream(
            "/baton.v1.Inference/Generate", request_serializer=self.types["GenerateRequest"].SerializeToString,
            response_deserializer=self.types["GenerateResponse"].FromString)

    async def info(self):
        list_models = self.channel.unary_unary(
            "/baton.v1.Inference/ListModels", request_serializer=self.types["ListModelsRequest"].SerializeToString,
            response_deserializer=self.types["ListModelsResponse"].FromString)
        try:
            models = (await list_models(self.types["ListModelsRequest"](), timeout=10)).models
        except grpc.aio.AioRpcError as error:
            raise RequestError(f"{error.code().name}: {error.details()}") from error
        chosen = [m for m in models if m.name == self.model or not self.model]
        if len(chosen) != 1:
            raise RequestError(f"--model: expected one of {[m.name for m in models]}, got '{self.model}'")
        return {"context": chosen[0].context, "vocabulary": chosen[0].vocabulary}

    async def generate(self, ids, output):
        """Yields the number of tokens of each message. Raises RequestError."""
        request = self.types["GenerateRequest"](model=self.model)
        request.segments.segments.add().token_ids.ids.extend(ids)
        request.sampling.max_tokens = output
        request.sampling.temperature = 0
        request.sampling.ignore_eos = True
        try:
            async for response in self.call(request):
                if response.token_ids:
                    yield len(response.token_ids)
        except grpc.aio.AioRpcError as error:
            raise RequestError(f"{error.code().name}: {error.details()}") from error

    async def close(self):
        await self.channel.close()


class OpenAi:
    """Sends streamed requests of token ids to /v1/completions. One event counts as one token."""

    def __init__(self, url, model):
        parts = urllib.parse.urlsplit(url)
        self.host, self.port, self.model = parts.hostname, parts.port or 80, model
        if parts.scheme != "http" or not self.host:
            raise RequestError(f"--url: expected http://HOST:PORT, got '{url}'")

    async def info(self):
        # The API has neither value. All vocabularies of these model families have the ids below
        # 1,000.
        return {"context": 4096, "vocabulary": 1000}

    async def generate(self, ids, output):
        body = json.dumps({"model": self.model, "prompt": ids, "max_tokens": output, "temperature": 0, "stream": True,
                           "ignore_eos": True}).encode()
        head = (f"POST /v1/completions HTTP/1.1\r\nHost: {self.host}\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n").encode()
        try:
            reader, writer = await asyncio.open_connection(self.host, self.port)
        except OSError as error:
            raise RequestError(f"cannot connect to {self.host}:{self.port}: {error.strerror}") from error
        try:
            writer.write(head + body)
            status = (await reader.readline()).split(b" ", 2)
            if len(status) < 2 or status[1] != b"200":
                raise RequestError(f"HTTP {status[1].decode() if len(status) > 1 else 'no answer'}")
            # An event is a line. The chunk sizes between events do not start with "data:".
            async for line in reader:
                if line.startswith(b"data:") and b"[DONE]" not in line:
                    yield 1
        finally:
            writer.close()

    async def close(self):
        pass
