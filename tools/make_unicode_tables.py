#!/usr/bin/env python3
"""Write the Unicode tables of src/tokenizers from the behaviour of the PyPI package `tokenizers`.

    python tools/make_unicode_tables.py            writes unicode_ranges.cc and unicode_mappings.cc
    python tools/make_unicode_tables.py --check    exits 1 when the committed files differ

`tokenizers` carries its own tables, of several Unicode versions at once: its classes differ from
those of ICU and of Python on hundreds of code points. Every table here is asked from the package,
over every code point, so that this project's tokens equal its tokens whatever those versions are.
The committed files were made with tokenizers 0.23.3.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
import unicodedata

import tokenizers
from tokenizers import normalizers, pre_tokenizers

VERSION = "0.23.3"
CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
HANGUL = range(0xAC00, 0xD7A4)  # decomposed by arithmetic
FOLDER = pathlib.Path(__file__).resolve().parent.parent / "src" / "tokenizers"


def bert(**on: bool) -> normalizers.BertNormalizer:
    """A BertNormalizer with only the named steps."""
    off = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    return normalizers.BertNormalizer(**{**off, **on})


def normalized(normalizer: normalizers.Normalizer, template: str = "{}") -> dict[int, str]:
    """What the normaliser makes of every code point in the template."""
    return {c: normalizer.normalize_str(template.replace("{}", chr(c))) for c in CODE_POINTS}


def pieces(splitter: pre_tokenizers.PreTokenizer) -> dict[int, int]:
    """Into how many pieces every code point cuts a word."""
    return {c: len(splitter.pre_tokenize_str("a" + chr(c) + "a")) for c in CODE_POINTS}


def combining_classes() -> dict[int, int]:
    """The canonical combining class that NFD's ordering shows, where it is not zero.

    A ladder of one mark of every class, in descending order, stands behind or before the code
    point. NFD sorts it: the code point ends up beside the rung of its own class, and only one of
    class 0 stays where it was on both sides.
    """
    nfd = normalizers.NFD()
    marks: dict[int, str] = {}
    for c in CODE_POINTS:
        k = unicodedata.combining(chr(c))
        # Marks that the package does not know yet stay behind U+0345, whose class is the highest.
        known = c == 0x345 or nfd.normalize_str("a\u0345" + chr(c)) == "a" + chr(c) + "\u0345"
        if k and k not in marks and known:
            marks[k] = chr(c)
    rungs = sorted(marks)
    down, up = "".join(marks[k] for k in reversed(rungs)), "".join(marks[k] for k in rungs)
    if nfd.normalize_str("a" + down) != "a" + up:
        sys.exit("combining classes: NFD does not sort the ladder of marks")
    found = {}
    for c in CODE_POINTS:
        char = chr(c)
        if nfd.normalize_str(char) != char:
            continue
        behind, before = nfd.normalize_str("a" + down + char), nfd.normalize_str("a" + char + down)
        if behind == "a" + up + char and before == "a" + char + up:
            continue
        found[c] = rungs[behind.rindex(char) - 2]
    return found


def ranges(members: list[int]) -> list[list[int]]:
    """Sorted code points as closed ranges; surrogates, which no text holds, are bridged."""
    out: list[list[int]] = []
    for c in members:
        if out and (out[-1][1] == c - 1 or (out[-1][1] == 0xD7FF and c == 0xE000)):
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def wrap(items: list[str], indent: str = "    ", width: int = 100) -> str:
    lines, line = [], indent.rstrip("\n")
    for item in items:
        if len(line) + len(item) + 1 > width:
            lines.append(line.rstrip())
            line = indent
        line += item + " "
    return "\n".join(lines + [line.rstrip()])


HEAD = """// Made by tools/make_unicode_tables.py from the behaviour of tokenizers {version}; do not edit.
// clang-format off
#include "tokenizers/unicode_tables.h"

namespace hedgerow::tokenizers {{
"""
TAIL = """
}  // namespace hedgerow::tokenizers
"""


def range_table(name: str, about: str, members: list[int]) -> str:
    body = wrap(["{0x%X, 0x%X}," % (a, b) for a, b in ranges(members)])
    return f"\n// {about}\nstatic constexpr CodePointRange {name}Ranges[] = {{\n{body}\n}};\nconst RangeTable {name} = {{{name}Ranges, std::size({name}Ranges)}};\n"


def ranges_file() -> str:
    cleaned = normalized(bert(clean_text=True), "a{}b")
    accents = normalized(bert(strip_accents=True), "a{}b")
    marks = normalized(normalizers.StripAccents(), "a{}b")
    chinese = normalized(bert(handle_chinese_chars=True))
    words, punctuation, spaces = (
        pieces(s) for s in (pre_tokenizers.Whitespace(), pre_tokenizers.BertPreTokenizer(), pre_tokenizers.WhitespaceSplit())
    )
    # A code point that decomposes into marks alone is stripped too; it is no mark itself.
    nfd = normalized(normalizers.NFD())
    whole = {c for c in CODE_POINTS if nfd[c] == chr(c)}
    return (
        HEAD.format(version=VERSION)
        + range_table("kWhitespace", "White_Space.", [c for c in CODE_POINTS if spaces[c] == 2])
        + range_table("kCleanSpace", "What BertNormalizer's clean_text turns into a space.", [c for c in CODE_POINTS if cleaned[c] == "a b"])
        + range_table("kCleanDropped", "What BertNormalizer's clean_text drops.", [c for c in CODE_POINTS if cleaned[c] == "ab"])
        + range_table("kChinese", "What BertNormalizer puts spaces around.", [c for c in CODE_POINTS if chinese[c] != chr(c)])
        + range_table("kPunctuation", "What BertPreTokenizer isolates.", [c for c in CODE_POINTS if punctuation[c] == 3])
        + range_table("kNonspacingMark", "What BertNormalizer's strip_accents drops after NFD.", [c for c in CODE_POINTS if c in whole and accents[c] == "ab"])
        + range_table("kMark", "What StripAccents drops.", [c for c in CODE_POINTS if marks[c] == "ab"])
        + range_table("kWord", "\\w of regular expressions.", [c for c in CODE_POINTS if words[c] == 1])
        + TAIL
    )


def runs(mapping: dict[int, int]) -> list[list[int]]:
    """[first, last, stride, delta]: stretches of code points 1 or 2 apart that move by the same delta."""
    out: list[list[int]] = []
    for c, to in sorted(mapping.items()):
        if out:
            first, last, stride, delta = out[-1]
            gap = c - last
            if to - c == delta and gap in (1, 2) and (first == last or gap == stride):
                out[-1] = [first, c, gap, delta]
                continue
        out.append([c, c, 1, to - c])
    return out


def mappings_file() -> str:
    lower = {c: s for c, s in normalized(normalizers.Lowercase()).items() if s != chr(c)}
    nfd = {c: s for c, s in normalized(normalizers.NFD()).items() if s != chr(c) and c not in HANGUL}
    single = {c: ord(s) for c, s in lower.items() if len(s) == 1}
    several = {c: s for c, s in lower.items() if len(s) > 1}
    if set(several) != {0x130} or several[0x130] != "i\u0307":
        sys.exit(f"lowercase: U+0130 alone was expected to grow; got {several}")
    lower_rows = ["{0x%X, 0x%X, %d, %d}," % tuple(r) for r in runs(single)]
    classes: list[list[int]] = []
    for c, k in sorted(combining_classes().items()):
        if classes and classes[-1][1] == c - 1 and classes[-1][2] == k:
            classes[-1][1] = c
        else:
            classes.append([c, c, k])
    class_rows = ["{0x%X, 0x%X, %d}," % tuple(r) for r in classes]
    text, last = [], 0
    for c, s in sorted(nfd.items()):
        text.append("%X %s;" % (c - last, " ".join("%X" % ord(x) for x in s)))
        last = c
    lines, line = [], ""
    for item in text:
        if len(line) + len(item) > 92:
            lines.append(f'    "{line}"')
            line = ""
        line += item
    lines.append(f'    "{line}"')
    return (
        HEAD.format(version=VERSION)
        + "\n// Lowercase of one code point: stretches {first, last, stride, delta}; U+0130 grows to i and U+0307.\n"
        + "static constexpr LowercaseRun kLowercaseRunsData[] = {\n" + wrap(lower_rows) + "\n};\n"
        + "const LowercaseRun* const kLowercaseRuns = kLowercaseRunsData;\nconst size_t kNumLowercaseRuns = std::size(kLowercaseRunsData);\n"
        + "\n// Canonical combining classes other than 0.\n"
        + "static constexpr CombiningRun kCombiningRunsData[] = {\n" + wrap(class_rows) + "\n};\n"
        + "const CombiningRun* const kCombiningRuns = kCombiningRunsData;\nconst size_t kNumCombiningRuns = std::size(kCombiningRunsData);\n"
        + "\n// Full canonical decompositions without Hangul: difference to the key before, then the code points.\n"
        + "const char kDecompositions[] =\n" + "\n".join(lines) + ";\n"
        + TAIL
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    if tokenizers.__version__ != VERSION:
        sys.exit(f"tokenizers {VERSION} is needed; got {tokenizers.__version__}")
    status = 0
    for name, text in (("unicode_ranges.cc", ranges_file()), ("unicode_mappings.cc", mappings_file())):
        path = FOLDER / name
        if not arguments.check:
            path.write_text(text)
        elif path.read_text() != text:
            print(f"{path}: differs from what tokenizers {VERSION} does")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
