"""Check the wording of docstrings, comments, messages and pages.

``python -m docs.wording`` prints the offences in the whole repository.
Plain English names its actors (client, worker, hub, subscriber) and uses the trade's own words.
The list below holds the words and idioms that hide them. Lines of pages are at most 120 characters.
Fenced blocks are exempt from both rules: they show code, and the output of programs as it is.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "changes", "client_sdk/README.md", "docs")
MAX_LINE_LENGTH = 120
MAX_MEAN_WORDS = 25
"""The most words that the sentences of a page have on average."""
BANNED = {
    r"(some|any|every|no)body": "name the actor: a client, a worker, another process",
    r"who(m|so)?ever": "name the actor, or: if you ...",
    r"t(old|ells?|elling)": "send, notify, report, show, say, distinguish",
    r"hear(s|d|ing)?": "receives, is notified of",
    r"look(s|ed|ing)?\s(at|through|around)|looked\sfor": "read, inspect, compare, sync, search",
    r"(?<!there\s)(is|are|was|were)\s(?-i:none)": "is not one; is absent",
    r"(?<!there\s)(is|are)\sno\s(?!longer\b|more\b|less\b|\w+er\b)": "is not a",
    r"for\sever|as\sit\swere|as\sever": "leave it out, or: without end, as before",
    r"anew": "again",
    r"vouch(es|ed|ing)?": "verify, authenticate",
    r"h(o|e)ld(s|ing)?(\s\w+){0,3}\sagainst": "compare with",
    r"(comes?|came|become|becomes|became)\sof": "the result of",
    r"foremost": "first, best",
    r"lying": "left behind, remaining",
    r"believe[sd]?": "trust, accept",
    r"patience|patiently": "a timeout, a delay, tolerance",
    r"none\sof\s(its|their)\sbusiness": "say what it does instead",
    r"let(s|ting)?\sgo": "release, evict, delete",
    r"whence|whither|wherein|whereupon|thereof|thereby": "say it with two sentences",
}
"""What is not written, as a regular expression over whole words, and what to write instead."""

ALLOWED = {
    ("app/main.py", "which models are kin without"): "the product's own line",
    ("client_sdk/modelkin/integrations/flower/clusters.py", "patience"): "a parameter's name",
    ("client_sdk/modelkin/integrations/flower/data.py", "patience"): "a parameter's name",
    ("client_sdk/modelkin/integrations/flower/sharding.py", "patience"): "a parameter's name",
    ("tests/docs/test_wording.py", ""): "its examples are offences",
}
"""Path and text around an offence that stays (an empty text: the file), and the reason."""

_RULES = [(re.compile(rf"\b(?:{words})\b", re.IGNORECASE), BANNED[words]) for words in BANNED]
_BARE_DECIMAL = re.compile(r"(?<![\w.)])\.\d+")
_UNSPOKEN = re.compile(r"^```.*?^```$|^[|#].*?$|^<!--.*?-->$", re.DOTALL | re.MULTILINE)
_PARAGRAPH_END = re.compile(r"\n\s*\n|\n(?=\s*[-*] |\d+\. )")
_SENTENCE_END = re.compile(r"(?<=[.!?:])\s+(?=[A-Z`\[*“])")
_CODE = re.compile(r"^```.*?^```$|``.+?``|`[^`\n]+`", re.DOTALL | re.MULTILINE)
_STRING = (
    r"""(?:"{3}(?:\\.|[^\\])*?"{3}|'{3}(?:\\.|[^\\])*?'{3}"""
    r"""|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')"""
)
_SEAM = r"\s*[rbuf]{0,2}"
_SPOKEN = re.compile(rf"\#[^\n]*|{_STRING}(?:{_SEAM}{_STRING})*", re.DOTALL | re.IGNORECASE)
"""Comments, and strings with those that continue them. All of Python's syntax takes three times as
long to parse and walk as these and all rules together.
"""
_JOINED = re.compile(rf"""(?<=["']){_SEAM}["']+|(?<!\w)["']+|["']+(?!\w)|\\\n""", re.IGNORECASE)
_BREAK = re.compile(r"\\[nrt]")


class Offence(NamedTuple):
    """One place that breaks a rule."""

    path: str
    line: int
    text: str
    advice: str


def in_prose(path: str, text: str, first_line: int = 1) -> Iterator[Offence]:
    """The banned words of a text, without its code."""
    prose = _CODE.sub(_blank, text)
    for words, advice in _RULES:
        for found in words.finditer(prose):
            around = prose[max(0, found.start() - 40) : found.end() + 40]
            if not any(path == place and quote in around for place, quote in ALLOWED):
                line = first_line + prose.count("\n", 0, found.start())
                yield Offence(path, line, " ".join(found[0].split()), advice)


def in_page(path: str, text: str) -> Iterator[Offence]:
    """The banned words, bare decimals, long lines and long sentences of a Markdown page."""
    yield from in_prose(path, text)
    prose = _CODE.sub(_blank, text)
    for found in _BARE_DECIMAL.finditer(prose):
        yield Offence(path, 1 + prose.count("\n", 0, found.start()), found[0], f"0{found[0]}")
    if (mean := mean_words(text)) > MAX_MEAN_WORDS:
        yield Offence(path, 1, f"{mean:.1f} words a sentence", f"{MAX_MEAN_WORDS} at most")
    fences = re.sub(r"^```.*?^```$", _blank, text, flags=re.DOTALL | re.MULTILINE)
    for number, line in enumerate(fences.splitlines(), 1):
        if len(line.rstrip()) > MAX_LINE_LENGTH:
            yield Offence(path, number, f"{len(line)} characters", f"wrap at {MAX_LINE_LENGTH}")


def mean_words(page: str) -> float:
    """How many words a sentence has on average; tables, headings and fenced code do not count."""
    spoken = _UNSPOKEN.sub("", page)
    sentences = [
        sentence.split()
        for paragraph in _PARAGRAPH_END.split(spoken)
        for sentence in _SENTENCE_END.split(" ".join(paragraph.split()))
        if sentence
    ]
    return sum(map(len, sentences)) / max(1, len(sentences))


def in_code(path: str, source: str) -> Iterator[Offence]:
    """The banned words in comments and in strings with a space, so in docstrings and messages."""
    for spoken in _SPOKEN.finditer(source):
        if " " in spoken[0]:
            text = _BREAK.sub(" ", _JOINED.sub("", spoken[0]))
            yield from in_prose(path, text, 1 + source.count("\n", 0, spoken.start()))


def offences() -> Iterator[Offence]:
    """Every offence in the pages and the Python files that git tracks or would track."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],  # noqa: S607
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for path in sorted(set(listed.stdout.splitlines())):
        if not (ROOT / path).exists():
            continue
        if path.endswith(".py"):
            yield from in_code(path, (ROOT / path).read_text())
        elif path.endswith(".md") and is_in(path, PAGES):
            yield from in_page(path, (ROOT / path).read_text())


def is_in(path: str, places: tuple[str, ...]) -> bool:
    """Whether a path is one of some places, or in one of them."""
    return any(path == place or path.startswith(f"{place}/") for place in places)


def main() -> int:
    """Print every offence, and what to write instead."""
    found = list(offences())
    for each in found:
        print(f"{each.path}:{each.line}: {each.text!r}: {each.advice}", file=sys.stderr)
    return 1 if found else 0


def _blank(found: re.Match[str]) -> str:
    """Spaces in place of a match, its line breaks kept."""
    return re.sub(r"[^\n]", " ", found[0])


if __name__ == "__main__":
    sys.exit(main())
