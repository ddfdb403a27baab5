"""Tests of streaming prefill with a server that only records requests.

They check the requests, the records of earlier calls, and that hints never make a call fail."""

import asyncio
import io
import json
import os
import pickle
import ssl
import unittest
import warnings
from unittest import mock

import openai
from baton_client import frameworks
from baton_client.agent_edges import CallMemory
from baton_client.frameworks import Header, SystemStart, streaming_prefill, streaming_prefill_sync
from listener import DECLARED, TASKS, Listener, review, write


class ListenerCase(unittest.TestCase):
    def setUp(self):
        patch = mock.patch.object(frameworks, "_scopes", frameworks._Scopes())
        self.scopes = patch.start()
        self.addCleanup(patch.stop)

    def listener(self, **options):
        listener = Listener(**options)
        self.addCleanup(listener.stop)
        return listener

    def client(self, listener, key="none", **options):
        options = {"http_client": streaming_prefill_sync(**DECLARED), **options}
        client = openai.OpenAI(base_url=listener.url, api_key=key, max_retries=0, **options)
        self.addCleanup(client.close)
        return client

    def talk(self, listener, client, tasks=TASKS, **fields):
        """Returns the bodies that the listener got for a draft and a review of each task."""
        before = len(listener.bodies)
        fields = {"model": "m", **fields}
        for task in tasks:
            answer = client.chat.completions.create(messages=write(task), **fields)
            draft = (answer.choices[0].message.content if not fields.get("stream")
                     else "".join(chunk.choices[0].delta.content for chunk in answer))
            list(client.chat.completions.create(messages=review(task, draft), **fields))
        return listener.bodies[before:]

    def followers(self, bodies):
        return [len(json.loads(body).get("followers", [])) for body in bodies]


class SentTest(ListenerCase):
    def test_a_server_without_the_header_gets_the_same_bytes_and_nothing_is_kept(self):
        listener = self.listener()
        with mock.patch.object(frameworks._HintedChat, "_body") as body:
            ahead = self.talk(listener, self.client(listener))
        self.assertFalse(body.called)
        self.assertFalse(self.scopes._scopes)
        listener.bodies.clear()
        self.assertEqual(ahead, self.talk(listener, self.client(listener, http_client=None)))

    def test_a_server_with_the_header_gets_hints(self):
        listener = self.listener(limit=4)
        bodies = self.talk(listener, self.client(listener))
        self.assertEqual(self.followers(bodies), [0, 0, 1, 0, 1, 0])
        sent = json.loads(bodies[2])
        self.assertEqual(sent.pop("followers")[0]["messages"][-1], {"role": "user", "content": [{"type": "output"}]})
        self.assertEqual(sent, {"model": "m", "messages": write(TASKS[1])})

    def test_a_chat_that_no_declared_agent_recognises_is_sent_untouched_and_not_kept(self):
        listener = self.listener(limit=4)
        client = self.client(listener)
        self.talk(listener, client)
        before, kept = len(listener.bodies), len(self.scopes._scopes)
        other = [{"role": "system", "content": "You translate."}, {"role": "user", "content": TASKS[0]}]
        for http_client in (client, self.client(listener, http_client=None)):
            http_client.chat.completions.create(model="m", messages=other, extra_body={"cache_salt": "new"})
        self.assertEqual(*listener.bodies[before:])
        self.assertEqual(len(self.scopes._scopes), kept)

    def test_a_chat_with_followers_of_its_own_or_several_choices_gets_no_hints(self):
        listener = self.listener(limit=4)
        client = self.client(listener)
        self.talk(listener, client)
        before = len(listener.bodies)
        for fields in ({"n": 2}, {"extra_body": {"followers": []}}):
            client.chat.completions.create(model="m", messages=write(TASKS[0]), **fields)
        self.assertEqual(self.followers(listener.bodies[before:]), [0, 0])

    def test_answers_with_tool_calls_or_reasoning_are_not_followed(self):
        tool_call = {"index": 0, "id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        for fields in ({"tool_calls": [tool_call]}, {"reasoning_content": "Hm."}):
            for stream in (False, True):
                listener = self.listener(limit=4)
                listener.fields = fields
                bodies = self.talk(listener, self.client(listener), **({"stream": True} if stream else {}))
                self.assertEqual(self.followers(bodies), [0] * 6, (fields, stream))

    def test_a_server_gets_no_more_hints_than_its_header_allows(self):
        declared = {"agents": {**DECLARED["agents"], "editor": SystemStart("You edit")},
                    "edges": {"writer": ["critic", "editor"]}}
        for limit, hints in ((1, 1), (2, 2)):
            listener = self.listener(limit=limit)
            client = self.client(listener, http_client=streaming_prefill_sync(**declared))
            for task in TASKS[:2]:
                self.talk(listener, client, [task])
                edit = [{"role": "system", "content": "You edit."}, json.loads(listener.bodies[-1])["messages"][-1]]
                client.chat.completions.create(model="m", messages=edit)
            self.assertEqual(self.followers(listener.bodies)[3], hints)

    def test_agents_are_recognised_by_a_header_and_share_a_memory(self):
        declared = {"agents": {name: Header("X-Agent", name) for name in ("writer", "critic")},
                    "edges": {"writer": ["critic"]}}
        for name, hints in (("writer", 1), ("other", 0)):
            listener = self.listener(limit=4)
            clients = [self.client(listener, http_client=streaming_prefill_sync(**declared),
                                   default_headers={"x-agent": agent}) for agent in (name, "critic")]
            for task in TASKS[:2]:
                draft = clients[0].chat.completions.create(model="m", messages=[{"role": "user", "content": task}])
                clients[1].chat.completions.create(model="m", messages=[
                    {"role": "user", "content": f"Review: {draft.choices[0].message.content}"}])
            self.assertEqual(self.followers(listener.bodies), [0, 0, hints, 0], name)

    def test_the_header_may_have_any_value(self):
        for limit, followers in ((5, 1), (99_999, 1), (1, 1), (0, 0), ("", 0), ("-1", 0), ("four", 0), ("9" * 99, 0)):
            listener = self.listener(limit=limit)
            self.assertEqual(self.followers(self.talk(listener, self.client(listener)))[2], followers, limit)

    def test_a_server_that_drops_the_header_gets_no_hints_and_its_memory_is_dropped(self):
        listener = self.listener(limit=4)
        client = self.client(listener)
        self.talk(listener, client)
        self.assertTrue(self.scopes._scopes)
        listener.limit = None
        self.talk(listener, client, TASKS[:1])
        self.assertFalse(self.scopes._scopes)
        self.assertEqual(self.followers(self.talk(listener, client, TASKS[:1])), [0, 0])

    def test_compressed_and_streamed_answers_are_remembered(self):
        for encoding in (None, "gzip", "deflate"):
            for stream in (False, True):
                listener = self.listener(limit=4, encoding=encoding)
                fields = {"stream": True} if stream else {}
                bodies = self.talk(listener, self.client(listener), **fields)
                self.assertEqual(self.followers(bodies), [0, 0, 1, 0, 1, 0], (encoding, stream))

    def test_raw_answers_that_are_read_later_are_remembered(self):
        listener = self.listener(limit=4)
        client = self.client(listener)
        for task in TASKS[:2]:
            with client.chat.completions.with_streaming_response.create(model="m", messages=write(task)) as response:
                draft = response.parse().choices[0].message.content
                self.assertTrue(pickle.loads(pickle.dumps(response.http_response)).content)
            client.chat.completions.create(model="m", messages=review(task, draft))
        self.assertEqual(self.followers(listener.bodies), [0, 0, 1, 0])

    def test_proxies_of_the_environment_are_used_as_httpx_does(self):
        proxy = self.listener(limit=4)
        with mock.patch.dict(os.environ, {"http_proxy": proxy.url[:-3], "no_proxy": "127.0.0.1"}):
            proxy.url = "http://baton.invalid/v1"
            self.assertEqual(self.followers(self.talk(proxy, self.client(proxy))), [0, 0, 1, 0, 1, 0])
            self.assertEqual(set(proxy.paths), {"http://baton.invalid/v1/chat/completions"})
            direct = self.listener(limit=4)
            self.talk(direct, self.client(direct))
            self.assertEqual(len(direct.bodies), 6)

    def test_hints_are_not_sent_to_the_target_of_a_redirect(self):
        other, listener = self.listener(), self.listener(limit=4)
        client = self.client(listener)
        self.talk(listener, client)
        listener.redirects_to = f"{other.url}/chat/completions"
        bodies = self.talk(other, client)
        self.assertEqual(self.followers(bodies), [0] * 6)


class ApartTest(ListenerCase):
    def setUp(self):
        super().setUp()
        self.baton = self.listener(limit=4)
        self.http_client = streaming_prefill_sync(**DECLARED)
        self.ann = {"user": "ann", "extra_body": {"cache_salt": "a"}, "extra_headers": {"api-key": "ann"}}
        self.talk(self.baton, self.client(self.baton, http_client=self.http_client), **self.ann)

    def knows(self, client=None, **fields):
        """Returns whether the client uses the records of the first calls."""
        client = client or self.client(self.baton, http_client=self.http_client)
        bodies = self.talk(self.baton, client, TASKS[:1], **{**self.ann, **fields})
        return self.followers(bodies) == [1, 0]

    def test_by_key_and_base_url(self):
        self.assertTrue(self.knows())
        # Another client of the process.
        self.assertTrue(self.knows(self.client(self.baton)))
        self.assertFalse(self.knows(self.client(self.baton, "other", http_client=self.http_client)))
        self.baton.url = self.baton.url.replace("/v1", "/v2")
        self.assertFalse(self.knows())

    def test_by_every_header_that_may_identify_a_caller(self):
        for name in ("api-key", "x-api-key", "Cookie", "OpenAI-Organization", "OpenAI-Project", "X-Forwarded-User", "X-Any",
                     "User-Agent"):
            self.assertFalse(self.knows(extra_headers={"api-key": "ann", name: "bob"}), name)
        # These headers identify calls, and not callers.
        for name in ("traceparent", "x-stainless-retry-count"):
            self.assertTrue(self.knows(extra_headers={"api-key": "ann", name: "1"}), name)

    def test_by_fields_that_identify_a_caller_and_by_session_and_model(self):
        for fields in ({"user": "bob"}, {"extra_body": {"cache_salt": "b"}}, {"extra_body": {}},
                       {"extra_body": {"cache_salt": "a", "session_id": "s"}}, {"safety_identifier": "bob"},
                       {"model": "other"}, {"prompt_cache_key": "bob"}, {"metadata": {"of": "bob"}}):
            self.assertFalse(self.knows(**fields), fields)

    def test_by_options_of_the_client(self):
        client = self.client(self.baton, http_client=streaming_prefill_sync(**DECLARED, verify=False))
        self.assertFalse(self.knows(client))
        # The client uses its own records.
        self.assertTrue(self.knows(client))

    def test_by_declaration(self):
        declared = {**DECLARED, "edges": {"writer": ["critic"], "critic": ["writer"]}}
        self.assertFalse(self.knows(self.client(self.baton, http_client=streaming_prefill_sync(**declared))))

    def test_where_httpx_may_identify_the_caller_later_calls_are_left_alone(self):
        def hook(request):
            request.headers["x-user"] = "bob"

        options = ({"auth": ("bob", "secret")}, {"event_hooks": {"request": [hook]}},
                   {"event_hooks": {"response": [lambda _: None]}})
        for option in options:
            client = self.client(self.baton, http_client=streaming_prefill_sync(**DECLARED, **option))
            self.assertEqual(self.followers(self.talk(self.baton, client, **self.ann)), [0] * 6)
        self.assertEqual(len(self.scopes._scopes), 1)

    def test_the_latest_few_only_are_kept(self):
        for number in range(frameworks._KEPT_SCOPES + 10):
            self.knows(user=f"number {number}")
        self.assertLessEqual(len(self.scopes._scopes), frameworks._KEPT_SCOPES)
        for number in range(100):
            self.scopes.pause_hints(f"http://{number}")
        self.assertLessEqual(len(self.scopes._paused_until), frameworks._KEPT_PAUSES)


class DeclarationTest(ListenerCase):
    def test_a_malformed_declaration_is_refused(self):
        for make in (streaming_prefill, streaming_prefill_sync):
            for agents, edges in (({}, {}), (DECLARED["agents"], None), (None, DECLARED["edges"]),
                                  (DECLARED["agents"], {"writer": ["editor"]})):
                with self.assertRaises(ValueError):
                    make(agents=agents, edges=edges)

    def test_a_call_without_a_declaration_warns_and_sends_no_hints(self):
        for make in (streaming_prefill, streaming_prefill_sync):
            with self.assertWarnsRegex(DeprecationWarning, r"use streaming_prefill\(agents=\{") as caught:
                http_client = make(timeout=7)
            self.assertEqual(caught.filename, __file__)
            self.assertEqual(http_client.timeout.read, 7)
        listener = self.listener(limit=4)
        self.assertEqual(self.followers(self.talk(listener, self.client(listener, http_client=http_client))), [0] * 6)

    def test_a_call_with_a_declaration_does_not_warn(self):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self.client(self.listener(), http_client=streaming_prefill_sync(**DECLARED))
        self.assertEqual(caught, [])


class HarmlessTest(ListenerCase):
    def test_chat_is_sent_without_hints_after_refusal(self):
        for status in (400, 404, 405, 413, 422, 451, 500, 0):
            listener = self.listener(limit=4, refuses=status)
            client = self.client(listener)
            bodies = self.talk(listener, client, [*TASKS, *TASKS])
            self.assertEqual(self.followers(bodies), [0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], status)
            self.assertEqual(json.loads(bodies[3]), {"model": "m", "messages": write(TASKS[1])})
            listener.refuses = None
            with mock.patch.object(frameworks.time, "monotonic", return_value=frameworks.time.monotonic() + 3600):
                self.assertEqual(self.followers(self.talk(listener, client, TASKS[:1])), [1, 0])

    def test_a_chat_that_fails_with_hints_but_by_a_timeout_is_sent_without(self):
        class Transport(frameworks.httpx.HTTPTransport):
            def handle_request(self, request):
                if b'"followers"' in request.content:
                    raise failure
                return super().handle_request(request)

        def client():
            return self.client(listener, http_client=streaming_prefill_sync(**DECLARED, transport=Transport()))

        listener = self.listener(limit=4)
        for failure in (ssl.SSLError("broken"), frameworks.httpx.DecodingError("broken")):
            self.talk(listener, client())
            self.scopes._paused_until.clear()
        failure = frameworks.httpx.ReadTimeout("late")
        with self.assertRaises(openai.APITimeoutError):
            self.talk(listener, client())
        self.assertEqual(self.followers(listener.bodies), [0] * (6 + 6 + 2))

    def test_refusals_of_a_caller_reach_it_at_once(self):
        for status in (401, 403, 408, 429, 503):
            listener = self.listener(limit=4, refuses=status)
            client = self.client(listener)
            with self.assertRaises(openai.APIStatusError) as caught:
                self.talk(listener, client)
            self.assertEqual(caught.exception.status_code, status)
            self.assertEqual(self.followers(listener.bodies), [0, 0, 1])
            self.assertEqual(self.followers(self.talk(listener, client, TASKS[:1])), [0, 0])

    def test_a_chat_that_is_refused_with_and_without_hints_stops_no_later_hints(self):
        listener = self.listener(limit=4)
        client = self.client(listener)
        self.talk(listener, client)
        before = len(listener.bodies)
        with self.assertRaises(openai.BadRequestError) as caught:
            client.chat.completions.create(model="m", messages=write("x"), top_p=2)
        self.assertEqual(caught.exception.param, "top_p")
        self.assertEqual(self.followers(listener.bodies[before:]), [1, 0])
        self.assertEqual(self.followers(self.talk(listener, client, TASKS[:1])), [1, 0])

    def test_answers_and_chats_of_any_shape_go_through(self):
        listener = self.listener(limit=4)
        listener.answer = [{"odd": True}]
        client = self.client(listener)
        frameworks._logged.clear()
        with self.assertNoLogs(frameworks._log, "DEBUG"):
            for messages in (["odd"], {"odd": 1}, 7, [{"role": ["odd"], "content": "x"}],
                             [{"role": "system", "content": [1]}]):
                answer = client.chat.completions.create(model="m", messages=messages)
                self.assertEqual(answer.choices[0].message.content, listener.answer)
        client.chat.completions.create(model=["odd"], messages=write("x"))

    def test_own_failures_are_logged_once_and_harm_no_call(self):
        for name in ("begin", "end"):
            listener = self.listener(limit=4)
            frameworks._logged.clear()
            failing = mock.patch.object(CallMemory, name, side_effect=ZeroDivisionError)
            with failing, self.assertLogs(frameworks._log, "DEBUG") as logs:
                for fields in ({}, {"stream": True}):
                    bodies = self.talk(listener, self.client(listener), **fields)
                    self.assertEqual(self.followers(bodies), [0] * 6)
            self.assertEqual(len(logs.records), 1)

    def test_bodies_that_are_not_short_chats_are_not_read(self):
        listener = self.listener(limit=4)
        client = self.client(listener)
        self.talk(listener, client)

        def send(**body):
            return client._client.send(client._client.build_request("POST", f"{listener.url}/chat/completions", **body))

        pieces = iter([b'{"model":"m",', b'"messages":[]}'])
        chat = {"content-type": "application/json", "content-length": "27"}
        with mock.patch.object(frameworks, "_HintedChat", side_effect=AssertionError) as watched:
            client.files.create(file=io.BytesIO(b"x" * 1000), purpose="user_data")
            client.embeddings.create(model="m", input="x", encoding_format="float")
            client.chat.completions.create(model="m", messages=write("x" * (1 << 18)))
            send(files={"file": b"x"})
            self.assertFalse(watched.called)
        with mock.patch.object(frameworks.httpx.Request, "read") as read:
            answer = send(content=pieces, headers=chat)
            self.assertFalse(read.called)
        self.assertEqual((answer.status_code, listener.bodies[-1]), (200, b'{"model":"m","messages":[]}'))


class AsyncTest(ListenerCase, unittest.IsolatedAsyncioTestCase):
    async def test_hints_and_refusals_are_the_same_with_asyncio(self):
        for stream in (False, True):
            listener = await asyncio.to_thread(self.listener, limit=4, refuses=422, encoding="gzip")
            async with openai.AsyncOpenAI(base_url=listener.url, api_key="none", max_retries=0,
                                          http_client=streaming_prefill(**DECLARED)) as client:
                for task in TASKS:
                    answer = await client.chat.completions.create(model="m", messages=write(task), stream=stream)
                    draft = (answer.choices[0].message.content if not stream
                             else "".join([chunk.choices[0].delta.content async for chunk in answer]))
                    await client.chat.completions.create(model="m", messages=review(task, draft))
            self.assertEqual(self.followers(listener.bodies), [0, 0, 1, 0, 0, 0, 0])

    async def test_a_server_that_hangs_up_on_hints_gets_the_chat_without(self):
        listener = await asyncio.to_thread(self.listener, limit=4, refuses=0)
        async with openai.AsyncOpenAI(base_url=listener.url, api_key="none", max_retries=0,
                                      http_client=streaming_prefill(**DECLARED)) as client:
            for task in TASKS:
                answer = await client.chat.completions.create(model="m", messages=write(task))
                await client.chat.completions.create(model="m", messages=review(task, answer.choices[0].message.content))
        self.assertEqual(self.followers(listener.bodies), [0, 0, 1, 0, 0, 0, 0])


if __name__ == "__main__":
    unittest.main()
