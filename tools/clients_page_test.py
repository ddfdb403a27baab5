import json
import unittest

from clients_page import BEGIN, END, PageError, page

OLD = f"# Clients\n\n{BEGIN}\n\n| lm-eval 0.4 | a task | works | works |\n| llm 0.35 | chat | works | works |\n\n{END}\n\nEnd.\n"


def line(feature, model, result="works", package="llm"):
    return json.dumps({"package": package, "version": "0.36", "feature": feature, "model": model, "result": result}) + "\n"


class PageTest(unittest.TestCase):
    def rows(self, results):
        return [text for text in page(OLD, results).splitlines() if text.startswith("| l")]

    def test_rows_of_a_package_that_did_not_run_stay(self):
        self.assertEqual(self.rows(line("chat", "plain", package="llm")),
                         ["| llm 0.36 | chat |  | works |", "| lm-eval 0.4 | a task | works | works |"])

    def test_results_replace_all_rows_of_their_package(self):
        results = line("tools", "plain", "refused: `a|b` (comes later)") + line("tools", "template")
        self.assertEqual(self.rows(results)[0], "| llm 0.36 | tools | works | refused: `a\\|b` (comes later) |")
        self.assertEqual(len(self.rows(results)), 2)

    def test_the_page_of_the_same_results_is_the_same(self):
        results = line("tools", "plain") + line("chat", "plain")
        self.assertEqual(page(page(OLD, results), results), page(OLD, results))
        self.assertTrue(page(OLD, results).endswith(f"{END}\n\nEnd.\n"))

    def test_a_page_without_its_marks_is_refused(self):
        with self.assertRaisesRegex(PageError, "End of the generated part"):
            page("# Clients\n", line("chat", "plain"))


if __name__ == "__main__":
    unittest.main()
