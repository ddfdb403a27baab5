"""Tests of prompts that wait for single choices of calls over HTTP, and for values over HTTP."""

import unittest

import grpc
from baton_client import BatonError, Client, Options, OutputOf, Sampling
from serving import Server, post

GREEDY = Sampling(temperature=0, repetition_penalty=1, max_tokens=8, ignore_eos=True)


class ChoicesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server()
        cls.addClassCleanup(cls.server.stop)

    def setUp(self):
        self.client = Client(self.server.grpc)
        self.addCleanup(self.client.close)
        # A reader that does not fail because of its upstream fails the test at the deadline.
        self.flow = self.client.workflow("w", Options(timeout=20))

    def readers(self, *ids):
        return [self.flow.agent("reader", OutputOf(id, announced=True), sampling=GREEDY) for id in ids]

    def root(self, run):
        with self.assertRaises(BatonError) as caught:
            run.result()
        return caught.exception.root

    def test_a_refused_call_ends_the_readers_of_all_its_choices(self):
        late = ["x", "too long " * 3000]
        for n, (fields, status, code) in enumerate((
                ({"n": 2, "top_p": 3}, 400, "INVALID_ARGUMENT"),
                ({"n": 2, "model": "nope"}, 404, "NOT_FOUND"),
                ({"prompt": ["x", "y"], "top_p": 3}, 400, "INVALID_ARGUMENT"),
                ({"n": 2, "max_tokens": 10 ** 6}, 400, "INVALID_ARGUMENT"),
                ({"prompt": late}, 400, "INVALID_ARGUMENT"))):
            with self.subTest(str(fields)[:60]):
                id = f"call-{n}"
                readers = self.readers(f"{id}-0", f"{id}-1")
                body = {"prompt": "x", "max_tokens": 400, "ignore_eos": True, "request_id": id, **fields}
                self.assertEqual(post(self.server, "/v1/completions", body), status)
                self.assertIsNotNone(self.root(self.readers(id)[0]))
                for choice, reader in enumerate(readers):
                    root = self.root(reader)
                    self.assertEqual((root.request_id, root.code.name), (f"{id}-{choice}", code))

    def test_a_call_whose_first_choice_is_refused_ends_the_readers_of_the_others(self):
        limited = self.client.workflow("limited", max_tokens=8)
        limited.agent("a", "x", sampling=GREEDY).result()
        readers = self.readers("capped-0", "capped-1")
        body = {"prompt": "x", "n": 2, "request_id": "capped"}
        self.assertEqual(post(self.server, "/v1/completions", body, {"x-workflow": limited.id}), 400)
        for reader in readers:
            self.assertIs(self.root(reader).code, grpc.StatusCode.FAILED_PRECONDITION)

    def test_the_id_of_a_call_is_no_choice_of_it(self):
        early = self.readers("pair")[0]
        body = {"prompt": "x", "n": 2, "max_tokens": 4, "request_id": "pair"}
        self.assertEqual(post(self.server, "/v1/completions", body), 200)
        for reader in (early, self.readers("pair")[0]):
            root = self.root(reader)
            self.assertIs(root.code, grpc.StatusCode.NOT_FOUND)
            self.assertEqual(root.message, "'pair' has 2 choices: expected one of 'pair-0' to 'pair-1'")
        self.readers("pair-1")[0].result()

    def test_a_call_with_too_many_choices_ends_their_readers(self):
        readers = self.readers("many", "many-0", "many-16")
        self.assertEqual(post(self.server, "/v1/completions", {"prompt": "x", "n": 17, "request_id": "many"}), 400)
        for reader in readers:
            self.assertIs(self.root(reader).code, grpc.StatusCode.INVALID_ARGUMENT)

    def test_a_malformed_value_ends_its_readers(self):
        for n, body in enumerate((b"not json", {"text": 7}, {"text": "x", "token_ids": [1]}, {})):
            [reader] = self.readers(f"value-{n}")
            self.assertEqual(post(self.server, f"/v1/outputs/value-{n}", body, {"x-workflow": self.flow.id}), 400)
            root = self.root(reader)
            self.assertEqual((root.request_id, root.code.name), (f"value-{n}", "INVALID_ARGUMENT"))


if __name__ == "__main__":
    unittest.main()
