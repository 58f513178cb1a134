"""`hw4 similar`: copies are found however they are disguised, and programs that only solve the same task are not."""

import csv
import io
import json
import re
import shutil
import signal
import subprocess
import zipfile

import pytest
from browser import COLOURS, PHONE, WIDTH, find, opened, screen
from helpers import ROOT, fails, fits, on_a_terminal, run_hw4, start_hw4, wait_until
from hypothesis import given, settings
from hypothesis import strategies as st
from needs import needs
from slow import quick_of_each, slow
from solutions import MATRICES, STREAMED, commented, padded, renamed, reordered

from hw4cli.judge.similarity import works
from hw4cli.judge.similarity.pairs import THRESHOLD, compared, similar
from hw4cli.judge.similarity.tokens import symbols
from hw4cli.judge.similarity.winnowing import GRAM, WINDOW, Print
from hw4cli.judge.similarity.works import Source, work
from hw4cli.resources import data_path, kernel_source

KIT = data_path(works.KIT).read_text()
NOTHING = works.starter_code(())
DISGUISES = {
    "other names": renamed,
    "functions in another order": reordered,
    "other comments, format and numbers": commented,
    "statements that do nothing": padded,
    "all of these": lambda text: commented(padded(renamed(reordered(text)))),
}


def of(text, label="ann"):
    return work(label, [Source("hw4.cu", text.split("\n"))], NOTHING)


def similarity(one, other):
    return compared(of(one), of(other, "bob")).similarity


def hand_in(folder, **texts):
    """Submissions with an hw4.cu of these texts."""
    for user, text in texts.items():
        (folder / user).mkdir(parents=True)
        (folder / user / "hw4.cu").write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


def pairs_of(document):
    return [(one["first"], one["second"]) for one in document["pairs"]]


@pytest.fixture
def found(hw4_in_process):
    """The document that `hw4 similar --json` prints."""

    def run(*words, code=0):
        result = hw4_in_process("similar", *words, "--json")
        assert result.returncode == code, result.stderr
        return json.loads(result.stdout)

    return run


# --- programs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("original", [MATRICES, STREAMED], ids=["matrices", "streamed"])
@pytest.mark.parametrize("name", DISGUISES)
def test_a_disguised_copy_is_far_above_the_threshold(original, name):
    copy = DISGUISES[name](original)
    assert copy != original
    assert similarity(original, copy) > THRESHOLD + 25


def test_names_comments_and_the_format_alone_leave_no_difference():
    assert similarity(MATRICES, renamed(MATRICES)) == 100
    assert similarity(STREAMED, commented(STREAMED)) == 100


@slow
@needs("g++")
@pytest.mark.parametrize("original", [MATRICES, STREAMED], ids=["matrices", "streamed"])
def test_what_the_tests_call_a_copy_is_a_program_that_compiles(original, tmp_path):
    for text in (original, commented(renamed(original)), padded(original)):
        source = tmp_path / "x.cpp"
        source.write_text(text)
        subprocess.run(["g++", "-std=c++14", "-fsyntax-only", source], check=True)


def test_two_students_who_solved_the_same_task_are_far_below_it():
    assert similarity(MATRICES, STREAMED) < THRESHOLD / 4
    student = (ROOT / "kernels/host/student.cu").read_text()
    assert similarity(MATRICES, student) < THRESHOLD / 4 and similarity(STREAMED, student) < THRESHOLD / 4


def test_a_copy_that_is_part_of_a_longer_program_and_one_in_several_files_is_found():
    whole = compared(of(STREAMED), of(MATRICES + renamed(STREAMED), "bob"))
    assert whole.similarity > 95 and whole.shares[1] < 60, "of the longer one it is about a half"
    head, middle, tail = STREAMED.partition("int main")
    split = work("bob", [Source("hw4.cu", (middle + tail).split("\n")), Source("q.cuh", head.split("\n"))], NOTHING)
    pair = compared(of(STREAMED), split)
    assert pair.similarity > 95
    assert {split.sources[other.source].name for _, other in pair.extracts} == {"hw4.cu", "q.cuh"}


def test_hip_is_cuda_by_another_name():
    cuda = (ROOT / "kernels/host/student.cu").read_text()
    hip = cuda.replace("cuda", "hip")
    assert hip != cuda and similarity(cuda, hip) == 100


def test_lines_that_are_shown_are_the_common_ones():
    pair = compared(of(MATRICES), of("\n\n\n" + renamed(STREAMED) + renamed(MATRICES, 7), "bob"))
    mine, theirs = (
        " ".join(extract_lines(one, side))
        for one, side in zip((pair.first, pair.second), pair.extracts[0], strict=True)
    )
    assert "inner_product" in mine and "inner_product" in theirs
    for one, other in pair.extracts:
        assert 1 <= one.first <= one.last <= MATRICES.count("\n") + 1
        assert one.common <= set(range(one.first, one.last + 1)) and other.first in other.common


def extract_lines(one, extract):
    return one.sources[extract.source].lines[extract.first - 1 : extract.last]


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6), st.integers(0, 400), st.integers(0, 400))
def test_two_programs_that_share_so_many_symbols_in_a_row_share_a_fingerprint(seed, before, behind):
    """Winnowing's guarantee, wherever the symbols stand."""
    import random

    words = random.Random(seed)
    text = [words.choice("abcdefgh+-*/<>=&|^!") + str(words.randrange(3)) for _ in range(GRAM + WINDOW - 1)]

    def made(count, letter):
        noise = [f"{words.choice('?:,[]()')}{letter}" for _ in range(count)]
        return f"{' '.join(noise)} {' '.join(['@', *(f'{one[0]} __{one}' for one in text), '@'])} {' '.join(noise)}"

    one, other = of(made(before, "__x")), of(made(behind, "__y"), "bob")
    assert len(set(one.print.fingerprints) & set(other.print.fingerprints)) >= 1
    assert compared(one, other).shared >= GRAM + WINDOW - 1


@settings(deadline=None, max_examples=100)
@given(st.text(st.sampled_from(" \n\\\"'/*#R(){};x1.é\t\0")), st.text())
def test_any_text_is_symbols_with_lines_that_are_there(odd, text):
    for one in (odd, text):
        lines = [line for _, line in symbols(one)]
        assert lines == sorted(lines) and all(1 <= line <= one.count("\n") + 1 for line in lines)


def test_no_pair_is_lost_by_looking_at_fingerprints_first():
    """All pairs, each looked at, and those that the index proposes are the same from the threshold on."""
    texts = [MATRICES, STREAMED, padded(renamed(MATRICES), 2), STREAMED[: len(STREAMED) // 2] + MATRICES]
    texts += [reordered(renamed(STREAMED, 3), 4), (ROOT / "kernels/host/student.cu").read_text()]
    class_ = [of(text, f"u{number}") for number, text in enumerate(texts)]
    every = {
        (one.label, other.label): compared(one, other).similarity
        for number, one in enumerate(class_)
        for other in class_[number + 1 :]
    }
    quick = {(pair.first.label, pair.second.label): pair.similarity for pair in similar(class_, [], THRESHOLD)}
    assert quick == {pair: value for pair, value in every.items() if value >= THRESHOLD}
    assert 4 <= len(quick) < len(every)


def test_a_text_that_repeats_itself_does_not_take_for_ever():
    many = of("x = y + z * 2;\n" * 30_000)
    assert many.total > 150_000
    pair = compared(many, of("x = y + z * 2;\n" * 20_000, "bob"))
    assert 0 <= pair.similarity <= 100
    assert isinstance(many.print, Print)


# --- a class ---------------------------------------------------------------------------------------------------------


def test_a_class_is_read_as_the_judge_reads_it(found, tmp_path):
    folder = tmp_path / "export"
    hand_in(folder, ann=MATRICES)
    (folder / "bob_1234_77_hw4.cu").write_text(renamed(MATRICES).replace("\n", "\r\n"))
    with zipfile.ZipFile(folder / "cid.zip", "w") as archive:
        archive.writestr("cid/hw4/hw4.cu", '#include "q.cuh"\n')
        archive.writestr("cid/hw4/src/q.cuh", reordered(MATRICES))
        archive.writestr("__MACOSX/cid/._hw4.cu", STREAMED)
    moodle = folder / "Dan Lee_30_assignsubmission_file_" / "a"
    moodle.mkdir(parents=True)
    (moodle / "hw4.hip").write_bytes(("\ufeff" + STREAMED).encode("utf-16"))
    (folder / "empty").mkdir()
    (folder / "fay.rar").write_bytes(b"Rar!")
    (folder / "gus.zip").write_bytes(b"PK\3\4 cut")
    for name in "xy":  # two folders: the judge asks which is meant, but here both are compared
        (folder / "two" / name).mkdir(parents=True)
        (folder / "two" / name / "hw4.cu").write_text(STREAMED if name == "x" else KIT)
    document = found(folder, code=3)
    assert {one["label"] for one in document["submissions"]} == {"ann", "bob_1234", "cid", "Dan Lee_30", "two"}
    assert set(pairs_of(document)) == {
        ("ann", "bob_1234"),
        ("ann", "cid"),
        ("bob_1234", "cid"),
        ("Dan Lee_30", "two"),
    }
    assert all(one["similarity"] > 90 for one in document["pairs"])
    missing = document["not_compared"]
    assert "no zip and no tar: unpack it" in missing["fay"] and missing["gus"].startswith("hw4.zip is damaged")
    assert missing["empty"] == "it holds no source, such as hw4.cu"
    assert len(list((tmp_path).iterdir())) == 1, "nothing is left beside the class"


@slow
def test_starter_code_that_all_share_makes_no_pair(found, tmp_path):
    starter = tmp_path / "starter"
    starter.mkdir()
    (starter / "hw4.cu").write_text(STREAMED)
    folder = hand_in(
        tmp_path / "class",
        kit=KIT,
        kit2=renamed(KIT),
        ann=STREAMED + MATRICES,
        bob=STREAMED + (ROOT / "kernels/host/student.cu").read_text(),
        cid=STREAMED,
        dan=STREAMED.replace("mmap", "own_map"),
    )
    document = found(folder)
    assert {"kit", "kit2"} <= document["not_compared"].keys(), "what hw4 kit writes is left out by itself"
    assert "too short without the starter code: 0 of" in document["not_compared"]["kit"]
    assert ("cid", "dan") in pairs_of(document) and ("ann", "cid") in pairs_of(document)
    document = found(folder, "--exclude", starter)
    assert {"ann", "bob"} == {one["label"] for one in document["submissions"]}
    assert pairs_of(document) == [("bob", "hw4: host/student.cu")]
    assert pairs_of(found(folder, "--exclude", starter / "hw4.cu")) == pairs_of(document)


def test_tiny_empty_and_broken_files_are_named_and_make_no_pair(found, tmp_path):
    tiny = "int main() { return 3; }\n"
    noise = bytes(range(256)) * 40
    folder = hand_in(tmp_path / "class", a=tiny, b=tiny, c="", d="", e=noise, f=MATRICES, g="/* never ends " + MATRICES)
    (folder / "h").mkdir()
    (folder / "h" / "hw4").write_bytes(b"\x7fELF")
    (folder / "f" / "data.h").write_text("0.5f, " * 300_000)
    document = found(folder)
    assert document["pairs"] == []
    assert document["not_compared"]["a"] == "it is too short: 6 tokens" == document["not_compared"]["b"]
    assert document["not_compared"]["c"] == "it is too short: 0 tokens" == document["not_compared"]["g"]
    assert document["not_compared"]["h"] == "it holds no source, such as hw4.cu"
    notes = {one["label"]: one["notes"] for one in document["submissions"]}
    assert notes == {"e": [], "f": ["data.h is left out: it is larger than 1 MB"]}


def test_a_source_in_another_encoding_is_compared(found, tmp_path):
    text = "// 平行程式 作業四\n" + MATRICES
    folder = hand_in(
        tmp_path / "class", utf8=text, big5=renamed(text).encode("big5"), utf16=("\ufeff" + text).encode("utf-16-be")
    )
    assert [one["similarity"] for one in found(folder)["pairs"]] == [100.0] * 3


def test_last_years_copy_is_found_and_former_years_are_compared_with_the_class_alone(found, tmp_path):
    now = hand_in(tmp_path / "class", ann=MATRICES, bob=STREAMED)
    former = hand_in(tmp_path / "2025", old=renamed(MATRICES), older=commented(MATRICES))
    document = found(now, "--with", former)
    assert pairs_of(document) == [("ann", "2025/old"), ("ann", "2025/older")]
    assert {one["label"] for one in document["submissions"]} == {"ann", "bob"}


def test_who_hands_in_hw4s_own_kernel_is_named_with_it(found, tmp_path):
    flash, export = kernel_source("flash"), (ROOT / "kernels/host/hw4.cu").read_text()
    disguised = re.sub(r"\b(row|score|tile|thread|key|sum|value|query|first|scale)", r"my_\1", flash)
    folder = hand_in(tmp_path / "class", kim=flash, lee=disguised, moe=export, ann=MATRICES)
    document = found(folder)
    own = {one["first"]: (one["second"], one["similarity"]) for one in document["pairs"] if "hw4: " in one["second"]}
    assert own["kim"][0] == "hw4: flash.cu" and own["kim"][1] > 99
    assert own["moe"] == ("hw4: host/hw4.cu", 100)
    assert own["lee"][0] == "hw4: flash.cu" and own["lee"][1] > 80
    assert own.keys() == {"kim", "lee", "moe"} and ("kim", "lee") in pairs_of(document)


def test_the_same_class_gives_the_same_bytes_in_any_order_of_its_files(tmp_path):
    texts = {"ann": MATRICES, "bob": renamed(MATRICES), "cid": padded(MATRICES), "dan": STREAMED}
    hand_in(tmp_path / "one" / "class", **texts)
    hand_in(tmp_path / "two" / "class", **dict(reversed(texts.items())))
    printed = [
        run_hw4("similar", tmp_path / name / "class", "--json", env={"PYTHONHASHSEED": seed})
        for name, seed in (("one", "1"), ("two", "2"))
    ]
    assert printed[0].stdout == printed[1].stdout and printed[0].returncode == 0
    assert len(json.loads(printed[0].stdout)["pairs"]) == 3


# --- what is shown ---------------------------------------------------------------------------------------------------


@pytest.fixture
def class_of_three(tmp_path):
    return hand_in(
        tmp_path / "class", **{"copy-a": MATRICES, "王小明": renamed("// <b>自己</b>\n" + MATRICES), "=cmd": STREAMED}
    )


def test_the_table_says_what_the_number_means_and_what_is_usual(hw4_in_process, class_of_three):
    result = hw4_in_process("similar", class_of_three)
    assert result.returncode == 0 and result.stderr == ""
    lines = result.stdout.splitlines()
    assert lines[0].split()[:3] == ["similar", "student", "with"]
    assert lines[1].split()[:3] == ["100%", "copy-a", "王小明"]
    said = " ".join(result.stdout.split())
    assert "3 submissions in 3 pairs compared" in said and "It is no proof" in said and "at most" in said


@quick_of_each(1)
@pytest.mark.parametrize("width", [60, 200])
def test_a_terminal_of_any_width_shows_the_pairs_and_the_lines_of_one(class_of_three, width):
    code, shown = on_a_terminal(width, "similar", class_of_three)
    assert code == 0 and "copy-a" in shown and "100%" in shown
    assert fits(shown, width), shown
    code, shown = on_a_terminal(width, "similar", class_of_three, "王小明", "copy-a")
    assert code == 0 and re.search(r"^ +\d+\*.* \|  *\d+\*", shown, re.MULTILINE), shown
    assert ("inner_product" in shown) == (width == 200)
    from rich.cells import cell_len

    assert all(cell_len(line) <= width for line in shown.splitlines())


def test_one_student_has_a_table_of_those_that_are_nearest(hw4_in_process, class_of_three):
    result = hw4_in_process("similar", class_of_three, "=cmd")
    rows = [line.split()[1] for line in result.stdout.splitlines()[1:4]]
    assert rows == ["=cmd"] * 3, "whatever the similarity"


def test_csv_and_a_page_have_the_pairs_and_only_their_owner_reads_them(hw4_in_process, class_of_three, tmp_path):
    page, table = tmp_path / "pairs.html", tmp_path / "pairs.csv"
    assert hw4_in_process("similar", class_of_three, "-o", page, "-o", table).returncode == 0
    rows = list(csv.DictReader(io.StringIO(table.read_text())))
    assert [(row["first"], row["second"], row["similarity"]) for row in rows] == [("copy-a", "王小明", "100.0")]
    assert rows[0]["longest"].startswith("hw4.cu:")
    html = page.read_text()
    assert html.count("<figure>") % 2 == 0 and html.count("<mark>") > 60
    assert "<b>自己</b>" not in html
    assert "inner_product" in html and "no proof" in html
    assert {path.stat().st_mode & 0o777 for path in (page, table)} == {0o600}


CONTRASTS = """
return [...document.querySelectorAll("h1, h2, p, th, td, a, figcaption, mark, mark b, pre span")].map(element => {
  let ground = [255, 255, 255], chain = [];
  for (let one = element; one; one = one.parentElement) chain.unshift(one);
  for (const one of chain) ground = over(numbers(getComputedStyle(one).backgroundColor), ground);
  return [element.tagName, contrast(ground, over(numbers(getComputedStyle(element).color), ground))];
}).filter(([_, ratio]) => ratio < 4.5);
"""


@pytest.mark.parametrize("width", [WIDTH, PHONE])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_read_on_a_phone_and_in_the_dark(chromium, hw4_in_process, class_of_three, width, scheme):
    page = class_of_three.parent / "pairs.html"
    assert hw4_in_process("similar", class_of_three, "-o", page).returncode == 0
    with opened(chromium, page.as_uri()):
        screen(chromium, width, scheme)
        inner, outer = chromium.execute_script("return [document.documentElement.scrollWidth, window.innerWidth]")
        assert inner <= outer
        assert chromium.execute_script(COLOURS + CONTRASTS) == []
        left, right = chromium.find_elements("css selector", ".sides figure")[:2]
        assert (left.location["y"] == right.location["y"]) == (width == WIDTH), "side by side, or below each other"
        find(chromium, "tbody a").click()
        assert chromium.current_url.endswith("#pair-1")


def test_a_class_without_pairs_has_a_page_and_a_table_too(hw4_in_process, tmp_path):
    folder = hand_in(tmp_path / "class", ann=MATRICES, bob=STREAMED)
    result = hw4_in_process("similar", folder, "-o", tmp_path / "p.html", "-o", tmp_path / "p.csv")
    assert result.returncode == 0 and "No pair has 40% or more in common." in result.stdout
    assert (tmp_path / "p.csv").read_text().startswith("similarity,first,second,")
    assert "<main>" in (tmp_path / "p.html").read_text()


def test_wrong_words_are_one_sentence(hw4_in_process, tmp_path, class_of_three):
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "nothing").mkdir()
    for words, code, sentence in (
        (["none"], 2, "cannot read the submissions in none"),
        ([tmp_path / "nothing"], 2, "holds no submissions"),
        ([class_of_three, "zoe"], 2, "there is no submission of 'zoe'"),
        ([class_of_three, "a", "b", "c"], 2, "name one student, or the two of a pair"),
        ([class_of_three, "--exclude", tmp_path / "none"], 2, "none"),
        ([class_of_three, "--exclude", tmp_path / "notes.txt"], 2, "is no source"),
        ([class_of_three, "--exclude", tmp_path / "nothing"], 2, "holds no sources"),
        ([class_of_three, "--with", class_of_three], 2, "is the class itself"),
        ([class_of_three, "--threshold", "101"], 2, "101"),
        ([class_of_three, "-o", tmp_path / "x.pdf"], 2, "does not say in which format"),
        ([class_of_three, "-o", tmp_path / "no" / "x.csv"], 2, "no"),
    ):
        fails(hw4_in_process("similar", *words), code, sentence)


@slow
def test_interrupted_it_leaves_no_page_and_no_copy_of_a_submission(tmp_path):
    folder = hand_in(tmp_path / "class", **{f"u{number}": MATRICES * 40 for number in range(60)})
    page, temporary = tmp_path / "p.html", tmp_path / "tmp"
    page.write_text("older")
    temporary.mkdir()
    for kind in (signal.SIGINT, signal.SIGKILL):
        process = start_hw4("similar", folder, "-o", page, env={"TMPDIR": str(temporary)})
        wait_until(lambda: list(temporary.glob("hw4-judge-*/copy/hw4.cu")), process)
        process.send_signal(kind)
        _, said = process.communicate(timeout=120)
        assert process.returncode == (130 if kind == signal.SIGINT else -signal.SIGKILL), said
        assert page.read_text() == "older" and {one.name for one in tmp_path.iterdir()} == {"class", "p.html", "tmp"}
        left = list(temporary.iterdir())
        assert bool(left) == (kind == signal.SIGKILL)
    for one in folder.iterdir():
        if one.name not in ("u0", "u1"):
            shutil.rmtree(one)
    assert run_hw4("similar", folder, "-o", page, env={"TMPDIR": str(temporary)}).returncode == 0
    assert list(temporary.iterdir()) == [], "a later run removes what a killed one left"
    assert "older" not in page.read_text()[:10]
