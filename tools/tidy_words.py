"""The part of docs/style.md that a program can check: words, forms, widths and sentences of comments and Markdown, and
subjects of commits. tools/tidy runs it."""

import io
import pathlib
import re
import subprocess
import tokenize

ROOT = pathlib.Path(__file__).resolve().parent.parent

WIDEST = 100  # columns of a line with a comment, or of Markdown
WIDEST_CELL = 120  # characters of a cell of a Markdown table
LONGEST_SENTENCE = 30  # words
LONGEST_SUBJECT = 72  # characters of a commit's subject
# The words and forms themselves stand in these files.
EXEMPT = ("docs/style.md", "docs/glossary.md", "tools/tidy_words.py", "test/tools/tidy_words_test.py")
# Lists of packages, and weights of a study in text form.
DATA = ("tools/requirements/", "tools/packages.txt", "tools/finetuning/study/weights/", "test/golden/")
# Not rewritten yet. A folder leaves the list with the commit that rewrites it.
NOT_YET = (
    "docs/dependencies.md", "src/agent/", "src/engine/decode/", "src/engine/handoff/", "src/frontend/", "src/router/",
    "src/shell/", "test/agent/", "test/engine/decode/", "test/engine/handoff/", "test/frontend/", "test/router/",
    "test/scenario/", "test/simulator/", "test/world/",
)
# Subjects of later commits are checked.
SUBJECTS_SINCE = "640684e8"

# A pattern, and what to write instead.
BANNED = [
    (r"who|whom|whoever|whomever", "name the party: owner, caller, peer, client, worker"),
    (r"somebody|nobody|anybody|everybody|someone|anyone|everyone", "name the party"),
    (r"theirs|one's", "name what is meant"),
    (r"tells?|told|says?|said|hears?|heard|knows?|knew", "report, send, log, return, record, distinguish"),
    (r"no more(?! than)|any more|anymore", "'no longer', or which rule ends it"),
    (r"(open|growing) (prompt|request|job)s?", "streaming prompt"),
    (r"what has come", "increment"),
    (r"readers? of (its|an|the) output", "downstream request"),
    (r"foresight", "declared edge"),
    (r"in the background", "low-priority"),
    (r"(comes?|came) anew|in vain|at home|of old|lest|whence|hence|thereof|therein|alike", "plain words"),
    (r"handicaps?", "arrival offset"),
    (r"unheard", "internal"),
    (r"the (former|latter)", "repeat the noun"),
]
BANNED = [(re.compile(rf"\b({pattern})\b", re.I), instead) for pattern, instead in BANNED]
# At the beginning of a sentence: a clause in place of a subject, or a sentence without one.
OPENINGS = re.compile(r"(What|That which|Of|Nor|Else)\b(?! course)")
ABBREVIATION = re.compile(r"\b(e\.g|i\.e|cf|vs|etc|Fig|Sec|No|approx)\.$")

HASH = re.compile(r"(^|\s)#(?!!)\s?(.*)$")
SLASHES = re.compile(
    r'R"(?P<mark>\w*)\((?:.|\n)*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'|/\*(?:.|\n)*?\*/|//[^\n]*')
CODE = re.compile(r"`[^`]*`")
PRAGMA = re.compile(r"\s*(noqa|type:|NOLINT|clang-format)")
LINK = re.compile(r"\[([^\]]*)\]\([^)\s]*\)|<?https?://\S+")


# The readers yield (line number, text) of each line with a comment. The text of a comment behind code begins with this.
BEHIND_CODE = "\0"


def slash_comments(text):
    """Comments of C++, CUDA and protobuf."""
    for found in SLASHES.finditer(text):
        if found[0].startswith(("//", "/*")):
            first = text.count("\n", 0, found.start()) + 1
            behind = text[text.rfind("\n", 0, found.start()) + 1 : found.start()].strip() and BEHIND_CODE
            body = found[0].removeprefix("/*").removesuffix("*/") if found[0][1] == "*" else found[0].lstrip("/")
            for i, line in enumerate(body.split("\n")):
                yield first + i, behind + line


def hash_comments(text):
    for number, line in enumerate(text.splitlines(), 1):
        if found := HASH.search(line):
            # A # inside quotes is no comment.
            before = line[: found.start()]
            if before.count("'") % 2 == 0 and before.count('"') % 2 == 0:
                yield number, (before.strip() and BEHIND_CODE) + found[2]


def python_comments(text):
    """Comments and docstrings."""
    previous, depth = tokenize.NEWLINE, 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and not token.string.startswith("#!"):
            yield token.start[0], (token.line[: token.start[1]].strip() and BEHIND_CODE) + token.string.lstrip("#")
        depth += (token.string in "([{") - (token.string in ")]}") if token.type == tokenize.OP else 0
        if token.type == tokenize.STRING and depth == 0 and previous in (tokenize.NEWLINE, tokenize.INDENT, tokenize.NL):
            for i, line in enumerate(token.string.strip("\"'rf").split("\n")):
                yield token.start[0] + i, " " + line.strip()
        if token.type not in (tokenize.COMMENT, tokenize.DEDENT):
            previous = token.type


def markdown_lines(text):
    """All but code blocks, and parts that a tool generates from texts that are checked elsewhere."""
    fenced = generated = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("<!-- "):
            generated = line.startswith("<!-- Generated by ")
        if line.lstrip().startswith("```"):
            fenced = not fenced
            yield number, ""
        elif not fenced and not generated:
            yield number, line


COMMENTS = {
    (".h", ".cc", ".inl", ".cu", ".cuh", ".proto"): slash_comments,
    (".py",): python_comments,
    (".md",): markdown_lines,
    (".toml", ".yaml", ".yml", ".cmake", ".txt", ".service", ".sh"): hash_comments,
}


def reader_of(path, text):
    for suffixes, reader in COMMENTS.items():
        if path.endswith(suffixes):
            return reader
    first = text.partition("\n")[0]
    if "python" in first and first.startswith("#!"):
        return python_comments
    return hash_comments if first.startswith("#!") else None


def paragraphs(lines):
    """[(first line number, text)]: lines that follow each other and belong to one paragraph."""
    begin, parts, last, behind_code = 0, [], 0, False
    for number, line in lines:
        bare = line.strip().lstrip(BEHIND_CODE).strip()
        starts = re.match(r"([-*+] |\d+\. |#+ |>|\|)", bare) or re.match(r" {3,}", line) or behind_code
        behind_code = line.startswith(BEHIND_CODE)
        starts = starts or behind_code
        if parts and (number != last + 1 or not bare or starts):
            yield begin, " ".join(parts)
            parts = []
        if bare and not bare.startswith("|") and not re.match(r"#+ ", bare) and not PRAGMA.match(bare):
            if not parts:
                begin = number
            parts.append(re.sub(r"^([-*+] |\d+\. |> ?)", "", bare))
        last = number
    if parts:
        yield begin, " ".join(parts)


def sentences(text):
    begin = 0
    for end in re.finditer(r"[.!?:](?=\s+[A-Z`\"(\d]|$)", text):
        if end[0] != ":" and not ABBREVIATION.search(text[: end.end()]):
            yield text[begin : end.end()].strip()
            begin = end.end()
    if text[begin:].strip():
        yield text[begin:].strip()


def plain(text):
    """Text in which code, intervals and links count as a word each."""
    text = LINK.sub(lambda link: link[1] or "link", CODE.sub("Code", text))
    return re.sub(r"[\[(][^\[\]()]{1,40}[\])]", lambda part: part[0] if " " in part[0].strip() else "x", text)


def words_of(sentence):
    return [word for word in sentence.split() if re.search(r"\w", word)]


def width_problems(path, lines, source):
    for number, line in lines:
        whole = source[number - 1] if number <= len(source) else ""
        if path.endswith(".md") and line.lstrip().startswith("|"):
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            if (most := max(len(plain(cell)) for cell in cells)) > WIDEST_CELL:
                yield number, f"a cell of {most} characters, expected at most {WIDEST_CELL}"
        elif len(whole) > WIDEST and not LINK.search(whole) and not PRAGMA.match(line.lstrip(BEHIND_CODE)):
            yield number, f"{len(whole)} columns, expected at most {WIDEST}"


def sentence_problems(lines):
    for number, text in paragraphs(lines):
        text = plain(text)
        for sentence in sentences(text):
            if len(words := words_of(sentence)) > LONGEST_SENTENCE:
                yield number, f"a sentence of {len(words)} words, expected at most {LONGEST_SENTENCE}: {sentence[:60]}…"
            if (found := OPENINGS.match(sentence)) and not sentence.endswith("?"):
                yield number, f"a sentence that begins with '{found[1]}', expected a subject: {sentence[:60]}"
            for pattern, instead in BANNED:
                if found := pattern.search(sentence):
                    yield number, f"'{found[0]}', expected {instead}: {sentence[:60]}"


def file_problems(path, text):
    reader = reader_of(path, text)
    if reader is None:
        return
    lines = list(reader(text))
    for number, problem in sorted([*width_problems(path, lines, text.splitlines()), *sentence_problems(lines)]):
        yield f"{path}:{number}: {problem}"


def is_checked(path):
    return path not in EXEMPT and not path.startswith((*DATA, *NOT_YET))


def subject_problem(subject):
    if len(subject) > LONGEST_SUBJECT:
        return f"{len(subject)} characters, expected at most {LONGEST_SUBJECT}"
    if not re.match(r"[\w./ -]+: [a-z].*[^.\s]$", subject):
        return "expected the form 'component: imperative'"
    return None


def commit_problems():
    """Of the subjects since the check exists. None: there is no history to check."""
    found = subprocess.run(["git", "log", "--no-merges", "--format=%h %s", f"{SUBJECTS_SINCE}..HEAD"], cwd=ROOT,
                           capture_output=True, text=True)
    if found.returncode != 0:
        return None
    subjects = [line.partition(" ") for line in found.stdout.splitlines()]
    return [f"{commit}: '{subject}': {problem}" for commit, _, subject in subjects
            if (problem := subject_problem(subject))]


def problems(paths):
    for path in paths:
        if is_checked(path):
            try:
                text = (ROOT / path).read_text()
            except UnicodeDecodeError:
                continue
            yield from file_problems(path, text)
    if (commits := commit_problems()) is None:
        print("tidy: SKIPPED subjects of commits: there is no history that reaches the first of them")
    else:
        yield from commits


if __name__ == "__main__":
    import sys
    listed = subprocess.run(["git", "ls-files", *sys.argv[1:]], cwd=ROOT, check=True, capture_output=True, text=True)
    NOT_YET = ()
    for problem in problems(listed.stdout.splitlines()):
        print(problem)
