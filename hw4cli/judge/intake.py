"""What students hand in, made ready to build: archives unpacked, the folder that matters found, line ends read.

All of it happens in a copy. What was done to a submission is noted, for its author and for whoever grades it.
"""

import lzma
import re
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import IO

from hw4cli.text.words import counted, printable

PROGRAM = "hw4"
MAKEFILES = ("Makefile", "makefile", "GNUmakefile")
ARCHIVES = (".zip", ".7z", ".rar", ".tar", ".tgz", ".tbz2", ".txz", ".gz", ".bz2", ".xz", ".zst")
UNPACKED = (".zip", ".tar", ".tgz", ".tbz2", ".txz", ".tar.gz", ".tar.bz2", ".tar.xz")
SOURCES = (".cu", ".hip", ".c", ".cc", ".cpp", ".cxx")
KERNELS = (".cu", ".hip")  # sources that are built without a Makefile
HEADERS = (".h", ".cuh", ".hpp", ".hh", ".inl")
REPORT = "report.pdf"
# What reading a damaged archive raises; of gzip and bzip2 also an OSError that has no number.
DAMAGED = (
    *(zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError),
    *(EOFError, ValueError, NotImplementedError),
)
DEPTH = 4  # of folders in which a submission's own is looked for, and of archives in archives
CHUNK = 1 << 20
JUNK = re.compile(r"(^|/)(__MACOSX(/|$)|\._|\.DS_Store$|Thumbs\.db$|desktop\.ini$)")  # what systems add to archives
# How learning platforms name the files of a download: Moodle's, Canvas's, and a name, a number and the file's own name.
MOODLE = re.compile(r"(?P<user>.+_\d+)_assignsubmission_(?:file|onlinetext)_?(?P<file>.*)", re.DOTALL)
CANVAS = re.compile(r"(?P<name>[^_]+?)(?P<late>_LATE)?_(?P<id>\d+)_\d+_(?P<file>.+)", re.DOTALL)
NAME_ID = re.compile(r"(?P<name>.+)_(?P<id>\d{3,})_(?P<file>[^_]+\.\w+)", re.DOTALL)
VERSION = re.compile(r"-\d+(?=\.[^.]+$)")  # which Canvas adds to what was handed in again: hw4-1.cu


class UnpackError(Exception):
    """An archive that is damaged, too large, or leads out of its folder; the sentence is for its author."""


def owner(name: str) -> tuple[str, str]:
    """Whose file in a class's folder this is, by its name, and the name that its author gave it: ("wang_12345",
    "hw4.cu") of wang_12345_678_hw4.cu, ("ann", "hw4.zip") of ann.zip. ("", "") if it is nobody's."""
    if found := MOODLE.fullmatch(name):
        return found["user"], found["file"]
    if found := CANVAS.fullmatch(name):
        return f"{found['name']}_{found['id']}", VERSION.sub("", found["file"])
    if found := NAME_ID.fullmatch(name):
        return f"{found['name']}_{found['id']}", found["file"]
    stem = name
    while stem.lower().endswith((*ARCHIVES, *SOURCES)):
        stem = stem.rpartition(".")[0]
    if stem == name:
        return "", ""
    user = re.sub(r"(?<=.)[-_. ]?hw4$", "", stem, flags=re.IGNORECASE | re.DOTALL)
    return user, f"{PROGRAM}{name[len(stem) :].lower()}"


def is_unpacked(name: str) -> bool:
    """Whether archives of this name are unpacked."""
    return name.lower().endswith(UNPACKED)


def make_ready(copy: Path, max_bytes: int, max_files: int) -> list[str]:
    """Make a copied submission ready to build, in its place: the folder that holds a program, a Makefile or a source
    becomes the copy. Sentences on what was done, and on its report. UnpackError for an archive that cannot be unpacked.
    """
    notes, left = list[str](), max_bytes
    for _ in range(DEPTH):
        archives = [] if _homes(copy) else [path for path in regular_files(copy) if is_unpacked(path.name)]
        for archive in archives:
            aside = archive.rename(archive.with_name(".unpacking"))  # it may hold a file of its own name
            left -= unpack(aside, archive.parent, left, max_files, archive.name)
            aside.unlink()
            notes.append(f"unpacked {archive.relative_to(copy)}")
    notes += _about_report(copy)
    homes = _homes(copy)
    if len(homes) > 1:
        names = ", ".join(str(home.relative_to(copy)) for home in homes[:3])
        raise UnpackError(f"{counted(len(homes), 'folder')} hold an hw4 or a Makefile ({names}): which one is meant?")
    if homes and homes[0] != copy:
        notes.append(f"its files lie in {homes[0].relative_to(copy)}/")
        _lift(homes[0], copy)
    if changed := [path.name for path in regular_files(copy) if _to_unix(path)]:
        notes.append(f"line ends of Windows in {', '.join(changed[:3])}{', …' if len(changed) > 3 else ''}")
    return [printable(note) for note in notes]


def regular_files(folder: Path) -> list[Path]:
    """The regular files in a folder and those in it, sorted; links are not followed."""
    return sorted(
        path for path in folder.rglob("*") if path.is_file() and not path.is_symlink() and not JUNK.search(str(path))
    )


def source_files(folder: Path) -> list[Path]:
    """The sources and headers in a folder and those in it, sorted; links are not followed."""
    return [path for path in regular_files(folder) if path.suffix.lower() in (*SOURCES, *HEADERS)]


def lone_source(folder: Path, prefer: str = ".cu") -> Path | None:
    """The one source that is built without a Makefile: hw4.cu or hw4.hip (of both the one with the ending that is
    preferred), or the only file of such an ending."""
    found = [path for path in sorted(folder.iterdir()) if path.is_file() and path.suffix.lower() in KERNELS]
    named = [path for path in found if path.stem.lower() == PROGRAM]
    chosen = sorted(named or found, key=lambda path: path.suffix.lower() != prefer)
    return chosen[0] if len(found) == 1 or named else None


def _homes(folder: Path) -> list[Path]:
    """The folders that hold a program, a Makefile or a source of a kernel, of the least depth."""
    level = [folder]
    for _ in range(DEPTH):
        homes = [one for one in level if _is_home(one)]
        if homes:
            return homes
        level = [
            path
            for one in level
            for path in sorted(one.iterdir())
            if path.is_dir() and not path.is_symlink() and not JUNK.search(path.name) and path.name[0] != "."
        ]
    return []


def _is_home(folder: Path) -> bool:
    names = (*MAKEFILES, PROGRAM)
    return any((folder / name).is_file() or (folder / name).is_symlink() for name in names) or bool(_kernels(folder))


def _kernels(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.suffix.lower() in KERNELS and path.is_file()]


def _about_report(folder: Path) -> list[str]:
    """Whether its report is missing, or there are several."""
    found = [path.name for path in regular_files(folder) if path.suffix.lower() == ".pdf"]
    if not found:
        return [f"no {REPORT}"]
    if len(found) > 1:
        return [f"{len(found)} PDFs: {', '.join(found)}"]
    return [] if found[0].lower() == REPORT else [f"its report is called {found[0]}"]


def _lift(home: Path, folder: Path) -> None:
    """Replace a folder by one that lies in it."""
    kept = folder.with_name(f".{folder.name}.lifted")
    shutil.rmtree(kept, ignore_errors=True)
    home.rename(kept)
    shutil.rmtree(folder)
    kept.rename(folder)


def _to_unix(path: Path) -> bool:
    """Give a Makefile, a script or a source the line ends and the start that Unix expects; whether it had others."""
    names = (*MAKEFILES, PROGRAM)
    if path.name not in names and path.suffix.lower() not in (*SOURCES, *HEADERS, ".mk", ".sh"):
        return False
    with suppress(OSError):
        data = path.read_bytes()
        if path.name == PROGRAM and not data.startswith((b"#!", b"\xef\xbb\xbf#!")):
            return False
        plain = data.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n")
        if plain != data:
            path.write_bytes(plain)
            return True
    return False


def unpack(archive: Path, folder: Path, max_bytes: int, max_files: int, called: str = "") -> int:
    """Unpack a zip or tar archive into a folder: its regular files alone, in no other folder, within limits of their
    bytes as they are read and of their number; how many bytes. UnpackError otherwise, in which the archive is `called`
    so."""
    written, called = 0, called or archive.name
    try:
        for number, (name, mode, stream) in enumerate(_members(archive, folder, called)):
            target = folder / name
            if number >= max_files:
                raise UnpackError(f"{called} holds more than {max_files:,} files")
            if not target.parent.resolve().is_relative_to(folder.resolve()):  # through a link that is there already
                raise UnpackError(f"{called} holds {name}, which leads out of its folder")
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.is_symlink() or target.is_dir():
                raise UnpackError(f"{called} holds {name} twice")
            with stream, target.open("wb") as file:
                while chunk := stream.read(CHUNK):
                    written += len(chunk)
                    if written > max_bytes:
                        raise UnpackError(f"{called} holds more than {max_bytes >> 20:,} MB")
                    file.write(chunk)
            if mode & 0o111 or _starts_program(target):
                target.chmod(0o755)
    except DAMAGED as error:
        raise _damaged(called, error) from None
    except RuntimeError:  # how zipfile says that a password is needed
        raise UnpackError(f"{called} needs a password") from None
    except (FileExistsError, NotADirectoryError):
        raise UnpackError(f"{called} holds a file and a folder of the same name") from None
    except OSError as error:
        if error.errno is None:
            raise _damaged(called, error) from None
        raise
    return written


def _damaged(called: str, error: Exception) -> UnpackError:
    why = str(error).partition("\n")[0].rstrip(":")
    return UnpackError(f"{called} is damaged, or of a kind that is not unpacked: {why}")


def _members(archive: Path, folder: Path, called: str) -> Iterator[tuple[PurePosixPath, int, IO[bytes]]]:
    """The regular files of an archive: path, permissions and content. UnpackError for one that leads out."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as packed:
            for info in packed.infolist():
                mode, name = info.external_attr >> 16, info.filename.replace("\\", "/")
                if info.is_dir() or stat.S_ISLNK(mode) or JUNK.search(name):
                    continue
                yield _inside(name, called), mode, packed.open(info)
        return
    with tarfile.open(archive) as tar:
        for member in tar:
            if not member.isreg() or JUNK.search(member.name):
                continue
            path = _inside(member.name, called)
            if hasattr(tarfile, "data_filter"):  # Python 3.11 has it from 3.11.4 on
                member = tarfile.data_filter(member, str(folder))
            if content := tar.extractfile(member):
                yield path, member.mode or 0, content


def _inside(name: str, called: str) -> PurePosixPath:
    """A member's path. UnpackError if it leads out of the folder."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in name or re.match(r"[A-Za-z]:/", name):
        raise UnpackError(f"{called} holds {name}, which leads out of its folder")
    return path


def _starts_program(path: Path) -> bool:
    """Whether a file called hw4 is a program: archives made on Windows have no permissions."""
    if path.name != PROGRAM:
        return False
    with path.open("rb") as file:
        return file.read(4).startswith((b"\x7fELF", b"#!"))


def newest_of_each(files: Sequence[Path]) -> dict[str, Path]:
    """Files in a class's folder by the names that their author gave them: of two of a name the newest counts."""
    found: dict[str, Path] = {}
    for path in sorted(files, key=lambda path: path.lstat().st_mtime_ns):
        name = owner(path.name)[1]
        found[path.name if name in ("", ".", "..") else name] = path
    return found
