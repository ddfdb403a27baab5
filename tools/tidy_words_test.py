import unittest

import tidy_words


def problems(path, text):
    return [problem.split(": ", 1)[1] for problem in tidy_words.file_problems(path, text)]


class TidyWordsTest(unittest.TestCase):
    def test_a_comment_in_plain_words_passes(self):
        self.assertEqual(problems("a.h", "// Upper bound on tokens of streaming prompts per step.\nint x = 1;  // blocks\n"), [])

    def test_a_banned_word_is_refused_in_comments_of_each_language(self):
        for path, text in [("a.cc", "// It is told of its end.\n"), ("a.proto", "int32 a = 1;  // told later\n"),
                           ("a.py", "# told\n"), ("a.py", '"""Is told."""\n'), ("a.md", "It is told.\n"),
                           ("a.toml", "a = 1  # told\n"), ("tool", "#!/usr/bin/env bash\n# told\n"),
                           ("a.cu", "/* a\n   told */\n")]:
            with self.subTest(path=path, text=text):
                found = problems(path, text)
                self.assertEqual(len(found), 1, found)
                self.assertIn("'told', expected report", found[0])

    def test_strings_code_and_inline_code_are_not_comments(self):
        self.assertEqual(problems("a.cc", 'f("// told", R"(// told)", \'"\');  // `told`\nint told;\n'), [])
        self.assertEqual(problems("a.md", "```\nwho\n```\nSee `who` and [a page](https://told.example/who).\n"), [])
        self.assertEqual(problems("a.sh", "echo '# told' \"# told\"\n"), [])

    def test_a_sentence_over_thirty_words_is_refused_where_it_begins(self):
        words = "Word " + " ".join(["word"] * 30)
        found = list(tidy_words.file_problems("a.cc", f"// Short.\n// {words[:70]}\n// {words[70:]}.\n"))
        self.assertEqual(len(found), 1, found)
        self.assertIn("a sentence of 31 words", found[0])
        thirty = "Word " + " ".join(["word"] * 29)
        self.assertEqual(problems("a.cc", f"// {thirty[:70]}\n// {thirty[70:]}.\n"), [])

    def test_comments_behind_code_are_sentences_of_their_own(self):
        line = "int a;  // " + " ".join(["word"] * 16) + "\n"
        self.assertEqual(problems("a.h", line * 2), [])

    def test_items_of_a_list_are_sentences_of_their_own(self):
        item = "- " + " ".join(["word"] * 19) + "\n"
        self.assertEqual(problems("a.md", item * 2), [])

    def test_a_line_over_a_hundred_columns_is_refused_but_code_tables_and_links_are_not(self):
        long = "word " * 20 + "a"
        self.assertEqual(problems("a.md", f"{long}\n"), ["101 columns, expected at most 100"])
        self.assertEqual(problems("a.h", f"//{long}\n")[0], "103 columns, expected at most 100")
        self.assertEqual(problems("a.h", "f(" + "a, " * 40 + ");\n"), [])
        self.assertEqual(problems("a.md", f"| {long} | b |\n[a](https://example.org/{'a' * 100})\n"), [])
        self.assertIn("a cell of 121 characters", problems("a.md", f"| {'a' * 121} | b |\n")[0])

    def test_a_clause_or_a_preposition_is_no_subject(self):
        for opening in ["What a step reads.", "Of the two, the first.", "Nor does it."]:
            with self.subTest(opening=opening):
                self.assertIn("expected a subject", problems("a.cc", f"// {opening}\n")[0])
        self.assertEqual(problems("a.md", "What does a step read?\n"), [])

    def test_subjects_have_a_component_and_an_imperative(self):
        for subject in ["engine/prefill: split admission from planning", "bench/results: state the CPU again"]:
            self.assertIsNone(tidy_words.subject_problem(subject), subject)
        for subject in ["split admission", "engine: Split admission", "engine: split admission.", "engine: " + "a" * 65]:
            self.assertIsNotNone(tidy_words.subject_problem(subject), subject)

    def test_a_folder_that_is_not_rewritten_yet_is_not_checked(self):
        before, tidy_words.NOT_YET = tidy_words.NOT_YET, ("src/a/",)
        self.addCleanup(setattr, tidy_words, "NOT_YET", before)
        self.assertFalse(tidy_words.is_checked("src/a/b.cc"))
        self.assertTrue(tidy_words.is_checked("src/ab/b.cc"))
        self.assertFalse(tidy_words.is_checked("docs/style.md"))


if __name__ == "__main__":
    unittest.main()
