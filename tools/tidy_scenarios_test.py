"""Does tools/tidy_scenarios.py find scenarios that are too long or that no test reads?"""

import unittest

import tidy_scenarios

TEST = {"test/a_test.cc": '#include "world/scenario.h"\nRunScenarios<Scenario>({"prefill_chunks_", "agents_"})'}


class TidyScenariosTest(unittest.TestCase):
    def problems(self, name, text="# A chunk ends.\nadd a\n----\n", tests=TEST):
        return list(tidy_scenarios.problems({f"test/scenario/{name}.txt": text}, tests))

    def test_a_file_with_the_prefix_of_a_test_is_fine(self):
        for name in ["prefill_chunks_long", "agents_join"]:
            self.assertEqual(self.problems(name), [])

    def test_a_file_with_a_prefix_that_no_test_reads_is_refused(self):
        for name in ["prefill_long", "prefill_chunk_long", "other_agents_join"]:
            found = self.problems(name)
            self.assertEqual(len(found), 1, found)
            self.assertIn(f"test/scenario/{name}.txt: no test reads it", found[0])
            self.assertIn("such as agents_", found[0])

    def test_a_prefix_in_a_file_without_the_harness_does_not_count(self):
        self.assertEqual(len(self.problems("agents_join", tests={"test/a_test.cc": '"agents_"'})), 1)

    def test_a_file_begins_with_a_sentence_and_has_150_lines(self):
        self.assertIn("expected a comment of one sentence", self.problems("agents_join", "add a\n")[0])
        self.assertIn("expected a comment of one sentence", self.problems("agents_join", "# One. Two.\n")[0])
        self.assertIn("151 lines", self.problems("agents_join", "# One.\n" + "a\n" * 150)[0])


if __name__ == "__main__":
    unittest.main()
