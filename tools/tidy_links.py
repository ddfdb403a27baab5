"""Checks that links in Markdown, and documents that other files name, lead to a file and a heading
of this repository. Also checks that paths in Markdown's inline code exist, and names of code in
docs/design. tools/tidy runs it."""

import fnmatch
import pathlib
import re

# Links of Markdown: [text](target), ![text](target) and [label]: target. Code is taken out before.
FENCED = re.compile(r"^(```|~~~).*?^\1", re.M | re.S)
CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)|^\[[^\]]+\]:\s+(\S+)", re.M)
ELSEWHERE = re.compile(r"[a-z][a-z+.-]*:|//")  # the web, and other schemes
HEADING = re.compile(r"^#{1,6} +(.+?)(?: +#+)?$", re.M)
# A document as other files name it, by its path here or in the Debian package. Paths of the web do
# not match.
NAMED = re.compile(r"(?:(?<![\w/.-])|(?<=/usr/share/doc/baton/)|(?<=\.\./))(docs/[\w./-]+\.(?:md|svg|png))(#[\w-]+)?")
# A path in inline code.
PATH = re.compile(r"`((?:src|test|kernels|proto|bench|clients|deploy|tools|docs)/[\w./*-]+)`")
# A name of a class, a function or a method in inline code: `Start`, `HandoffReceiver::Start`.
NAME = re.compile(r"`(?:[A-Za-z]\w*::)*([A-Z]\w*[a-z]\w*)(?:\(\))?`")
CODE_FILES = (".h", ".cc", ".inl", ".cu", ".cuh", ".proto")
# Names of other projects in docs/design.
NOT_OURS = ("Env", "TransformerLayer")
HISTORY = ("CHANGELOG.md",)  # names files that were removed
EXEMPT = ("tools/tidy_links_test.py",)  # names documents that do not exist


def without_code(text):
    """The text with blanks in place of code. Line numbers stay."""
    text = FENCED.sub(lambda found: "\n" * found[0].count("\n"), text)
    return CODE.sub(lambda found: " " * len(found[0]), text)


def anchors_of(text):
    """The anchors of a page's headings, as GitHub makes them."""
    found, seen = set(), {}
    for heading in HEADING.findall(FENCED.sub("", text)):
        plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        anchor = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        number = seen[anchor] = seen.get(anchor, -1) + 1
        found.add(f"{anchor}-{number}" if number else anchor)
    return found


class Links:
    """Finds problems in the files `paths` below `root`."""

    def __init__(self, root, paths):
        self.root = pathlib.Path(root)
        self.paths = paths
        self.files = set(paths)
        self.folders = {str(parent) for path in paths for parent in pathlib.PurePath(path).parents}
        self.anchors = {}  # of pages, as they are asked for
        self.words = None  # of the code, without comments

    def anchor_problem(self, page, anchor):
        if not anchor or not page.endswith(".md"):
            return None
        if page not in self.anchors:
            self.anchors[page] = anchors_of((self.root / page).read_text())
        return None if anchor in self.anchors[page] else f"{page} has no heading for #{anchor}"

    def target_problem(self, page, target):
        """None: the target of a link of the page `page` exists."""
        path, _, anchor = target.partition("#")
        found = page
        if path:
            parts = []
            for part in (pathlib.PurePosixPath(page).parent / path).parts:
                if part != "..":
                    parts.append(part)
                elif parts:
                    parts.pop()
                else:
                    return f"{target} leads out of the repository"
            found = "/".join(parts) or "."
        if found not in self.files and found not in self.folders:
            return f"there is no {found}"
        return self.anchor_problem(found, anchor)

    def page_problems(self, page):
        text = without_code((self.root / page).read_text())
        for link in LINK.finditer(text):
            target = link[1] or link[2]
            if not ELSEWHERE.match(target) and (problem := self.target_problem(page, target)):
                yield f"{page}:{text.count(chr(10), 0, link.start()) + 1}: {problem}"

    def path_problem(self, path):
        """None: a path in inline code exists, or matches a file."""
        pattern = path.removesuffix("/")
        if pattern in self.files or pattern in self.folders or "*" in pattern and fnmatch.filter(self.files, pattern):
            return None
        return f"there is no {path}"

    def is_in_code(self, name):
        if self.words is None:
            self.words = set()
            for path in self.paths:
                if path.endswith(CODE_FILES) and not path.startswith("test/"):
                    text = re.sub(r"//.*", "", (self.root / path).read_text())
                    self.words.update(re.findall(r"\b[A-Z]\w+", text))
        return name in self.words

    def code_problems(self, page):
        """Problems of the page's inline code."""
        text = FENCED.sub(lambda found: "\n" * found[0].count("\n"), (self.root / page).read_text())
        for found in PATH.finditer(text) if page not in HISTORY else ():
            if problem := self.path_problem(found[1]):
                yield f"{page}:{text.count(chr(10), 0, found.start()) + 1}: {problem}"
        for found in NAME.finditer(text) if page.startswith("docs/design/") else ():
            if found[1] not in NOT_OURS and not self.is_in_code(found[1]):
                yield f"{page}:{text.count(chr(10), 0, found.start()) + 1}: no code has the name {found[1]}"

    def name_problems(self, path):
        try:
            text = (self.root / path).read_text()
        except UnicodeDecodeError:
            return
        for name in NAMED.finditer(text):
            document, anchor = name[1], (name[2] or "").removeprefix("#")
            problem = None if document in self.files else f"there is no {document}"
            if problem := problem or self.anchor_problem(document, anchor):
                yield f"{path}:{text.count(chr(10), 0, name.start()) + 1}: {problem}"

    def problems(self):
        for path in self.paths:
            if path in EXEMPT:
                continue
            if path.endswith(".md"):
                yield from self.page_problems(path)
                yield from self.code_problems(path)
            else:
                yield from self.name_problems(path)
