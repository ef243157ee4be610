#!/usr/bin/env python3
"""Check the prose of Markdown pages, comments and docstrings, and fail if a package is above its limit.

    scripts/prose.py              packages above their limits, with each place
    scripts/prose.py docs src     all packages below these paths, with each place

A rate counts habits in 10,000 words. Code blocks and quoted code are skipped.
"""

from __future__ import annotations

import ast
import bisect
import itertools
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = [
    "README.md",
    "CONTRIBUTING.md",
    "docs",
    "page",
    "runner",
    "examples",
    "deploy",
    "scripts",
    "bench",
    "testcluster",
    "tests",
]
LIMITS = dict.fromkeys(PACKAGES, 40)
SRC_LIMIT = 40  # of each package of src/dayfly
MAX_WORDS = 30

C_LIKE = {".c", ".h", ".ts", ".tsx", ".js"}
C_QUOTED = r""""(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\])*`"""
C_TOKEN = re.compile(rf"(?P<quoted>{C_QUOTED})|//[^\n]*|/\*.*?\*/", re.DOTALL)
PYTHON_TOKEN = re.compile(r"""(?P<quoted>(?P<quote>\"{3}|'''|["'])(?:\\.|[^\\])*?(?P=quote))|#[^\n]*""", re.DOTALL)
PRAGMA = re.compile(r"#!|#\s*(noqa|type:|shellcheck|pragma|fmt:|mypy:|ruff:)|//\s*(eslint|@ts-)")
COMMENT_EDGE = re.compile(r"^\s*(?:#+|//+|/\*+!?|\*(?!/))?\s?|\s*\*+/\s*$")
BLOCK = re.compile(r"#|\||```|~~~|:::|>>>|\$ ")  # a line which starts like this is not part of a paragraph
ITEM = re.compile(r"^\s*(?:[-*+]|\d+[.)])\s+|^    \w+:\s+(?=[A-Z])|^(?:Args|Attributes|Raises|Returns|Yields):$")
CODE = re.compile(r"``.+?``|`[^`]*`|<[^<>]*>|\bhttps?://\S+")
LINK = re.compile(r"(?<=\])\([^)]*\)|[\[\]*]")
SENTENCE_END = re.compile(r"(?<=[.!?])[)\"']*\s+(?=[\"'(]?[A-Z0-9`])")
WORD = re.compile(r"[A-Za-z][\w'-]*")
HABITS = [
    ("clause as subject", r"^(?:Where(?:ver)?|What(?:ever)?|Who(?:ever)?) [a-z`](?!.*\?$)"),
    ("clause as subject", r"^Of (?:an?|the|all|each|several|these) |^(?:One|Those) (?:that|who) "),
    ("unnamed person", r"(?i)\b(?:no|some|any|every)body\b|\bwho(?:so)?ever\b|\bone's\b|\bones (?:that|who)\b"),
    ("speaking program", r"\b(?:is|are|was|were|be|been|being) (?:told|asked)\b|\btells (?!.*apart)|\bhear[sd]\b"),
    ("speaking program", r"(?<![Yy]ou )(?<!user )(?<!users )(?<!person )(?<!people )\b(?:says|said|asks)\b"),
    ("vague amount", r"\b[Ss]o (?:many|long|much|few|late|often)\b(?! as)"),
    ("archaic word", r"\banew\b|\bafresh\b|\b(?:no|any) more\b(?! than)|\bfor ever\b|\b[Mm]eanwhile\b"),
    ("archaic word", r"\b(?:lies|lay) in\b|(?<!few )(?<!One )\bpass(?:es|ed)? over\b"),
    ("archaic word", r"\bof (?:its|their|his) own\b|\b(?:is|are|was|were) to [a-z]"),
    ("archaic word", r"(?<!it )(?<!them )(?<!stand )\balone\b|\b[tw]here(?:of|in|upon)\b|\blest\b"),
]  # fmt: skip
PATTERNS = [(reason, re.compile(pattern)) for reason, pattern in HABITS]
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
PRONOUN = re.compile(r"(?:Its?|They|Those|These|This|That|None|All of|Something|Every ?thing) ")
Comment = tuple[int, str, bool]  # line, text, and whether it is after code


class Text(NamedTuple):
    line: int
    text: str
    is_docstring: bool = False


def docstrings(node: ast.AST) -> Iterator[Text]:
    if isinstance(node, DOCUMENTED) and (docstring := ast.get_docstring(node)):
        yield Text(node.body[0].lineno, docstring, is_docstring=True)
    for child in getattr(node, "body", ()):
        if hasattr(child, "body"):
            yield from docstrings(child)


def token_comments(token: re.Pattern[str], source: str) -> Iterator[Comment]:
    for match in token.finditer(source):
        if match["quoted"] is None:
            first = source.count("\n", 0, match.start()) + 1
            is_trailing = bool(source[source.rfind("\n", 0, match.start()) + 1 : match.start()].strip())
            for number, line in enumerate(match[0].split("\n"), first):
                yield number, line, is_trailing and number == first


def shell_comments(source: str) -> Iterator[Comment]:
    for number, line in enumerate(source.split("\n"), 1):
        if match := re.search(r"(?:^|\s)(#(?:\s.*|!.*)?)$", line):
            yield number, match[1], bool(line[: match.start(1)].strip())


def joined(comments: Iterable[Comment]) -> Iterator[Text]:
    """Join the comments of consecutive lines; a comment after code begins a new text."""
    first, lines = 0, list[str]()
    for number, comment, is_trailing in comments:
        if is_trailing or number != first + len(lines):
            yield Text(first, "\n".join(lines))
            first, lines = number, []
        lines.append("" if PRAGMA.match(comment) else COMMENT_EDGE.sub("", comment))
    yield Text(first, "\n".join(lines))


def paragraphs(text: Text) -> Iterator[Text]:
    """Split a text at blank lines, list items and table cells, without headings and code blocks."""
    first, lines, is_code = text.line, list[str](), False
    for number, raw in enumerate([*text.text.split("\n"), ""], text.line):
        line = raw.strip()
        is_code ^= line.startswith(("```", "~~~"))
        is_break = is_code or not line or bool(BLOCK.match(line)) or (not lines and raw.startswith("    "))
        if lines and (is_break or ITEM.match(raw)):
            yield Text(first, "\n".join(lines), text.is_docstring and first == text.line)
            lines = []
        if line.startswith("|") and not is_code:
            yield from (Text(number, cell.strip()) for cell in line.split("|") if cell.strip(" -:"))
        if not is_break or (ITEM.match(raw) and not is_code):
            first = first if lines else number
            lines.append(ITEM.sub("", raw))


def sentences(paragraph: Text) -> Iterator[Text]:
    """Split a paragraph into sentences, with a backquote for quoted code and addresses."""
    text = CODE.sub(lambda code: "`" + "\n" * code[0].count("\n"), paragraph.text)
    ends = [index for index, letter in enumerate(text) if letter == "\n"]
    starts = [0, *(match.end() for match in SENTENCE_END.finditer(text)), len(text)]
    for start, end in itertools.pairwise(starts):
        sentence = " ".join(LINK.sub("", text[start:end]).split())
        yield Text(paragraph.line + bisect.bisect_left(ends, start), sentence, paragraph.is_docstring and not start)


def check(path: str, source: str) -> tuple[int, list[str]]:
    """Return the number of words of a file, and a line of output for each habit."""
    if path.endswith(".py"):
        texts = [*docstrings(ast.parse(source)), *joined(token_comments(PYTHON_TOKEN, source))]
    elif Path(path).suffix in C_LIKE:
        texts = [*joined(token_comments(C_TOKEN, source))]
    else:
        texts = [Text(1, source)] if path.endswith(".md") else [*joined(shell_comments(source))]
    words, places = 0, list[str]()
    for line, sentence, is_docstring in (
        part for text in texts for block in paragraphs(text) for part in sentences(block)
    ):
        count = len(WORD.findall(sentence))
        words += count
        reasons = [reason for reason, pattern in PATTERNS for _ in pattern.finditer(sentence)]
        reasons += ["pronoun as subject"] * bool(is_docstring and PRONOUN.match(sentence))
        reasons += [f"{count} words"] * (count > MAX_WORDS)
        places += [f"{path}:{line}: {reason}: {sentence}" for reason in reasons]
    return words, places


def main(below: list[str]) -> int:
    """Print the rates and places of packages, and return 1 if a package is above its limit."""
    words, places = defaultdict[str, int](int), defaultdict[str, list[str]](list)
    listed = subprocess.run(["git", "ls-files", "--", *below], cwd=ROOT, capture_output=True, text=True, check=True)
    for path in filter(lambda name: Path(name).suffix in {".md", ".py", ".sh", *C_LIKE}, listed.stdout.split("\n")):
        parts = path.split("/")
        package = "/".join(parts[:3] if path.startswith("src/dayfly/") and len(parts) > 3 else parts[:1])
        if (ROOT / path).exists() and (below or package in LIMITS or package.startswith("src/")):
            count, found = check(path, (ROOT / path).read_text())
            words[package] += count
            places[package] += found
    code = 0
    for package, count in sorted(words.items()):
        rate = len(places[package]) * 10_000 / max(count, 1)
        limit = LIMITS.get(package, SRC_LIMIT if package.startswith("src") else None)
        is_above = limit is not None and rate > limit
        code |= is_above
        if below or is_above:
            print(
                f"{package}: {rate:.0f} habits in 10,000 words, limit {limit}{' (FAILED)' * is_above}",
                *places[package],
                sep="\n",
            )
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
