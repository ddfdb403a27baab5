"""Tests that requests which wait for outputs take no place that their upstream requests need."""

import time
import unittest

import grpc
from baton_client import BatonError, Client, Sampling, TokenIds
from serving import Keys, Server

GREEDY = Sampling(temperature=0, repetition_penalty=1, max_tokens=8, ignore_eos=True)
# Special tokens of the tiny model. An output in a prompt does not contain them.
SPECIAL = {0, 1}


class WaitingTest(unittest.TestCase):
    def serve(self, *flags):
        server = Server(*flags)
        self.addCleanup(server.stop)
        return server

    def connect(self, server, key=None):
        client = Client(server.grpc, api_key=key)
        self.addCleanup(client.close)
        return client

    def serve_with_keys(self, limits):
        keys = Keys(f"operator = true\n{limits}")
        self.addCleanup(keys.close)
        server = self.serve("--keys", keys.path)
        return server, self.connect(server, keys.key), keys.key

    def await_waiting(self, server, count, key="none"):
        """Waits until `count` requests of the server wait for outputs."""
        while server.metric('baton_waiting_prompts{for="outputs"}', key) != count:
            time.sleep(0.01)

    def assert_nothing_waits(self, server, key="none"):
        server.await_no_live_request(key)
        for what in ("outputs", "slot"):
            self.assertEqual(server.metric(f'baton_waiting_prompts{{for="{what}"}}', key), 0)

    def test_four_readers_before_their_upstream_fill_no_slot(self):
        server = self.serve("--max-requests", "4")
        flow = self.connect(server).workflow("w")
        upstream = flow.announce("upstream")
        readers = [flow.agent("reader", "Read ", upstream, f" {n}", sampling=GREEDY) for n in range(4)]
        self.await_waiting(server, 4)
        written = flow.agent(upstream, "Write", sampling=GREEDY).result()
        read = [reader.result().token_ids for reader in readers]
        # The readers have all four slots until they end.
        server.await_no_live_request()
        output = TokenIds([id for id in written.token_ids if id not in SPECIAL])
        for n, tokens in enumerate(read):
            alone = flow.agent("alone", "Read ", output, f" {n}", sampling=GREEDY)
            self.assertEqual(tokens, alone.result().token_ids)
        self.assert_nothing_waits(server)

    def test_waiting_requests_have_a_limit_of_their_own(self):
        server = self.serve("--max-requests", "2", "--max-waiting", "3")
        flow = self.connect(server).workflow("w")
        upstream = flow.announce("upstream")
        readers = [flow.agent("reader", upstream, sampling=GREEDY) for _ in range(3)]
        self.await_waiting(server, 3)
        with self.assertRaises(BatonError) as caught:
            flow.agent("reader", upstream, sampling=GREEDY).result()
        self.assertIs(caught.exception.code, grpc.StatusCode.RESOURCE_EXHAUSTED)
        self.assertIn("limit 3 (--max-waiting)", caught.exception.message)
        flow.agent(upstream, "Write", sampling=GREEDY)
        for reader in readers:
            self.assertEqual(reader.result().finish_reason, "length")
        self.assert_nothing_waits(server)

    def test_a_map_reduce_of_3_and_1_runs_under_a_quota_of_3(self):
        server, client, key = self.serve_with_keys("max_requests = 3")
        for reducer_first in (True, False):
            with self.subTest(reducer_first=reducer_first):
                flow = client.workflow("map-reduce")
                maps = [flow.announce(f"map{n}") for n in range(3)]
                reduce = flow.agent("reduce", *maps, sampling=GREEDY) if reducer_first else None
                self.await_waiting(server, int(reducer_first), key)
                runs = [flow.agent(part, f"Part {n}", sampling=GREEDY) for n, part in enumerate(maps)]
                reduce = reduce or flow.agent("reduce", *runs, sampling=GREEDY)
                self.assertEqual(reduce.result().finish_reason, "length")
                self.assertEqual([run.result().finish_reason for run in runs], ["length"] * 3)
                self.assert_nothing_waits(server, key)

    def test_a_waiting_graph_reserves_no_output_tokens(self):
        # Eight outputs of 500 tokens would use up the quota at once.
        server, client, key = self.serve_with_keys("tokens_per_minute = 4000")
        flow = client.workflow("w")
        upstream = flow.announce("upstream")
        readers = [flow.agent("reader", upstream, sampling=Sampling(max_tokens=500)) for _ in range(8)]
        self.await_waiting(server, 8, key)
        self.assertEqual(flow.agent(upstream, "Write", sampling=GREEDY).result().finish_reason, "length")
        for reader in readers:
            reader.cancel()
        self.assert_nothing_waits(server, key)


if __name__ == "__main__":
    unittest.main()
