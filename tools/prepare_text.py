#!/usr/bin/env python3
"""Plain text from Debian's SWORD modules: one verse a line, and the files that the demo needs.

    prepare_text.py [--out build/data]

Reads the raw OSIS of three public-domain translations with `mod2imp` (package libsword-utils;
modules sword-text-web, sword-text-sparv, sword-text-kjv) and writes

    web.txt rv.txt kjv.txt          World English Bible, Reina-Valera 1909, King James
    web-rv.tsv kjv-web.tsv          reference, and the verse in two translations, tabs between
    web.train.txt web.heldout.txt   whole chapters held out, by the MD5 of "Book chapter"

The filter of SWORD's own plain-text export glues words together and leaves tags behind, so the
markup is taken off here. Every count that a correct preparation yields is checked; a module of
another edition is refused rather than half understood. Same modules, same bytes; when all files
are there already, nothing is done.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import NamedTuple


class Verse(NamedTuple):
    book: str
    chapter: int
    verse: int
    text: str

    @property
    def key(self) -> tuple[str, int, int]:
        return self.book, self.chapter, self.verse


class Module(NamedTuple):
    name: str
    package: str
    num_lines: int


MODULES = {
    "web": Module("engWEB2015eb", "sword-text-web", 37457),
    "rv": Module("spaRV1909eb", "sword-text-sparv", 31084),
    "kjv": Module("engKJV2006eb", "sword-text-kjv", 31102),
}
NUM_TRAIN, NUM_HELDOUT, NUM_COPIES = 34088, 3369, 31
FILES = (
    "web.txt",
    "rv.txt",
    "kjv.txt",
    "web-rv.tsv",
    "kjv-web.tsv",
    "web.train.txt",
    "web.heldout.txt",
)

# Elements inside a line of text; every other tag ends a word.
INLINE = {"w", "q", "transChange", "divineName", "name", "seg", "foreign"}
NOTE = "\x01"  # where a note was
EDGE = "\x02"  # where an inline tag was


class PrepareError(Exception):
    """One line for the user."""


def read_records(raw: str) -> Iterator[tuple[str, str]]:
    """Key and body of each record of `mod2imp`'s output."""
    for record in raw.split("$$$")[1:]:
        key, _, body = record.partition("\n")
        yield key.strip(), body


def strip_markup(osis: str) -> str:
    """Text of one verse of OSIS, one line.

    Notes, speaker labels and headings go with what they contain. A space is put back where taking
    away a note, or the boundary of two neighbouring elements, would glue two words.
    """
    glossary = osis.find('type="glossary"')  # WEB: 3,000 words in the record of the last verse
    text = osis if glossary < 0 else osis[: osis.rindex("<", 0, glossary)]
    text = re.sub(r"<note\b.*?</note>", NOTE, text, flags=re.DOTALL)
    text = re.sub(r"<(speaker|title)\b.*?</\1>", " ", text, flags=re.DOTALL)
    text = re.sub(r"</?([A-Za-z]+)[^>]*>", lambda m: EDGE if m[1] in INLINE else " ", text)
    text = re.sub(rf"(?<=[^\W\d_]){EDGE}{{2,}}(?=[^\W\d_])", " ", text).replace(EDGE, "")
    text = re.sub(rf"(?<=[\w,.;:?!’”]){NOTE}+(?=[\w“‘(\[])", " ", text).replace(NOTE, "")
    text = re.sub(r"”(?=[^\W\d_])", "” ", text)
    text = re.sub(r"\\nd\b|[¶\[\]]", " ", text)
    return re.sub(r" (?=[,.;:?!)”])", "", " ".join(text.split()))


def export(module: Module) -> str:
    """Raw OSIS of a module, as `mod2imp` prints it."""
    if shutil.which("mod2imp") is None:
        raise PrepareError("prepare_text: mod2imp is not installed (Debian: libsword-utils)")
    done = subprocess.run(["mod2imp", module.name], capture_output=True, check=False)
    if done.returncode != 0 or not done.stdout:
        raise PrepareError(
            f"prepare_text: mod2imp has no module {module.name} (Debian: {module.package})"
        )
    return done.stdout.decode("utf-8")


def read_verses(raw: str) -> list[Verse]:
    """The verses that have text, in the module's order. Headings (verse 0) are not verses."""
    verses = []
    for key, body in read_records(raw):
        match = re.fullmatch(r"(.+) (\d+):(\d+)", key)
        if match is None or int(match[2]) == 0 or int(match[3]) == 0:
            continue
        text = strip_markup(body)
        if text:
            verses.append(Verse(match[1], int(match[2]), int(match[3]), text))
    return verses


def align(left: list[Verse], right: list[Verse]) -> list[tuple[str, str, str]]:
    """Reference and both texts of the same verse, in the order of `left`.

    Editions number some verses differently; a pair whose lengths differ by more than a factor of
    two is one of those, or a verse that one edition shortens, and is dropped.
    """
    by_key = {verse.key: verse.text for verse in right}
    pairs = []
    for verse in left:
        other = by_key.get(verse.key)
        if other is not None and 0.5 <= len(verse.text) / len(other) <= 2.0:
            reference = f"{verse.book} {verse.chapter}:{verse.verse}"
            pairs.append((reference, verse.text, other))
    return pairs


def is_held_out(verse: Verse) -> bool:
    """Whole chapters: the MD5 of "Book chapter", as a number, divides by ten."""
    name = f"{verse.book} {verse.chapter}".encode()
    return int(hashlib.md5(name, usedforsecurity=False).hexdigest(), 16) % 10 == 0


def split(verses: list[Verse]) -> tuple[list[str], list[str], int]:
    """Training lines, held-out lines, and the number of held-out lines before exact copies of
    training lines were taken out of them."""
    train = [verse.text for verse in verses if not is_held_out(verse)]
    heldout = [verse.text for verse in verses if is_held_out(verse)]
    seen = set(train)
    return train, [text for text in heldout if text not in seen], len(heldout)


def require(what: str, got: int, expected: int) -> None:
    if got != expected:
        raise PrepareError(f"prepare_text: {what} must be {expected}; got {got}")


def write_lines(path: pathlib.Path, lines: list[str]) -> None:
    """All or nothing: written beside the target, then renamed."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_bytes("".join(line + "\n" for line in lines).encode("utf-8"))
    os.replace(temporary, path)


def prepare(out: pathlib.Path) -> None:
    verses = {}
    for name, module in MODULES.items():
        verses[name] = read_verses(export(module))
        require(f"verses of {module.name}", len(verses[name]), module.num_lines)
    train, heldout, num_heldout = split(verses["web"])
    require("training lines", len(train), NUM_TRAIN)
    require("held-out lines", num_heldout, NUM_HELDOUT)
    require("held-out copies of training lines", num_heldout - len(heldout), NUM_COPIES)

    out.mkdir(parents=True, exist_ok=True)
    for name in MODULES:
        write_lines(out / f"{name}.txt", [verse.text for verse in verses[name]])
    for left, right in (("web", "rv"), ("kjv", "web")):
        pairs = align(verses[left], verses[right])
        write_lines(out / f"{left}-{right}.tsv", ["\t".join(pair) for pair in pairs])
    write_lines(out / "web.train.txt", train)
    write_lines(out / "web.heldout.txt", heldout)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("build/data"))
    parser.add_argument("--force", action="store_true", help="prepare again")
    arguments = parser.parse_args()
    # The stamp names the version of this file: a changed preparation is done again.
    stamp = arguments.out / ".prepared"
    version = hashlib.sha256(pathlib.Path(__file__).read_bytes()).hexdigest() + "\n"
    present = all((arguments.out / name).is_file() for name in FILES)
    if present and not arguments.force and stamp.is_file() and stamp.read_text() == version:
        return 0
    try:
        prepare(arguments.out)
    except (PrepareError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, PrepareError) else 1
    write_lines(stamp, [version.strip()])
    for name in FILES:
        with open(arguments.out / name, "rb") as file:
            print(f"{arguments.out / name}: {sum(1 for _ in file):,} lines")
    return 0


if __name__ == "__main__":
    sys.exit(main())
