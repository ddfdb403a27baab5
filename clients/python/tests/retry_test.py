"""A run dies with its worker and is started again, while another run waits for its output."""

import asyncio
import concurrent.futures
import time
import unittest

import grpc
import openai
import serving
from baton_client import AsyncClient, BatonError, Client, Sampling

LONG = Sampling(temperature=0, repetition_penalty=1, max_tokens=400, ignore_eos=True)
SHORT = Sampling(temperature=0, repetition_penalty=1, max_tokens=16, ignore_eos=True)


class RetryTest(unittest.TestCase):
    def keep(self, process):
        self.addCleanup(process.kill)
        return process

    def start_worker(self, role, address="127.0.0.1:0"):
        return self.keep(serving.start_worker(role, address))

    def setUp(self):
        prefill, self.decode = (self.start_worker(role) for role in ("prefill", "decode"))
        self.router = self.keep(serving.start("router", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0",
                                              "--worker-wait", "1", "--announced-retry", "60", "--prefill-workers", prefill.grpc,
                                              "--decode-workers", self.decode.grpc))

    def start_decode_again(self):
        self.decode = self.start_worker("decode", self.decode.grpc)

    def check(self, trace, draft, reader, second, read, undisturbed):
        self.assertEqual((second.attempt, second.token_ids), (2, undisturbed[0].token_ids))
        self.assertEqual(read.token_ids, undisturbed[1].token_ids)
        self.assertEqual([request.attempt for request in trace.requests if request.request_id == draft.id], [1, 2])
        [traced] = [request for request in trace.requests if request.request_id == reader.id]
        self.assertEqual((traced.upstreams, traced.upstream_attempts), ((draft.id,), (2,)))

    def test_a_prompt_has_the_output_of_the_second_attempt(self):
        with Client(self.router.grpc) as client:
            flow = client.workflow("w")
            alone = flow.agent("alone", "Once", sampling=LONG)
            undisturbed = alone.result(), flow.agent("reader", "Read: ", alone, sampling=SHORT).result()
            died = None
            while died is None:  # the run may end before its worker
                draft = flow.announce("draft")
                reader = flow.agent("reader", "Read: ", draft, sampling=SHORT)
                first = flow.agent(draft, "Once", sampling=LONG)
                next(first.chunks())
                self.decode.kill()
                try:
                    first.result()
                except BatonError as error:
                    died = error
                self.start_decode_again()
            self.assertEqual(died.code, grpc.StatusCode.UNAVAILABLE)
            while not client.models()[0].ready:
                time.sleep(0.01)
            second = flow.agent(draft, "Once", sampling=LONG)
            results = second.result(), reader.result()
            self.check(flow.trace(), draft, reader, *results, undisturbed)

    def test_an_asyncio_program_starts_a_run_again_too(self):
        asyncio.run(self.start_again())

    async def start_again(self):
        async with AsyncClient(self.router.grpc) as client:
            flow = client.workflow("w")
            alone = flow.agent("alone", "Once", sampling=LONG)
            undisturbed = await alone.result(), await flow.agent("reader", "Read: ", alone, sampling=SHORT).result()
            died = None
            while died is None:
                draft = flow.announce("draft")
                reader = flow.agent("reader", "Read: ", draft, sampling=SHORT)
                first = flow.agent(draft, "Once", sampling=LONG)
                await anext(aiter(first.chunks()))
                self.decode.kill()
                try:
                    await first.result()
                except BatonError as error:
                    died = error
                self.start_decode_again()
            while not (await client.models())[0].ready:
                await asyncio.sleep(0.01)
            second = flow.agent(draft, "Once", sampling=LONG)
            results = await second.result(), await reader.result()
            self.check(await flow.trace(), draft, reader, *results, undisturbed)

    def test_programs_over_http_start_a_call_again_too(self):
        def call(id, prompt, tokens, **options):
            body = {"request_id": id, "ignore_eos": True, "repetition_penalty": 1, **prompt}
            return http.completions.create(model=serving.MODEL.name, prompt=None, max_tokens=tokens, temperature=0,
                                           extra_body=body, **options)

        once = {"segments": [{"text": "Once"}]}

        def read(id, upstream):
            reference = {"request_id": upstream, "announced": True}
            return call(id, {"segments": [{"text": "Read: "}, {"output_of": reference}]}, 16).choices[0].text

        with (openai.OpenAI(base_url=f"{self.router.http}/v1", api_key="none", max_retries=0, timeout=None) as http,
              Client(self.router.grpc) as client, concurrent.futures.ThreadPoolExecutor() as pool):
            undisturbed = call("alone", once, 400).choices[0].text, read("alone-reader", "alone")
            died, attempts = None, 0
            while died is None:
                attempts += 1
                draft = f"draft-{attempts}"
                reader = pool.submit(read, f"reader-{attempts}", draft)
                answer = iter(call(draft, once, 400, stream=True))
                next(answer)
                self.decode.kill()
                try:
                    list(answer)
                except openai.APIError as error:
                    died = error
                self.start_decode_again()
            self.assertIn("worker", died.message)
            while not client.models()[0].ready:
                time.sleep(0.01)
            again = call(draft, once, 400).choices[0].text
            self.assertEqual((again, reader.result()), undisturbed)


if __name__ == "__main__":
    unittest.main()
