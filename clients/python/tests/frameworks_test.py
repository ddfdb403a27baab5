"""Streaming prefill between agents through OpenAI's own package, against a real server, and one that only listens."""

import asyncio
import http.server
import json
import threading
import unittest

import openai
from baton_client.frameworks import streaming_prefill, streaming_prefill_sync
from serving import Keys, Server

MODEL = "tiny_llama3_bf16"
ANY_TEXT = {"model": MODEL, "temperature": 0, "max_tokens": 40, "extra_body": {"ignore_eos": True}}
TASKS = [f"Write about the {subject}, {'and its beauty, ' * 4}please." for subject in ("sea", "moon", "city")]


def write(task):
    return [{"role": "system", "content": "You write."}, {"role": "user", "content": task}]


def review(task, draft):
    return [{"role": "system", "content": "You review."}, {"role": "user", "content": task},
            {"role": "user", "content": draft}]


def text_of(chunks):
    return "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)


class Listener(http.server.ThreadingHTTPServer):
    """A server of chats that keeps their bodies. `limit`: of followers, as it tells it; None: it is not Baton's. `takes`: they
    are not refused."""

    def __init__(self, limit=None, takes=True):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.limit, self.takes, self.answer, self.bodies = limit, takes, None, []
        self.url = f"http://127.0.0.1:{self.server_port}/v1"
        self._thread = threading.Thread(target=self.serve_forever)
        self._thread.start()

    def stop(self):
        self.shutdown()
        self._thread.join()
        self.server_close()


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.bodies.append(body)
        if b'"top_p": 2' in body or b'"top_p":2' in body:
            return self._answer(400, {"error": {"message": "top_p", "param": "top_p"}})
        if b"followers" in body and not self.server.takes:
            return self._answer(400, {"error": {"message": "no", "param": "followers[0].messages"}})
        content = self.server.answer or f"This is answer {len(self.server.bodies)}."
        self._answer(200, {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [
            {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": content}}]})

    def _answer(self, status, answer):
        body = json.dumps(answer).encode()
        self.send_response(status)
        if self.server.limit is not None:
            self.send_header("x-baton-followers", str(self.server.limit))
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class ListenerTest(unittest.TestCase):
    def listener(self, **options):
        listener = Listener(**options)
        self.addCleanup(listener.stop)
        return listener

    def client(self, listener, key="none", **options):
        client = openai.OpenAI(base_url=listener.url, api_key=key, max_retries=0, **options)
        self.addCleanup(client.close)
        return client

    def talk(self, listener, client, tasks=TASKS, **fields):
        """What was sent, but for what is learned: bodies."""
        before = len(listener.bodies)
        for task in tasks:
            draft = client.chat.completions.create(model="m", messages=write(task), **fields).choices[0].message.content
            client.chat.completions.create(model="m", messages=review(task, draft), **fields)
        return listener.bodies[before:]

    def followers(self, bodies):
        return [len(json.loads(body).get("followers", [])) for body in bodies]

    def test_a_server_of_others_gets_what_it_would_get_without(self):
        listener = self.listener()
        ahead = self.talk(listener, self.client(listener, http_client=streaming_prefill_sync()))
        listener.bodies.clear()
        self.assertEqual(ahead, self.talk(listener, self.client(listener)))

    def test_a_server_that_says_so_is_told_what_follows(self):
        listener = self.listener(limit=4)
        bodies = self.talk(listener, self.client(listener, http_client=streaming_prefill_sync()))
        self.assertEqual(self.followers(bodies), [0, 0, 1, 0, 1, 0])
        sent = json.loads(bodies[2])
        self.assertEqual(sent.pop("followers")[0]["messages"][-1], {"role": "user", "content": [{"type": "output"}]})
        self.assertEqual(sent, {"model": "m", "messages": write(TASKS[1])})

    def test_what_was_learned_stays_with_the_key_the_salt_and_the_user(self):
        listener = self.listener(limit=4)
        options = {"http_client": streaming_prefill_sync()}
        self.talk(listener, self.client(listener, **options), extra_body={"cache_salt": "a"}, user="ann")
        for key, salt, user in (("none", "b", "ann"), ("none", "a", "bob"), ("other", "a", "ann")):
            client = self.client(listener, key, **options)
            bodies = self.talk(listener, client, TASKS[:1], extra_body={"cache_salt": salt}, user=user)
            self.assertEqual(self.followers(bodies), [0, 0], (key, salt, user))
        bodies = self.talk(listener, self.client(listener, **options), TASKS[:1], extra_body={"cache_salt": "a"}, user="ann")
        self.assertEqual(self.followers(bodies), [1, 0])

    def test_where_followers_are_refused_the_chat_is_sent_as_it_was_and_soon_without_any(self):
        listener = self.listener(limit=4, takes=False)
        bodies = self.talk(listener, self.client(listener, http_client=streaming_prefill_sync()), [*TASKS, *TASKS])
        self.assertEqual(sum(self.followers(bodies)), 2)
        self.assertEqual(len(bodies), 12 + 2)

    def test_other_errors_are_the_callers(self):
        listener = self.listener(limit=4)
        client = self.client(listener, http_client=streaming_prefill_sync())
        self.talk(listener, client)
        before = len(listener.bodies)
        with self.assertRaises(openai.BadRequestError) as caught:
            client.chat.completions.create(model="m", messages=write("x"), top_p=2)
        self.assertEqual(caught.exception.param, "top_p")
        self.assertEqual(self.followers(listener.bodies[before:]), [1])

    def test_answers_and_chats_of_any_shape_go_through(self):
        listener = self.listener(limit=4)
        listener.answer = [{"odd": True}]
        client = self.client(listener, http_client=streaming_prefill_sync())
        for messages in (["odd"], {"odd": 1}, [{"role": ["odd"], "content": "x"}], [{"role": "system", "content": [1]}]):
            answer = client.chat.completions.create(model="m", messages=messages)
            self.assertEqual(answer.choices[0].message.content, listener.answer)
        client.chat.completions.create(model=["odd"], messages=write("x"))

    def test_a_server_that_takes_none_any_more_is_told_none(self):
        listener = self.listener(limit=4)
        client = self.client(listener, http_client=streaming_prefill_sync())
        self.talk(listener, client)
        listener.limit = None
        self.talk(listener, client, TASKS[:1])
        self.assertEqual(self.followers(self.talk(listener, client, TASKS[:1])), [0, 0])


class SyncTest(unittest.TestCase):
    def setUp(self):
        self.server = Server()
        self.addCleanup(lambda: self.server.kill())  # the one that is there then

    def client(self, key="none", **options):
        client = openai.OpenAI(base_url=f"{self.server.http}/v1", api_key=key, max_retries=0, **options)
        self.addCleanup(client.close)
        return client

    def talk(self, client, stream=False):
        """Drafts, reviews, and how many tokens of each review's prompt were there."""
        texts, cached = [], []
        for task in TASKS:
            if stream:
                draft = text_of(client.chat.completions.create(messages=write(task), stream=True, **ANY_TEXT))
            else:
                draft = client.chat.completions.create(messages=write(task), **ANY_TEXT).choices[0].message.content
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
            answer = self.client(http_client=streaming_prefill_sync()).chat.completions.create(
                messages=review(task, draft), **ANY_TEXT)
        self.assertGreater(answer.usage.prompt_tokens_details.cached_tokens, len(TASKS[1]))

    def test_a_tenant_that_may_run_one_request_is_not_refused(self):
        self.server.kill()
        keys = Keys("max_requests = 1")
        self.addCleanup(keys.close)
        self.server = Server("--keys", keys.path)
        _, found = self.talk(self.client(keys.key, http_client=streaming_prefill_sync()))
        self.assertGreater(found[2], len(TASKS[2]))

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
        async with openai.AsyncOpenAI(base_url=f"{server.http}/v1", api_key="none", max_retries=0, **options) as client:
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
        async with openai.AsyncOpenAI(base_url=f"{server.http}/v1", api_key="none", max_retries=0,
                                      http_client=streaming_prefill()) as client:
            draft = await client.chat.completions.create(messages=write(TASKS[0]), **ANY_TEXT)
            await client.chat.completions.create(messages=review(TASKS[0], draft.choices[0].message.content), **ANY_TEXT)
            answers = await asyncio.wait_for(asyncio.gather(*(
                client.chat.completions.create(messages=write(f"{TASKS[0]} {n}"), **ANY_TEXT) for n in range(100))), 60)
        self.assertEqual(len(answers), 100)


if __name__ == "__main__":
    unittest.main()
