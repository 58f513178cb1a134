"""`hw4 report` as a student meets it: what it writes, and that a later run keeps every word that is theirs."""

import json
import re
import shutil
import sys

import pytest
from helpers import ROOT, fails, folder_is_clean
from records import row, written
from student import answered, record, student

SECTIONS = [
    *("1", "1.a", "1.b", "1.c", "1.d", "1.e", "2", "3", "3.a", "3.b", "3.c"),
    *("4", "4.a", "4.b", "4.c", "5", "5.a", "5.b"),
]


def headings(text):
    return re.findall(r"^##+ (\d(?:\.[a-e])?)", text, re.MULTILINE)


def section(text, number):
    return re.search(rf"^###? {re.escape(number)}\.? .*?$(.*?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL)[1]


def snapshot(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_report_has_the_sections_of_the_assignment_and_a_question_in_each(finished):
    text = (finished / "report.md").read_text()
    assert headings(text) == SECTIONS
    for number in SECTIONS:
        assert "> FILL IN: " in section(text, number) or number in ("1", "3", "4", "5"), number


def test_section_1_is_made_of_the_kernels_launches_and_leaves_the_words_to_the_author(finished):
    text = (finished / "report.md").read_text()
    assert "> FILL IN: The key steps of your program" in section(text, "1.a")
    header = (ROOT / "kernels" / "flash.cu").read_text()
    for sentence in ("exact fp32 attention at the speed of the CUDA cores", "streams K and V past them", "k-major"):
        assert sentence in header and sentence not in text
    assert "128 blocks of 128 rows, 512 for all batches; K and V pass by in 512 tiles of 32 keys" in section(
        text, "1.b"
    )
    assert "128x64 is the fastest (5.695 ms)" in section(text, "1.c")
    assert "| t28 | (4, 16384, 64) | flash | 128x32 | 2,048 | 128 | 64.0 |" in section(text, "1.d")
    assert "| 128x64 | 96.0 | 42 | 2 |" in section(text, "1.e")
    assert "A multiprocessor holds 3 blocks at once, 19% of its warps" in section(text, "1.e")


def test_sections_2_and_3_are_made_of_the_profile_the_records_and_the_journal(finished):
    text = (finished / "report.md").read_text()
    assert "| shared\\_load\\_throughput, GB/s | 11,520 |" in section(text, "2")
    assert "| GPU | NVIDIA H200 |" in section(text, "3.a")
    assert "| flash | 5.779 | 2.22 | 30.4 |" in section(text, "3.b")
    assert "29 of 30 cases AC, score 57" in section(text, "3.c")
    assert "| t12 | (9600, 128, 64) | TLE |" in section(text, "3.c")
    assert section(text, "3.c").count(" | AC | ") == 29, "those that passed are listed, too"


def test_every_chart_is_a_file_with_axes_in_its_caption(finished):
    text = (finished / "report.md").read_text() + (finished / "worklog.md").read_text()
    charts = dict(re.findall(r"!\[(.*?)\]\(figures/(\w+)\.svg\)", text))
    names = {"ladder", "tiles", "process", "programs", "latency", "rate", "error", "roofline"}
    assert set(charts.values()) == names
    assert {path.stem for path in (finished / "figures").iterdir()} == names
    assert ">1.34</text>" in (finished / "figures/process.svg").read_text(), "the sum of t22's parts, at the bar's end"
    assert all(re.search(r"(time, m?s|TFLOP/s|largest error).* From \S+\.jsonl?\b", caption) for caption in charts)


def test_the_work_log_asks_of_every_step_what_the_records_cannot_say(finished):
    text = (finished / "worklog.md").read_text()
    steps = re.findall(r"^### (\S+)\n(.*?)(?=^###? |\Z)", text, re.MULTILINE | re.DOTALL)
    assert [name for name, _ in steps] == ["naive", "smallbr", "shared", "warp", "float4", "flash", "split", "exact"]
    parts = ["Structure", "Runtime and other statistics", "Conclusion", "Hypothesis", "How it came", "Next step"]
    assert all(re.findall(r"^#### (.*)", body, re.MULTILINE) == parts for _, body in steps)
    assert (
        "`float4` takes 12.81 ms on t28 (4, 16384, 64), 1.21 times as fast as `warp`, and 13.7" in dict(steps)["float4"]
    )
    assert "(two records: not measured in turn)" in dict(steps)["flash"]
    assert "7.27 times as fast as `flash`" in dict(steps)["split"]
    assert "| time of the kernel, s | 0.005779 | 0.420, the whole process | 1.4 |" in text


def test_a_second_run_changes_no_byte_and_asks_for_no_kernel_again(hw4, mine):
    before = snapshot(mine)
    assert hw4("report", mine).returncode == 0
    assert snapshot(mine) == before


def test_new_records_reach_the_blocks_and_no_word_of_the_author_is_lost(hw4_here, mine):
    path = mine / "report.md"
    words = path.read_text().replace(
        "> FILL IN: What limits the kernel, by these figures.", "Registers, I *think*.\r\n\n- one"
    )
    words = words.replace("### 3.c Others", "## My own section\n\n| a | b |\n| - | - |\n\n### 3.c Further charts")
    path.write_bytes(words.encode())
    (mine / "thirty.json").unlink()
    assert hw4_here("report", mine).returncode == 0
    text = path.read_bytes().decode()
    assert "split" in words
    assert "| split |" not in text
    outside = re.compile(r"^<!-- hw4: (\S+) \w{8} -->\n.*?^<!-- hw4: end -->", re.MULTILINE | re.DOTALL)
    assert outside.sub(r"\1", text) == outside.sub(r"\1", words)


def test_a_block_that_was_deleted_stays_deleted(hw4_here, mine):
    path = mine / "report.md"
    text = re.sub(r"<!-- hw4: roofline .*?<!-- hw4: end -->\n", "", path.read_text(), flags=re.DOTALL)
    path.write_text(text)
    assert hw4_here("report", mine).returncode == 0
    assert path.read_text() == text


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("29 of 30 cases AC", "All of my 30 cases AC", "was changed and would be lost: move it below"),
        ("<!-- hw4: end -->\n\n> FILL IN: Why you", "> FILL IN: Why you", "a mark of hw4's has lost its other half"),
        ("<!-- hw4 report: form=assignment", "<!-- form=assignment", "is not a report that hw4 began"),
    ],
)
def test_text_that_would_be_lost_is_refused_and_force_keeps_a_copy(hw4, mine, old, new, words):
    path = mine / "report.md"
    path.write_text(path.read_text().replace(old, new, 1))
    before = snapshot(mine)
    fails(hw4("report", mine), 2, words, "report-1.md")
    assert snapshot(mine) == before
    assert hw4("report", mine, "flash", "--force").returncode == 0
    assert (mine / "report-1.md").read_bytes() == before[path]
    assert old in path.read_text()


def test_a_program_that_tidies_markdown_and_line_ends_edits_no_block(hw4_here, mine):
    path = mine / "report.md"
    tidied = path.read_text().replace("| --- |", "| ------ |").replace("| GPU |", "| GPU    |").replace("\n", "\r\n")
    path.write_bytes(f"\ufeff{tidied}".encode())
    assert hw4_here("report", mine).returncode == 0
    assert path.read_bytes().decode().partition("\n")[2] == tidied.partition("\n")[2]


def test_force_keeps_no_copy_where_nothing_would_be_lost(hw4_here, mine):
    before = snapshot(mine)
    assert hw4_here("report", mine, "--force").returncode == 0
    assert snapshot(mine) == before


def test_a_kernel_that_does_not_say_how_it_is_launched_is_told_so(hw4_here, tmp_path):
    (tmp_path / "mine.cu").write_text("// mine: my own\n// Idea: Two rows a thread.\n")
    assert hw4_here("report", tmp_path, "mine.cu", "t28").returncode == 0
    text = (tmp_path / "report.md").read_text()
    assert "my own" in section(text, "1.a")
    assert "does not state how it is launched" in section(text, "1.d")


def test_a_new_kernel_becomes_a_new_step_and_the_old_ones_keep_their_answers(hw4_here, tmp_path):
    folder = student(tmp_path / "mine", "h200-ladder")
    (folder / "mine.cu").write_text("// mine: my own\n//\n// Like: naive\n// Idea: Two rows a thread.\n")
    assert hw4_here("report", folder, "--form", "worklog").returncode == 0
    before = answered(folder / "worklog.md").read_text()
    machine = {"gpu": "NVIDIA H200", "compute_capability": "9.0"}
    shape, case = (4, 16384, 64), {"case": "t28"}
    written(folder / "mine.json", row("./mine.cu", shape, 7.5, **case), machine=machine, date="2026-11-22")
    assert hw4_here("report", folder, "--form", "worklog").returncode == 0
    text = (folder / "worklog.md").read_text()
    new = text[text.index("### ./mine.cu") : text.index("<!-- hw4: new steps")]
    assert "Two rows a thread." in new
    assert "`./mine.cu` takes 7.5 ms on t28 (4, 16384, 64), 1.29 times as long as `flash`" in new
    assert text.count("Answered.") == before.count("Answered.")
    assert text.count("> FILL IN:") == 5


def test_programs_are_steps_where_no_kernel_was_measured(hw4_here, tmp_path):
    folder = student(tmp_path / "mine", "h200-end-to-end")
    assert hw4_here("report", folder, "--form", "worklog").returncode == 0
    text = (folder / "worklog.md").read_text()
    assert "### ./hw4\n" in text
    assert re.search(r"`hw4` takes 14.3 s on the sum of the cases, 1.15 times as long as `\./hw4`", text)


def test_two_gpus_are_compared_in_section_4(hw4_here, tmp_path):
    folder = student(tmp_path / "mine", "h200-ladder")
    other = {"gpu": "AMD Instinct MI210"}
    path = record(folder, "h200-ladder", machine=other).rename(folder / "amd.json")
    content = json.loads(path.read_text())
    half = [{**row, **{key: row[key] / 2 for key in ("median", "low", "high")}} for row in content["rows"]]
    path.write_text(json.dumps({**content, "rows": half}))
    record(folder, "h200-ladder")
    assert hw4_here("report", folder).returncode == 0
    assert "| flash | t28 (4, 16384, 64) | 5.792 | 2.896 | 2 |" in section((folder / "report.md").read_text(), "4.b")


def test_a_file_of_the_authors_in_the_place_of_one_of_ours_is_not_replaced(hw4_here, tmp_path):
    folder = student(tmp_path / "mine", "h200-ladder")
    (folder / "figures").mkdir()
    for name, words in (("figures/ladder.svg", "is not a chart of hw4's"), ("report.html", "is not a page of hw4's")):
        (folder / name).write_text("mine")
        fails(hw4_here("report", folder), 2, name, words)
        (folder / name).unlink()
    assert not (folder / "report.md").exists()


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["nowhere"], "nowhere is not a folder"),
        ([".", "--check", "-o", "a.pdf"], "--check writes nothing: leave out --output"),
        ([".", "-o", "none/a.pdf"], "the folder"),
        ([".", "flsh"], "Did you mean 'flash'?"),
        ([".", "--form", "log"], "is not one of"),
        ([".", "t99"], "there is no case 't99': there is no record here"),
    ],
)
def test_a_mistake_is_one_sentence_and_nothing_is_written(hw4_here, tmp_path, args, words):
    fails(hw4_here("report", *args), 2, words)
    folder_is_clean(tmp_path)


@pytest.mark.parametrize("module", ["matplotlib", "markdown_it"])
def test_without_a_package_that_it_needs_it_says_how_to_get_it(hw4_here, tmp_path, monkeypatch, module):
    student(tmp_path, "h200-ladder")
    monkeypatch.setitem(sys.modules, module, None)
    fails(hw4_here("report", "."), 3, "pip install")


def test_without_chromium_the_page_is_written_and_one_sentence_tells_what_the_pdf_needs(hw4, tmp_path):
    folder = student(tmp_path / "mine", "h200-ladder")
    result = hw4("report", folder, "-o", tmp_path / "a.pdf", env={"PATH": ""})
    assert result.returncode == 3
    assert result.stderr.splitlines()[-1].startswith("hw4: a PDF needs Chromium, which is not installed")
    assert (folder / "report.html").exists()
    assert not (tmp_path / "a.pdf").exists()


def test_a_page_is_one_file_that_shows_markup_of_the_text_as_it_was_typed(hw4_here, tmp_path):
    folder = student(tmp_path / "mine", "h200-ladder")
    assert hw4_here("report", folder).returncode == 0
    text = (folder / "report.md").read_text()
    attack = "<script>alert(1)</script>"
    image = "![a photo, 3 ms](https://example.org/a.png)"
    (folder / "own.png").write_bytes(b"PNG")
    words = f"{attack}\n\n{image}\n\nBeside ![it](own.png) words <!-- and a note to myself -->"
    (folder / "report.md").write_text(text.replace("> FILL IN: What you have learned.", words))
    assert hw4_here("report", folder).returncode == 0
    page = (folder / "report.html").read_text()
    assert "&lt;script&gt;alert(1)" in page
    assert "<script" not in page
    assert '<p>Beside <img src="data:image/png;base64,UE5H" alt="it"> words </p>' in page
    assert "There is no picture https://example.org/a.png." in page
    assert re.findall(r'(?:src|href)="(?!data:)', page) == []


def test_no_name_in_a_record_breaks_the_report_or_its_page(hw4_here, tmp_path):
    name, case = "a|b`<b>`-->.cu", {"case": "<!-- hw4: end -->"}
    written(tmp_path / "a_b_c.json", row(name, **case), row("flash", median=2.0, **case), machine={"gpu": "<b>|GPU"})
    for form in ("assignment", "worklog"):
        texts = []
        for _ in range(2):
            assert hw4_here("report", tmp_path, "--form", form).returncode == 0
            texts.append({path.name: path.read_text() for path in tmp_path.glob("*.*")})
        assert texts[0] == texts[1]
        assert hw4_here("report", tmp_path, "--form", form, "--check").stdout.count("mark") == 0
    assert all("<b>" not in text for name, text in texts[0].items() if name.endswith(".html"))
    assert len(re.findall(r"^### ", texts[0]["worklog.md"], re.MULTILINE)) == 2


def test_an_empty_folder_has_a_report_that_tells_how_to_fill_it(hw4_here, tmp_path):
    shutil.rmtree(tmp_path / "mine", ignore_errors=True)
    (tmp_path / "mine").mkdir()
    assert hw4_here("report", tmp_path / "mine").returncode == 0
    text = (tmp_path / "mine/report.md").read_text()
    assert headings(text) == SECTIONS
    assert "> MISSING: the folder holds no record" in text
