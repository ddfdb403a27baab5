"""Tests of OpenAI's own, unmodified Python package with a real server."""

import asyncio
import concurrent.futures
import json
import shutil
import ssl
import time
import unittest
import urllib.error
import urllib.request

import openai
from serving import Certificate, Keys, Server

TEXT = "Once upon a time there was a boat"
# Ignores ends of sequence, because rounding differs between machines.
GREEDY = {"temperature": 0, "max_tokens": 24, "extra_body": {"ignore_eos": True}}


class OpenAiTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.keys = Keys()
        cls.addClassCleanup(cls.keys.close)
        cls.server = Server("--keys", cls.keys.path)
        cls.addClassCleanup(cls.server.stop)

    def setUp(self):
        self.access = {"base_url": f"{self.server.http}/v1", "api_key": self.keys.key, "max_retries": 0, "timeout": None}
        self.client = openai.OpenAI(**self.access)
        self.addCleanup(self.client.close)
        self.model = self.client.models.list().data[0].id

    def await_workflow(self, workflow, count):
        """Waits until `count` requests of the workflow are at the server."""
        headers = {"authorization": f"Bearer {self.keys.key}", "content-type": "application/json"}
        ask = urllib.request.Request(f"{self.server.http}/ui/trace", json.dumps({"workflow": workflow}).encode(), headers)
        while True:
            try:
                if len(json.load(urllib.request.urlopen(ask))["requests"]) >= count:
                    return
            except urllib.error.HTTPError as error:
                self.assertEqual(error.code, 404)  # no request has arrived yet
            time.sleep(0.01)

    def complete(self, **fields):
        return self.client.completions.create(model=self.model, **{"prompt": TEXT, **GREEDY, **fields})

    def chat(self, text, **fields):
        return self.client.chat.completions.create(
            model=self.model, messages=[{"role": "user", "content": text}], **{**GREEDY, **fields})

    def test_a_refused_request_fails_those_that_refer_to_it(self):
        parts = [{"type": "output_of", "output_of": {"request_id": "refused-1", "announced": True, **more}}
                 for more in ({}, {"on_failure": "substitute", "substitute": "nothing"}, {"on_failure": "partial"})]
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            waits, *survivors = [pool.submit(self.chat, [{"type": "text", "text": "Wait: "}, part], extra_body={
                "ignore_eos": True, "workflow": "refused"}) for part in parts]
            self.await_workflow("refused", 3)
            with self.assertRaises(openai.BadRequestError):
                self.complete(top_p=2, extra_body={"request_id": "refused-1", "agent": "writer"})
            with self.assertRaises(openai.ConflictError) as caught:
                waits.result()
            for survivor in survivors:
                self.assertGreater(survivor.result().usage.completion_tokens, 0)
        self.assertEqual({name: caught.exception.body["root"][name] for name in ("request_id", "agent", "code")},
                         {"request_id": "refused-1", "agent": "writer", "code": "invalid_argument"})
        self.assertIn("top_p", caught.exception.body["root"]["message"])

    def test_models(self):
        self.assertEqual([model.id for model in self.client.models.list()], ["tiny_llama3_bf16"])
        self.assertEqual(self.client.models.retrieve(self.model).id, self.model)

    def test_a_streamed_completion_is_the_whole_one(self):
        whole = self.complete()
        chunks = list(self.complete(stream=True, stream_options={"include_usage": True}))
        self.assertEqual("".join(choice.text for chunk in chunks for choice in chunk.choices), whole.choices[0].text)
        self.assertEqual(chunks[-1].usage.completion_tokens, whole.usage.completion_tokens)
        self.assertEqual(whole.usage.prompt_tokens + whole.usage.completion_tokens, whole.usage.total_tokens)
        self.assertEqual([chunk.choices[0].finish_reason for chunk in chunks[:-1]][-1], whole.choices[0].finish_reason)

    def test_a_streamed_chat_is_the_whole_one(self):
        whole = self.chat(TEXT, logprobs=True, top_logprobs=3)
        streamed = [choice.delta.content or "" for chunk in self.chat(TEXT, stream=True) for choice in chunk.choices]
        self.assertEqual("".join(streamed), whole.choices[0].message.content)
        self.assertEqual(whole.choices[0].message.role, "assistant")
        self.assertEqual(len(whole.choices[0].logprobs.content), whole.usage.completion_tokens)
        self.assertEqual({len(token.top_logprobs) for token in whole.choices[0].logprobs.content}, {3})

    def test_the_helper_of_streamed_chats_gathers_the_whole_one(self):
        stop = next(character for character in self.chat(TEXT).choices[0].message.content[1:] if character.isascii())
        # This method refuses answers that end because of max_tokens.
        with self.client.chat.completions.stream(
                model=self.model, messages=[{"role": "user", "content": TEXT}], stop=stop, **GREEDY) as stream:
            for _ in stream:
                pass
            gathered = stream.get_final_completion().choices[0].message.content
        self.assertEqual(gathered, self.chat(TEXT, stop=stop).choices[0].message.content)

    def test_several_choices_are_drawn_apart(self):
        first = self.complete(n=2, temperature=1, seed=7)
        self.assertEqual([choice.index for choice in first.choices], [0, 1])
        self.assertNotEqual(first.choices[0].text, first.choices[1].text)
        again = self.complete(n=2, temperature=1, seed=7)
        self.assertEqual([choice.text for choice in first.choices], [choice.text for choice in again.choices])
        two = self.complete(prompt=[TEXT, TEXT + "."])
        self.assertEqual(two.choices[0].text, self.complete().choices[0].text)

    def test_a_stop_string_ends_the_text_before_it(self):
        whole = self.complete().choices[0].text
        stop = next(character for character in whole[1:] if character.isascii())
        choice = self.complete(stop=[stop]).choices[0]
        self.assertEqual((choice.text, choice.finish_reason), (whole[:whole.index(stop)], "stop"))

    def test_logprobs_of_a_completion(self):
        logprobs = self.complete(logprobs=2, max_tokens=5).choices[0].logprobs
        self.assertEqual(len(logprobs.tokens), 5)
        for chosen, top in zip(logprobs.token_logprobs, logprobs.top_logprobs):
            # The request is greedy.
            self.assertEqual(chosen, max(top.values()))

    def test_an_echo_has_the_logprobs_of_prompt_and_output(self):
        plain = self.complete(logprobs=1, max_tokens=5).choices[0]
        whole = self.complete(echo=True, logprobs=1, max_tokens=5).choices[0]
        self.assertEqual(whole.text, TEXT + plain.text)
        scored = whole.logprobs
        self.assertEqual((scored.token_logprobs[0], scored.top_logprobs[0]), (None, None))
        self.assertEqual("".join(scored.tokens[:-5]), TEXT)
        self.assertEqual(scored.token_logprobs[-5:], plain.logprobs.token_logprobs)
        self.assertEqual(scored.text_offset[-5], len(TEXT))
        alone = self.complete(echo=True, logprobs=1, max_tokens=0).choices[0]
        self.assertEqual((alone.text, alone.logprobs.token_logprobs), (TEXT, scored.token_logprobs[:-5]))
        chunks = [chunk.choices[0] for chunk in self.complete(echo=True, logprobs=1, max_tokens=5, stream=True)]
        self.assertEqual("".join(chunk.text for chunk in chunks), whole.text)
        self.assertEqual((chunks[0].text, chunks[0].logprobs.token_logprobs), (TEXT, scored.token_logprobs[:-5]))
        ids = self.complete(max_tokens=1, extra_body={"prompt_logprobs": 0}).choices[0].prompt_logprobs
        self.assertEqual([next(iter(one.values()))["logprob"] for one in ids[1:]], scored.token_logprobs[1:-5])

    def test_token_ids_as_a_prompt(self):
        ids = self.client.post("/../tokenize", body={"prompt": TEXT}, cast_to=dict)["tokens"]
        self.assertEqual(self.complete(prompt=ids).choices[0].text, self.complete().choices[0].text)

    def test_errors_are_the_packages_exceptions(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.complete(top_p=2)
        self.assertEqual(caught.exception.param, "top_p")
        with self.assertRaises(openai.BadRequestError) as caught:
            self.complete(extra_body={"no_such_field": 1})
        self.assertEqual(caught.exception.param, "no_such_field")
        with self.assertRaises(openai.NotFoundError) as caught:
            self.client.completions.create(model="nope", prompt="x")
        self.assertEqual(caught.exception.code, "model_not_found")
        with self.assertRaises(openai.NotFoundError):
            self.client.models.retrieve("nope")
        with openai.OpenAI(**{**self.access, "api_key": "baton-wrong"}) as stranger:
            with self.assertRaises(openai.AuthenticationError):
                stranger.models.list()
            with self.assertRaises(openai.AuthenticationError):
                stranger.completions.create(model=self.model, prompt="x")

    def test_a_session_finds_its_kv(self):
        extra = {"session_id": "s", "cache_salt": "test_a_session"}
        first, second = (self.complete(prompt=TEXT * 2, extra_body=extra).usage for _ in range(2))
        self.assertEqual(first.prompt_tokens_details.cached_tokens, 0)
        self.assertGreater(second.prompt_tokens_details.cached_tokens, 0)

    def test_a_prompt_may_contain_another_requests_output(self):
        writer = self.complete(extra_body={"request_id": "writer-1", "ignore_eos": True})
        segments = [{"text": "Review: "}, {"output_of": "writer-1"}, {"text": " Now."}]
        review = self.client.completions.create(model=self.model, prompt=None, temperature=0, extra_body={"segments": segments})
        short = self.client.completions.create(model=self.model, prompt="Review:  Now.", **GREEDY)
        self.assertGreater(review.usage.prompt_tokens, short.usage.prompt_tokens + writer.usage.completion_tokens // 2)
        parts = [{"type": "text", "text": "Review: "}, {"type": "output_of", "output_of": "writer-1"}]
        self.assertGreater(self.chat(parts).usage.prompt_tokens, self.chat("Review: ").usage.prompt_tokens)
        with self.assertRaises(openai.NotFoundError):
            self.chat([{"type": "output_of", "output_of": "nobody"}])


@unittest.skipUnless(shutil.which("openssl"), "makes certificates")
class TlsTest(unittest.TestCase):
    def test_https_needs_trust_in_certificate(self):
        ours, others = Certificate("ours"), Certificate("others")
        self.addCleanup(ours.close)
        self.addCleanup(others.close)
        server = Server("--tls-cert", ours.path, "--tls-key", ours.key)
        self.addCleanup(server.stop)
        self.assertTrue(server.http.startswith("https://"))

        def complete(authority, url=server.http, **fields):
            with openai.DefaultHttpxClient(verify=ssl.create_default_context(cafile=authority)) as http:
                client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=None, http_client=http)
                answer = client.completions.create(model="tiny_llama3_bf16", prompt=TEXT, **GREEDY, **fields)
                return "".join(chunk.choices[0].text for chunk in answer) if fields else answer.choices[0].text

        self.assertEqual(complete(ours.path, stream=True), complete(ours.path))
        with self.assertRaises(openai.APIConnectionError):
            complete(others.path)
        with self.assertRaisesRegex(openai.BadRequestError, "https://"):
            complete(ours.path, server.http.replace("https", "http"))


class QuotaTest(unittest.TestCase):
    def test_a_quota_that_is_used_up_is_a_rate_limit_with_a_time(self):
        # The first call uses the tokens of several hours.
        keys = Keys("tokens_per_minute = 1")
        self.addCleanup(keys.close)
        server = Server("--keys", keys.path)
        self.addCleanup(server.stop)
        with openai.OpenAI(base_url=f"{server.http}/v1", api_key=keys.key, max_retries=0, timeout=None) as client:
            client.completions.create(model="tiny_llama3_bf16", prompt="x" * 200, **GREEDY)
            with self.assertRaises(openai.RateLimitError) as caught:
                client.completions.create(model="tiny_llama3_bf16", prompt="x", **GREEDY)
            self.assertGreater(int(caught.exception.response.headers["retry-after"]), 0)


class AsyncOpenAiTest(unittest.IsolatedAsyncioTestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server()
        cls.addClassCleanup(cls.server.stop)

    async def test_many_streams_side_by_side_are_the_whole_answers(self):
        access = {"base_url": f"{self.server.http}/v1", "api_key": "none", "max_retries": 0, "timeout": None}
        async with openai.AsyncOpenAI(**access) as client:
            [model] = [model.id async for model in client.models.list()]

            async def streamed(prompt):
                chunks = await client.completions.create(model=model, prompt=prompt, stream=True, **GREEDY)
                return "".join([choice.text async for chunk in chunks for choice in chunk.choices])

            async def chatted(prompt):
                chunks = await client.chat.completions.create(
                    model=model, messages=[{"role": "user", "content": prompt}], stream=True, **GREEDY)
                return "".join([choice.delta.content or "" async for chunk in chunks for choice in chunk.choices])

            prompts = [f"{TEXT} {n}" for n in range(8)]
            texts = await asyncio.gather(*map(streamed, prompts), *map(chatted, prompts))
            for prompt, text, chat in zip(prompts, texts, texts[8:]):
                whole = await client.completions.create(model=model, prompt=prompt, **GREEDY)
                self.assertEqual(text, whole.choices[0].text)
                answer = await client.chat.completions.create(
                    model=model, messages=[{"role": "user", "content": prompt}], **GREEDY)
                self.assertEqual(chat, answer.choices[0].message.content)


if __name__ == "__main__":
    unittest.main()
