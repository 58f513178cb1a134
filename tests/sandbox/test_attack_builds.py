"""Adversarial builds: each is refused as its author's fault, and leaves no file behind."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from attacks import IS_ROOT, arena, done_by, needs_bwrap, system_python
from needs import needs
from slow import quick_of_each

from hw4cli.judge import submission
from hw4cli.judge.submission import BrokenError, Build, Submission, build_program
from hw4cli.sandbox.confine import Confinement

pytestmark = needs("make")

__all__ = ["arena"]

BUILDS = {
    "is honest": ("hw4:\n\tprintf '#!/bin/sh\\nexit 0' > hw4; chmod +x hw4\n", None),
    "prints what bwrap would": (
        "hw4:\n\t@echo 'bwrap: Creating new namespace failed: Operation not permitted' >&2; exit 1\n",
        "make hw4 failed: ",
    ),
    "asks make whether it is up to date": ("MAKEFLAGS += -q\nhw4:\n\ttouch hw4\n", "make hw4 failed: "),
    "says nothing and fails": (".SILENT:\nhw4:\n\texit 3\n", "make hw4 failed: make: *** [Makefile:3: hw4] Error 3"),
    "makes a loop of links": ("hw4:\n\tln -s hw4 hw4\n", "hw4 is a link that leads nowhere"),
    "makes links in a ring": ("hw4:\n\tln -s b hw4; ln -s hw4 b\n", "hw4 is a link that leads nowhere"),
    "makes a link to a name too long": (
        "hw4:\n\tln -s $$(head -c 300 /dev/zero | tr '\\0' a) hw4\n",
        "what it built cannot be read: File name too long",
    ),
    "makes a pipe": ("hw4:\n\tmkfifo hw4\n", "hw4 is not a regular file"),
    "forgets to make it executable": ("hw4:\n\techo > hw4; chmod 644 hw4\n", "hw4 is not executable (chmod +x hw4)"),
    "shuts the program": ("hw4:\n\techo > hw4; chmod 0 hw4\n", "hw4 is not executable (chmod +x hw4)"),
    "shuts the program's folder": (
        "hw4:\n\tmkdir d; cp /bin/true d/a; ln -s d/a hw4; chmod 0 d\n",
        "make hw4 was ended: it made a folder",
    ),
    "makes a folder": ("hw4:\n\tmkdir hw4\n", "hw4 is a folder, not a program"),
    "shuts its folder": ("hw4:\n\ttouch hw4; chmod +x hw4; chmod 0 .\n", "make hw4 "),
    "digs deep": (
        'hw4:\n\t{python} -c \'import os; [(os.mkdir("d"), os.chdir("d")) for _ in range({depth})]\'\n'
        "\ttouch hw4; chmod +x hw4\n",
        "its folders are nested too deeply",
    ),
    "writes many files": (
        "hw4:\n\tfor n in $$(seq 400); do : > f$$n; done; touch hw4\n",
        "make hw4 was ended: it wrote more than 300 files",
    ),
    "writes much": (
        "hw4:\n\tfor n in 1 2 3; do head -c 1500000 /dev/zero > f$$n; done; touch hw4; sleep 60\n",
        "make hw4 was ended: it wrote more than 4 MB",
    ),
    "writes much among temporary files": (
        "hw4:\n\tfor n in 1 2 3; do head -c 1500000 /dev/zero > $$TMPDIR/f$$n; done; touch hw4; sleep 60\n",
        "make hw4 was ended: it wrote more than 4 MB",
    ),
    "never ends": ("hw4:\n\tsleep 600 & sleep 600\n", "make hw4 did not end within 0.5 s"),
    "leaves what works on": ("hw4:\n\tsetsid sh -c 'sleep 1; echo late > hw4' & touch hw4; chmod +x hw4\n", None),
}

# Where the judge may look into closed folders, as root, or in memory of the sandbox's own.
HARMLESS = {"shuts its folder", "shuts the program's folder"}


def built(arena, makefile, confinement, modes=None, **files):
    """The program that is built from a submission with this Makefile, if any, or why it is refused. `modes` are the
    permissions of files."""
    folder, results = arena.base / "submissions" / "ann", arena.base / "results" / "ann"
    for path in (folder, results):
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
    for name, text in {**({"Makefile": makefile} if makefile else {}), **files}.items():
        (folder / name).write_text(text)
        (folder / name).chmod((modes or {}).get(name, 0o644))
    if arena.judge == "a user" and IS_ROOT:
        subprocess.run(["chown", "-R", "nobody", arena.base / "submissions", arena.base / "results"], check=True)

    limit = 0.5 if "600" in (makefile or "") else 60

    def work():
        try:
            return build_program(Submission("ann", folder), results, Build(limit, confinement, arena.cases)).program
        except BrokenError as error:
            return str(error)

    found = done_by(arena.judge, work)
    left = {path.name for path in results.iterdir()} - {"build.txt"}
    assert left == ({"build", "build.sha256"} if isinstance(found, Path) else set()), (found, left)
    return found


def confinements(arena, sandbox):
    """The confinements with this sandbox that this judge can make: one for each user it can run programs as."""
    hidden = (str(arena.base / "submissions"), str(arena.base / "results"), str(arena.cases))
    for user in arena.users:
        if sandbox != "none":
            needs_bwrap(user)
        yield Confinement(sandbox, user, hidden)


@quick_of_each(24)
@pytest.mark.parametrize("sandbox", ["none", "bwrap"])
@pytest.mark.parametrize("name", BUILDS)
def test_each_kind_of_build_is_accepted_or_refused_with_its_reason(arena, monkeypatch, name, sandbox):
    monkeypatch.setattr("hw4cli.judge.submission.MAX_BUILD_FILES", 300 if "files" in name else 5000)
    monkeypatch.setattr("hw4cli.judge.submission.MAX_BUILD_BYTES", 4 << 20)
    makefile, reasons = BUILDS[name]
    if "{python}" in makefile:
        makefile = makefile.replace("{python}", system_python()).replace("{depth}", "1500")
    for confinement in confinements(arena, sandbox):
        found = built(arena, makefile, confinement)
        if reasons is None:
            assert isinstance(found, Path), found
            assert os.access(found, os.X_OK)
            assert found.stat().st_uid == found.parent.parent.stat().st_uid, "it does not belong to the judge again"
        else:
            assert str(found).startswith(reasons) or (name in HARMLESS and isinstance(found, Path)), found


@pytest.mark.parametrize("sandbox", ["none", "bwrap"])
@pytest.mark.parametrize("mode", [0o644, 0, 0o600])
def test_a_prebuilt_program_that_may_not_be_run_is_its_authors_fault(arena, sandbox, mode):
    for confinement in confinements(arena, sandbox):
        found = built(arena, None, confinement, modes={"hw4": mode}, hw4="#!/bin/sh\nexit 0\n")
        assert re.match(r"hw4 is not executable \(chmod \+x hw4\)$|it cannot be copied: .*Permission denied", found)


MAKES_SETUID = """hw4:
\tcp /bin/true hw4; chmod 755 hw4
\tfor mode in 4755 2755 6777; do cp /bin/true shell$$mode; chmod $$mode shell$$mode || true; done
\tchmod 6755 handed-in || true; chmod 777 . hw4
"""


@pytest.mark.parametrize("sandbox", ["none", "bwrap"])
def test_no_built_program_runs_as_its_owner_and_nobody_else_may_change_it(arena, sandbox):
    for confinement in confinements(arena, sandbox):
        found = built(arena, MAKES_SETUID, confinement, modes={"handed-in": 0o6777}, **{"handed-in": "#!/bin/sh\n"})
        assert isinstance(found, Path), found
        modes = {path.name: path.stat().st_mode & 0o7777 for path in (found.parent, *found.parent.iterdir())}
        assert len(modes) == 7
        assert not [name for name, mode in modes.items() if mode & 0o6022], modes


def test_a_submissions_program_that_runs_as_its_owner_is_never_copied_as_one(tmp_path, monkeypatch):
    """Not even until its permissions are corrected."""
    (tmp_path / "ann").mkdir()
    (tmp_path / "ann" / "hw4").write_text("#!/bin/sh\n")
    (tmp_path / "ann" / "hw4").chmod(0o6755)
    monkeypatch.setattr("hw4cli.judge.submission.subprocess.run", lambda *_, **__: None)
    submission._copy(Submission("ann", tmp_path / "ann"), tmp_path / "copy")
    assert (tmp_path / "copy" / "hw4").stat().st_mode & 0o7777 == 0o755


def test_in_the_sandbox_a_build_sees_neither_answers_nor_other_submissions(arena):
    other = arena.base / "submissions" / "ben"
    for confinement in confinements(arena, "bwrap"):
        for secret in (arena.answer, other / "hw4.cu", arena.base / "results" / "ben" / "journal.jsonl"):
            secret.parent.mkdir(parents=True, exist_ok=True)
            if secret != arena.answer:
                secret.write_text("theirs")
            found = built(arena, f"hw4:\n\tcp {secret} hw4\n", confinement)
            assert "No such file" in found


def test_a_prebuilt_program_with_its_owners_permissions_runs_as_another_user(arena):
    """Its author may have left it executable by the owner only."""
    for confinement in confinements(arena, "none"):
        ready = "#!/bin/sh\nexit 0\n"
        found = built(arena, "hw4:\n\tmv ready hw4; chmod 700 hw4; umask 77; mkdir lib; touch lib/data\n", confinement,
                      ready=ready)  # fmt: skip
        assert isinstance(found, Path), found
        if confinement.run_as:
            assert found.stat().st_mode & 0o777 == 0o755
            assert (found.parent / "lib" / "data").stat().st_mode & 0o777 == 0o644


def test_taking_a_build_back_leaves_the_permissions_of_linked_files(arena):
    """A build may make a hard link to a file of the same disk; making it readable would make the file readable."""
    if arena.judge != "root":
        pytest.skip("only root gives files away")
    secret = arena.base / "secret"
    secret.write_text("ours")
    secret.chmod(0o600)
    [confinement] = [one for one in confinements(arena, "none") if one.run_as]
    found = built(arena, f"hw4:\n\tln {secret} stolen || true; touch hw4; chmod +x hw4\n", confinement)
    assert isinstance(found, Path)
    os.link(secret, found.parent / "linked")
    from hw4cli.system.account import take_back

    take_back(found.parent)
    assert secret.stat().st_mode & 0o777 == 0o600
