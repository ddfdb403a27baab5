"""Does tools/tidy_links.py find links, paths and names that lead nowhere, and no others?"""

import pathlib
import tempfile
import unittest

import tidy_links


class LinksTest(unittest.TestCase):
    def problems(self, **files):
        """The problems of these files. Their names have __ for / and _dot_ for a dot."""
        with tempfile.TemporaryDirectory() as folder:
            paths = []
            for name, text in files.items():
                paths.append(name.replace("__", "/").replace("_dot_", "."))
                path = pathlib.Path(folder, paths[-1])
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            return list(tidy_links.Links(folder, paths).problems())

    def test_links_to_files_folders_and_headings_are_fine(self):
        self.assertEqual(self.problems(
            README_dot_md="[a](docs/a.md) [b](docs/a.md#the-page-at-ui) [c](docs) [d](#here)\n# Here\n![e](docs/e.svg)",
            docs__a_dot_md="# The page at /ui\n[up](../README.md#here) [web](https://example.org/#x)",
            docs__e_dot_svg=""), [])

    def test_a_link_to_a_file_that_is_missing(self):
        self.assertEqual(self.problems(docs__a_dot_md="\n[b](b.md)"), ["docs/a.md:2: there is no docs/b.md"])

    def test_a_link_to_a_heading_that_is_missing(self):
        self.assertEqual(self.problems(a_dot_md="# Two words\n[x](#two-word)"),
                         ["a.md:2: a.md has no heading for #two-word"])

    def test_a_link_out_of_the_repository(self):
        self.assertEqual(self.problems(a_dot_md="[x](../b.md)"), ["a.md:1: ../b.md leads out of the repository"])

    def test_a_reference_to_a_file_that_is_missing(self):
        self.assertEqual(self.problems(a_dot_md="[x]\n\n[x]: b.md"), ["a.md:3: there is no b.md"])

    def test_code_has_no_links_and_no_headings(self):
        self.assertEqual(self.problems(a_dot_md="`[x](b.md)`\n```\n[x](b.md)\n# No heading\n```\n"), [])
        self.assertEqual(self.problems(a_dot_md="```\n# No heading\n```\n[x](#no-heading)"),
                         ["a.md:4: a.md has no heading for #no-heading"])

    def test_paths_in_code_that_exist(self):
        self.assertEqual(self.problems(
            a_dot_md="`src/a.cc` `src/` `test/scenario/*.txt` `../src/b.cc` `src/b.cc c`\n```\nsrc/b.cc\n```",
            src__a_dot_cc="", test__scenario__b_dot_txt=""), [])

    def test_a_path_in_code_that_is_missing(self):
        self.assertEqual(self.problems(a_dot_md="`src/a.cc`\n`test/scenario/c.txt` `src/*.h`", src__a_dot_cc=""),
                         ["a.md:2: there is no test/scenario/c.txt", "a.md:2: there is no src/*.h"])

    def test_names_of_the_design_that_the_code_has(self):
        self.assertEqual(self.problems(
            docs__design__a_dot_md="`Start` `Receiver::Start` `Start()` `WAIT` `LevelDB 1.23`",
            docs__a_dot_md="`Tell`", src__a_dot_h="class Receiver { void Start(); };"), [])

    def test_a_name_of_the_design_that_only_a_comment_or_a_test_has(self):
        self.assertEqual(self.problems(docs__design__a_dot_md="\n`Start` `Tell`", src__a_dot_h="void Start();  // Tell",
                                       test__a_dot_cc="Tell();"), ["docs/design/a.md:2: no code has the name Tell"])

    def test_equal_headings_have_numbers(self):
        self.assertEqual(self.problems(a_dot_md="# A `b`\n# A b\n[x](#a-b) [y](#a-b-1)"), [])
        self.assertEqual(self.problems(a_dot_md="# A\n[x](#a-1)"), ["a.md:2: a.md has no heading for #a-1"])

    def test_a_file_that_names_a_document(self):
        page = "# Keys and certificates"
        self.assertEqual(self.problems(src__a_dot_cc='"(docs/b.md#keys-and-certificates)" https://x.org/docs/c.md',
                                       docs__b_dot_md=page), [])
        self.assertEqual(self.problems(src__a_dot_cc='\n"(docs/c.md)" docs/b.md#key', docs__b_dot_md=page),
                         ["src/a.cc:2: there is no docs/c.md", "src/a.cc:2: docs/b.md has no heading for #key"])

    def test_a_unit_that_names_a_document_of_the_package(self):
        unit = "Documentation=file:///usr/share/doc/baton/docs/b.md"
        self.assertEqual(self.problems(deploy__a_dot_service=unit, docs__b_dot_md=""), [])
        self.assertEqual(self.problems(deploy__a_dot_service=unit), ["deploy/a.service:1: there is no docs/b.md"])


if __name__ == "__main__":
    unittest.main()
