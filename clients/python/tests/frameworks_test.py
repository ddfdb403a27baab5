"""Streaming prefill between agents through OpenAI's own package, against a real server."""

import asyncio
import unittest

import openai
from baton_client.frameworks import streaming_prefill, streaming_prefill_sync
from listener import TASKS, review, write
from serving import Keys, Server

MODEL = "tiny_llama3_bf16"
ANY_TEXT = {"model": MODEL, "temperature": 0, "max_tokens": 40, "extra_body": {"ignore_eos": True}}
def text_of(chunks):
    return "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)


class SyncTest(unittest.TestCase):
    def setUp(self):
        self.server = Server()
        self.addCleanup(lambda: self.server.kill())  # the one that is there then

    def client(self, key="none", **options):
        client = openai.OpenAI(base_url=f"{self.server.http}/v1", api_key=key, max_retries=0, timeout=None, **options)
        self.addCleanup(client.close)
        return client

    def talk(self, client, stream=False, key="none", waits=True):
        """Drafts, reviews, and how many tokens of each review's prompt were there. With `waits` a review is sent when its
        prefill ahead has ended, so that its cached tokens do not depend on how busy the machine is."""
        texts, cached = [], []
        for task in TASKS:
            if stream:
                draft = text_of(client.chat.completions.create(messages=write(task), stream=True, **ANY_TEXT))
            else:
                draft = client.chat.completions.create(messages=write(task), **ANY_TEXT).choices[0].message.content
            if waits:
                self.server.await_no_live_request(key)
            answer = client.chat.completions.create(messages=review(task, draft), **ANY_TEXT)
            texts += [draft, answer.choices[0].message.content]
            cached.append(answer.usage.prompt_tokens_details.cached_tokens)
        return texts, cached

    def test_answers_are_the_same_and_more_of_a_prompt_is_there(self):
        plain, found = self.talk(self.client())
        for stream in (False, True):
            self.server.kill()
            self.server = Server()
            texts, found_ahead = self.talk(self.client(http_client=streaming_prefill_sync()), stream)
            self.assertEqual(texts, plain)
            self.assertEqual(found_ahead[0], found[0])  # nobody knows yet
            task_tokens = len(TASKS[1])  # at least: a character is a token of the tiny model
            for ahead, before in zip(found_ahead[1:], found[1:]):
                self.assertGreater(ahead, before + task_tokens - 32)  # whole blocks of 16 only

    def test_agents_with_a_client_each_share_what_was_learned(self):
        for task in TASKS[:2]:
            draft = self.client(http_client=streaming_prefill_sync()).chat.completions.create(
                messages=write(task), **ANY_TEXT).choices[0].message.content
            self.server.await_no_live_request()
            answer = self.client(http_client=streaming_prefill_sync()).chat.completions.create(
                messages=review(task, draft), **ANY_TEXT)
        self.assertGreater(answer.usage.prompt_tokens_details.cached_tokens, len(TASKS[1]))

    def test_a_tenant_that_may_run_one_request_is_not_refused(self):
        self.server.kill()
        keys = Keys("max_requests = 1\noperator = true")
        self.addCleanup(keys.close)
        self.server = Server("--keys", keys.path)
        client = self.client(keys.key, http_client=streaming_prefill_sync())
        _, found = self.talk(client, key=keys.key)
        self.assertGreater(found[2], len(TASKS[2]))
        self.talk(client, waits=False)  # here a review may come while its prefill ahead still runs

    def test_other_calls_are_as_without_it(self):
        client = self.client(http_client=streaming_prefill_sync())
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

    def test_a_stream_that_is_not_read_to_its_end_teaches_nothing(self):
        client = self.client(http_client=streaming_prefill_sync())
        with client.chat.completions.create(messages=write(TASKS[0]), stream=True, **ANY_TEXT) as stream:
            next(iter(stream))
        self.assertTrue(self.talk(client)[0])


class AsyncTest(unittest.IsolatedAsyncioTestCase):
    async def talk(self, **options):
        """As above, with a server of its own, and two reviews side by side."""
        server = Server()
        self.addCleanup(server.kill)
        texts, cached = [], []
        async with openai.AsyncOpenAI(base_url=f"{server.http}/v1", api_key="none", max_retries=0, timeout=None,
                                      **options) as client:
            for task in TASKS:
                stream = await client.chat.completions.create(messages=write(task), stream=True, **ANY_TEXT)
                draft = text_of([chunk async for chunk in stream])
                answers = await asyncio.gather(*(
                    client.chat.completions.create(messages=review(f"{task} {side}", draft), **ANY_TEXT) for side in "ab"))
                texts += [draft, *(answer.choices[0].message.content for answer in answers)]
                cached.append(min(answer.usage.prompt_tokens_details.cached_tokens for answer in answers))
        return texts, cached

    async def test_answers_are_the_same_with_it(self):
        self.assertEqual((await self.talk(http_client=streaming_prefill()))[0], (await self.talk())[0])

    async def test_many_calls_side_by_side_are_all_answered(self):
        server = Server()
        self.addCleanup(server.kill)
        async with openai.AsyncOpenAI(base_url=f"{server.http}/v1", api_key="none", max_retries=0, timeout=None,
                                      http_client=streaming_prefill()) as client:
            draft = await client.chat.completions.create(messages=write(TASKS[0]), **ANY_TEXT)
            await client.chat.completions.create(messages=review(TASKS[0], draft.choices[0].message.content), **ANY_TEXT)
            answers = await asyncio.gather(*(
                client.chat.completions.create(messages=write(f"{TASKS[0]} {n}"), **ANY_TEXT) for n in range(100)))
        self.assertEqual(len(answers), 100)


if __name__ == "__main__":
    unittest.main()
