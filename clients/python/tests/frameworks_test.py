"""Tests of streaming prefill between agents with OpenAI's own package and a real server."""

import asyncio
import unittest

import openai
from baton_client.frameworks import streaming_prefill, streaming_prefill_sync
from listener import DECLARED, TASKS, review, write
from serving import Keys, Server

MODEL = "tiny_llama3_bf16"
ANY_TEXT = {"model": MODEL, "temperature": 0, "max_tokens": 40, "extra_body": {"ignore_eos": True}}
PREFILLED = 'baton_followers_total{code="OK"}'


def text_of(chunks):
    return "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)


class SyncTest(unittest.TestCase):
    def setUp(self):
        self.server = Server()
        # A test may replace self.server.
        self.addCleanup(lambda: self.server.kill())

    def client(self, key="none", **options):
        client = openai.OpenAI(base_url=f"{self.server.http}/v1", api_key=key, max_retries=0, timeout=None, **options)
        self.addCleanup(client.close)
        return client

    def draft(self, client, task, stream=False, hinted=False, key="none"):
        """Returns the draft. With `hinted`, it repeats the call until a hint is prefilled.

        A server drops the hint of a call that ends before the prefill. Calls of the tiny model may
        end that soon on a busy machine."""
        before = self.server.metric(PREFILLED, key)
        for _ in range(50):
            if stream:
                draft = text_of(client.chat.completions.create(messages=write(task), stream=True, **ANY_TEXT))
            else:
                draft = client.chat.completions.create(messages=write(task), **ANY_TEXT).choices[0].message.content
            if not hinted:
                return draft
            self.server.await_no_live_request(key)
            if self.server.metric(PREFILLED, key) > before:
                return draft
        self.fail("no hint was prefilled")

    def talk(self, client, stream=False, hinted=False, key="none"):
        """Returns drafts and reviews, and the number of cached tokens of each review's prompt."""
        texts, cached = [], []
        for number, task in enumerate(TASKS):
            # The first call has no hint.
            draft = self.draft(client, task, stream, hinted and number > 0, key)
            answer = client.chat.completions.create(messages=review(task, draft), **ANY_TEXT)
            texts += [draft, answer.choices[0].message.content]
            cached.append(answer.usage.prompt_tokens_details.cached_tokens)
        return texts, cached

    def test_answers_are_the_same_and_more_of_a_prompt_is_cached(self):
        plain, found = self.talk(self.client())
        for stream in (False, True):
            self.server.kill()
            self.server = Server()
            texts, found_ahead = self.talk(self.client(http_client=streaming_prefill_sync(**DECLARED)), stream, True)
            self.assertEqual(texts, plain)
            # The first call of the critic has no hint before it.
            self.assertEqual(found_ahead[0], found[0])
            # Lower bound. A character is a token of the tiny model.
            task_tokens = len(TASKS[1])
            for ahead, before in zip(found_ahead[1:], found[1:]):
                # Only whole blocks of 16 tokens are cached.
                self.assertGreater(ahead, before + task_tokens - 32)

    def test_agents_with_a_client_each_share_their_memory(self):
        for number, task in enumerate(TASKS[:2]):
            draft = self.draft(self.client(http_client=streaming_prefill_sync(**DECLARED)), task, hinted=number > 0)
            answer = self.client(http_client=streaming_prefill_sync(**DECLARED)).chat.completions.create(
                messages=review(task, draft), **ANY_TEXT)
        self.assertGreater(answer.usage.prompt_tokens_details.cached_tokens, len(TASKS[1]))

    def test_a_tenant_that_may_run_one_request_is_not_refused(self):
        self.server.kill()
        keys = Keys("max_requests = 1\noperator = true")
        self.addCleanup(keys.close)
        self.server = Server("--keys", keys.path)
        client = self.client(keys.key, http_client=streaming_prefill_sync(**DECLARED))
        _, found = self.talk(client, hinted=True, key=keys.key)
        self.assertGreater(found[2], len(TASKS[2]))
        # A review may arrive while the server still prefills its hint.
        self.talk(client, key=keys.key)

    def test_other_calls_are_the_same_as_without_hints(self):
        client = self.client(http_client=streaming_prefill_sync(**DECLARED))
        self.talk(client)
        with self.assertRaises(openai.BadRequestError):
            client.chat.completions.create(messages="no list", **ANY_TEXT)
        self.assertEqual([model.id for model in client.models.list()], [MODEL])
        self.assertEqual(len(client.chat.completions.create(messages=write("x"), n=2, **ANY_TEXT).choices), 2)
        own = {"ignore_eos": True, "request_id": "mine"}
        client.chat.completions.create(messages=write("x"), **{**ANY_TEXT, "extra_body": own})
        reader = [{"role": "user", "content": [{"type": "output_of", "output_of": "mine"}]}]
        self.assertTrue(client.chat.completions.create(messages=reader, **ANY_TEXT).choices[0].message.content)
        self.server.kill()
        with self.assertRaises(openai.APIConnectionError):
            client.chat.completions.create(messages=write("The sea"), **ANY_TEXT)

    def test_a_stream_that_is_not_read_to_its_end_harms_no_later_call(self):
        client = self.client(http_client=streaming_prefill_sync(**DECLARED))
        with client.chat.completions.create(messages=write(TASKS[0]), stream=True, **ANY_TEXT) as stream:
            next(iter(stream))
        self.assertTrue(self.talk(client)[0])


class AsyncTest(unittest.IsolatedAsyncioTestCase):
    async def talk(self, **options):
        """Starts a server and asks for drafts, and for two reviews of each draft at the same time.

        Returns the texts."""
        server = Server()
        self.addCleanup(server.kill)
        texts = []
        async with openai.AsyncOpenAI(base_url=f"{server.http}/v1", api_key="none", max_retries=0, timeout=None,
                                      **options) as client:
            for task in TASKS:
                stream = await client.chat.completions.create(messages=write(task), stream=True, **ANY_TEXT)
                draft = text_of([chunk async for chunk in stream])
                answers = await asyncio.gather(*(
                    client.chat.completions.create(messages=review(f"{task} {side}", draft), **ANY_TEXT) for side in "ab"))
                texts += [draft, *(answer.choices[0].message.content for answer in answers)]
        return texts

    async def test_answers_are_the_same_with_hints(self):
        self.assertEqual(await self.talk(http_client=streaming_prefill(**DECLARED)), await self.talk())

    async def test_many_calls_side_by_side_are_all_answered(self):
        server = Server()
        self.addCleanup(server.kill)
        async with openai.AsyncOpenAI(base_url=f"{server.http}/v1", api_key="none", max_retries=0, timeout=None,
                                      http_client=streaming_prefill(**DECLARED)) as client:
            draft = await client.chat.completions.create(messages=write(TASKS[0]), **ANY_TEXT)
            await client.chat.completions.create(messages=review(TASKS[0], draft.choices[0].message.content), **ANY_TEXT)
            answers = await asyncio.gather(*(
                client.chat.completions.create(messages=write(f"{TASKS[0]} {n}"), **ANY_TEXT) for n in range(100)))
        self.assertEqual(len(answers), 100)


if __name__ == "__main__":
    unittest.main()
