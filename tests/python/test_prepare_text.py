"""tools/prepare_text.py: the markup rules on small records, and the real modules where installed."""

import hashlib
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "tools" / "prepare_text.py"
sys.path.insert(0, str(SCRIPT.parent))
import prepare_text as pt  # noqa: E402


@pytest.mark.parametrize(
    ("osis", "text"),
    [
        # A note between two words took the space with it.
        ('<w>God</w><note placement="foot">x <rdg>y</rdg></note><w>made</w>', "God made"),
        ("this rock<note>n</note>I will", "this rock I will"),
        ("behold,<note>n</note>a man", "behold, a man"),
        ("Omega,<note>n</note>”says God,<note>n</note>“who is", "Omega,” says God, “who is"),
        # It takes no space where punctuation follows.
        ("gerahs<note>n</note>); half", "gerahs); half"),
        ("the gods.<note>n</note>”", "the gods.”"),
        ("like me.’<note>a</note><note>b</note>", "like me.’"),
        # A closing quotation mark and the next sentence.
        ("<q>made clean.”</q><w>Immediately</w> he", "made clean.” Immediately he"),
        # Lines of verse and paragraphs end words, inline elements do not.
        ('for ever.<l eID="1"/><l sID="2"/>Amen', "for ever. Amen"),
        ("shall be <w>give</w>n.", "shall be given."),
        ("<w>repartiéron</w>lo <w>prestamente</w>", "repartiéronlo prestamente"),
        (
            "<w>en Jerusalem</w><transChange>que es</transChange><w>en Rama</w>",
            "en Jerusalem que es en Rama",
        ),
        # Labels, headings, pilcrows, leaked markup, editors' brackets.
        ("<speaker>Friends</speaker> <l/>We will", "We will"),
        ('<title type="psalm">A Psalm by David.</title> Yahweh', "Yahweh"),
        ("<div/>¶ And <w>God</w> said", "And God said"),
        ("the \\nd <divineName>LORD</divineName> hath", "the LORD hath"),
        (
            "to the end<note>n</note>[of days, who speak] to them",
            "to the end of days, who speak to them",
        ),
        # The glossary behind the last verse, and a verse that is only a note.
        ('Amen. <chapter/> <div sID="g" type="glossary"/> <list><item>Abba</item></list>', "Amen."),
        ('<note placement="foot">Verse 7 is omitted.</note> <l/>', ""),
    ],
)
def test_strip_markup(osis, text):
    assert pt.strip_markup(osis) == text


def test_read_verses_skips_headings_and_empty_verses():
    raw = (
        "$$$[ Module Heading ]\n\n$$$Genesis 1:0\n<chapter/>\n$$$Genesis 1:1\nIn the\nbeginning.\n"
        "$$$Genesis 1:2\n<note>omitted</note>\n$$$I John 1:3\nThat\n"
    )
    assert pt.read_verses(raw) == [
        pt.Verse("Genesis", 1, 1, "In the beginning."),
        pt.Verse("I John", 1, 3, "That"),
    ]


def test_align_drops_pairs_of_very_different_length():
    left = [pt.Verse("Ruth", 1, n, "x" * 10) for n in (1, 2, 3, 4)]
    right = [
        pt.Verse("Ruth", 1, 1, "y" * 20),
        pt.Verse("Ruth", 1, 2, "y" * 21),
        pt.Verse("Ruth", 1, 4, "y" * 4),
    ]
    assert pt.align(left, right) == [("Ruth 1:1", "x" * 10, "y" * 20)]


def test_split_holds_out_whole_chapters_without_copies():
    def held(chapter):
        return int(hashlib.md5(f"Mark {chapter}".encode()).hexdigest(), 16) % 10 == 0

    chapters = range(1, 60)
    out, kept = [c for c in chapters if held(c)], [c for c in chapters if not held(c)]
    assert out and kept
    verses = [pt.Verse("Mark", c, 1, f"verse of {c}") for c in chapters]
    verses += [pt.Verse("Mark", out[0], 2, "twice"), pt.Verse("Mark", kept[0], 2, "twice")]
    train, heldout, before = pt.split(verses)
    assert heldout == [f"verse of {c}" for c in out]
    assert before == len(out) + 1
    assert sorted(train) == sorted([f"verse of {c}" for c in kept] + ["twice"])


def test_wrong_counts_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(pt, "export", lambda module: "$$$Genesis 1:1\nIn the beginning.\n")
    with pytest.raises(pt.PrepareError, match=r"engWEB2015eb must be 37457; got 1"):
        pt.prepare(tmp_path)
    assert not list(tmp_path.iterdir())


def modules_installed():
    try:
        return all(pt.export(module) for module in pt.MODULES.values())
    except pt.PrepareError:
        return False


needs_modules = pytest.mark.skipif(not modules_installed(), reason="SWORD modules not installed")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    out = tmp_path_factory.mktemp("text")
    subprocess.run([sys.executable, SCRIPT, "--out", out], check=True)
    return out


def lines(path):
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")


@needs_modules
def test_counts(prepared):
    count = {name: len(lines(prepared / name)) for name in pt.FILES}
    assert count["web.txt"] == 37457
    assert count["rv.txt"] == 31084
    assert count["kjv.txt"] == 31102
    assert count["web.train.txt"] == 34088
    assert count["web.heldout.txt"] == 3369 - 31
    for name in ("web-rv.tsv", "kjv-web.tsv"):
        assert 30500 < count[name] < 31102
    assert abs((prepared / "web.txt").stat().st_size - 4.87e6) < 5e3
    assert abs((prepared / "rv.txt").stat().st_size - 3.94e6) < 5e3
    assert abs((prepared / "kjv.txt").stat().st_size - 4.14e6) < 5e3


@needs_modules
@pytest.mark.parametrize("name", ["web.txt", "rv.txt", "kjv.txt"])
def test_no_markup_no_glued_words(prepared, name):
    glued = re.compile(r"[a-zé][A-ZÁÉÍÓÚ]|[,;:?!)”][^\W\d_]|\.[^\W\d_]|[^\W\d_][“(]")
    for number, line in enumerate(lines(prepared / name), 1):
        assert line and line == " ".join(line.split()), number
        assert not set(line) & set("<>[]¶\\\t\x01\x02"), (number, line)
        assert not glued.search(line), (number, line)
        assert not re.search(r" [,.;:?!)”]|[“(] ", line), (number, line)


@needs_modules
def test_known_verses(prepared):
    web = lines(prepared / "web.txt")
    assert web[0] == "In the beginning, God created the heavens and the earth."
    assert web[-1] == "The grace of the Lord Jesus Christ be with all the saints. Amen."
    assert sum("on this rock I will build my assembly" in line for line in web) == 1
    kjv = lines(prepared / "kjv.txt")
    assert kjv[5].startswith("And God said, Let there be a firmament")
    rv = lines(prepared / "rv.txt")
    assert rv[0] == "EN el principio crió Dios los cielos y la tierra."


@needs_modules
def test_aligned_pairs(prepared):
    web, kjv = set(lines(prepared / "web.txt")), set(lines(prepared / "kjv.txt"))
    for line in lines(prepared / "kjv-web.tsv"):
        reference, left, right = line.split("\t")
        assert re.fullmatch(r".+ \d+:\d+", reference)
        assert left in kjv and right in web
        assert 0.5 <= len(left) / len(right) <= 2.0


@needs_modules
def test_held_out_lines_are_not_training_lines(prepared):
    train, heldout = lines(prepared / "web.train.txt"), lines(prepared / "web.heldout.txt")
    assert not set(train) & set(heldout)
    assert set(train) | set(heldout) == set(lines(prepared / "web.txt"))


@needs_modules
def test_second_run_does_nothing_and_force_gives_the_same_bytes(prepared):
    before = {name: (prepared / name).stat().st_mtime_ns for name in pt.FILES}
    digest = {name: hashlib.sha256((prepared / name).read_bytes()).digest() for name in pt.FILES}
    done = subprocess.run(
        [sys.executable, SCRIPT, "--out", prepared], capture_output=True, check=True
    )
    assert done.stdout == b""
    assert before == {name: (prepared / name).stat().st_mtime_ns for name in pt.FILES}
    subprocess.run([sys.executable, SCRIPT, "--out", prepared, "--force"], check=True)
    assert digest == {n: hashlib.sha256((prepared / n).read_bytes()).digest() for n in pt.FILES}
