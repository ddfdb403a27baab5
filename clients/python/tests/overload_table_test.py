"""Tests of the column of docs/openai.md that states what OpenAI's client does after a refusal."""

import re
import types
import unittest

from openai import OpenAI
from serving import ROOT

SECTION = re.compile(r"^## Overload\n(.*?)^## ", re.M | re.S)
HEADERS = {"1 s": {"retry-after": "1"}, "an estimate": {"retry-after": "5"}, "until they are worked off": {"retry-after": "60"},
           "never": {"x-should-retry": "false"}, "none": {}}


class OverloadTableTest(unittest.TestCase):
    def setUp(self):
        self.client = OpenAI(api_key="none", base_url="http://127.0.0.1:1/v1")
        self.addCleanup(self.client.close)

    def retries(self, status, headers):
        return self.client._should_retry(types.SimpleNamespace(status_code=status, headers=headers))

    def test_the_client_retries_as_the_table_states(self):
        section = SECTION.search((ROOT / "docs/openai.md").read_text())[1]
        rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")][1:]
        self.assertGreater(len(rows), 10)
        for name, _, status, _, retry_after, behaviour in rows:
            with self.subTest(name):
                self.assertEqual(self.retries(int(status), HEADERS[retry_after]), {"retries": True, "no retry": False}[behaviour])

    def test_the_client_gives_up_if_the_delay_exceeds_two_minutes(self):
        self.assertTrue(self.retries(429, {"retry-after": "120"}))
        self.assertFalse(self.retries(429, {"retry-after": "121"}))


if __name__ == "__main__":
    unittest.main()
