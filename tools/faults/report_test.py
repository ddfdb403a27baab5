import unittest

from faults import report
from faults.cluster import growth_mb_per_minute, slope
from faults.load import Answer
from faults.schedule import Fault, named


def answer(begun, first, ended, **fields):
    return Answer(fields.pop("kind", "plain"), tokens=[1], begun=begun, first=first, ended=ended, **fields)


class ReportTest(unittest.TestCase):
    def test_percentiles_are_of_the_nearest_rank(self):
        values = [i / 1000 for i in range(1, 101)]
        self.assertEqual(report.percentile(values, 0.5), 51)
        self.assertEqual(report.percentile(values, 0.99), 100)
        self.assertEqual(report.percentile(values, 1), 100)
        self.assertIsNone(report.percentile([], 0.5))

    def test_latencies_leave_out_answers_that_failed(self):
        found = report.latencies([answer(1, 2, 4), answer(1, 9, 9, error="lost")])
        self.assertEqual(found["requests"], 1)
        self.assertEqual(found["ttft_max_ms"], 1000)
        self.assertEqual(found["whole_max_ms"], 3000)

    def test_requests_are_split_by_whether_they_ran_when_a_fault_began(self):
        early, during, soon, late = answer(0, 1, 2), answer(4, 5, 6), answer(6, 7, 8), answer(7, 8, 9)
        running, sent, others = report.split([early, during, soon, late], [Fault("kill:decode", 5.5)])
        self.assertEqual(running, [during])
        self.assertEqual(sent, [soon])
        self.assertEqual(others, [early, late])

    def test_a_summary_counts_failures_wrong_answers_and_gaps_of_each_kind(self):
        faults = [Fault("kill:decode", 5, running=4), Fault("kill:decode", 8, running=9), Fault("stop:prefill", 9)]
        answers = [answer(0, 1, 2, longest_gap=0.3), answer(0, 1, 2, kind="graph", longest_gap=2.5, wrong="2 tokens"),
                   answer(0, 1, 2, kind="next_turn", usage={"prompt_tokens": 8, "cached_tokens": 6})]
        found = report.summary([answer(0, 1, 2, error="refused")], answers, faults)
        self.assertEqual(found["failures"], {"refused": 1})
        self.assertEqual(found["wrong"], 1)
        self.assertEqual(found["differences"], ["graph: 2 tokens"])
        self.assertEqual(found["cached_share_of_prompts"], {"plain": None, "session": None, "next_turn": 0.75, "graph": None})
        self.assertEqual(found["longest_gap_ms"], {"plain": 300, "session": 0, "next_turn": 0, "graph": 2500})
        self.assertEqual(found["faults"], {"kill:decode": 2, "stop:prefill": 1})
        self.assertEqual(found["streams_at_a_killed_decode_worker"], {"fewest": 4, "most": 9})

    def test_a_line_has_the_counts_of_a_report(self):
        found = report.line({"requests": 9, "faults": {"kill:decode": 2, "stop:decode": 1}, "failures": {"lost": 4},
                             "wrong": 5, "blocks_left": 6})
        self.assertEqual(found, "9 requests, 3 faults, 4 failures, 5 wrong answers, 6 blocks left")

    def test_an_answer_differs_in_tokens_text_or_usage(self):
        def ended(*tokens, text="ab", used=2, error=""):
            return Answer("plain", tokens=list(tokens), text=text, error=error, usage={"completion_tokens": used})

        known = ended(7, 8)
        self.assertEqual(ended(7, 8).difference(known), "")
        self.assertEqual(ended(7, 9).difference(known), "token 1 is 9 instead of 8")
        self.assertEqual(ended(7).difference(known), "1 tokens instead of 2")
        self.assertEqual(ended(7, 8, 9, error="lost").difference(known), "3 tokens instead of 2")
        self.assertEqual(ended(7, 8, text="a").difference(known), "the text 'a' instead of 'ab'")
        self.assertEqual(ended(7, 8, used=3).difference(known), "3 completion_tokens instead of 2")

    def test_a_failed_stream_must_have_the_beginning_of_the_known_answer(self):
        known = Answer("plain", tokens=[7, 8], text="ab", usage={"completion_tokens": 2})
        self.assertEqual(Answer("plain", tokens=[7], text="a", error="lost").difference(known), "")
        self.assertEqual(Answer("plain", tokens=[7], text="b", error="lost").difference(known), "the text 'b' instead of 'ab'")

    def test_growth_is_the_slope_of_the_line_through_the_samples(self):
        self.assertAlmostEqual(slope([(0, 10), (1, 12), (2, 14)]), 2)
        self.assertAlmostEqual(slope([(0, 5), (1, 7), (2, 5)]), 0)

    def test_growth_is_that_of_the_worst_process_over_its_second_half(self):
        # These processes grow by 60 MB per minute at first, then by 3 and 6 MB per minute.
        def samples(late, count=60):
            return [(i, 1_000_000 * min(i, 20) + late * max(i - 20, 0)) for i in range(count)]

        self.assertEqual(growth_mb_per_minute({("router", 1): samples(50_000), ("decode-0", 2): samples(50_000),
                                               ("decode-0", 3): samples(100_000), ("decode-1", 4): samples(9, 59)}),
                         {"router": 3, "decode-0": 6})

    def test_a_fault_that_does_not_exist_is_refused(self):
        self.assertEqual(named("pause:prefill"), ("pause", "prefill"))
        with self.assertRaisesRegex(Exception, "expected one of kill"):
            named("explode:decode")
