"""What tests compile, kept for other tests and later runs: see the fixture `compiled` in conftest.py."""

import functools
import hashlib
import os
import pickle
import shutil
import threading
import time
from contextlib import ExitStack, suppress

from helpers import ROOT

from hw4cli.system.files import locked

DAY = 24 * 3600.0  # seconds


def keeping(build, folder):
    """NVRTC's `build`, which first looks whether another test has compiled the same text by the same options."""

    @functools.wraps(build)
    def kept(self, source, name, options, cc):
        if any(option.startswith(("-I", "--include-path")) for option in options):  # the text is not all that counts
            return build(self, source, name, options, cc)
        key = repr((self._library._name, self.version, self.known(), source, name, options, cc))
        path = folder / f"nvrtc-{hashlib.sha256(key.encode()).hexdigest()[:24]}"
        if path.exists():
            return pickle.loads(path.read_bytes())
        made = build(self, source, name, options, cc)
        keep_bytes(path, pickle.dumps(made))
        return made

    return kept


def keep_bytes(path, content):
    """Put a file where it appears when it is whole."""
    part = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
    part.write_bytes(content)
    part.replace(path)


def kept_folder(config):
    """The folder of this run's sources in pytest's cache, None where pytest keeps none. Those of other sources go when
    nothing was put there for a day."""
    cache = getattr(config, "cache", None)  # -p no:cacheprovider
    if cache is None:
        return None
    with suppress(OSError):
        folder = cache.mkdir(f"compiled-{digest_of_sources()}")
        for other in folder.parent.glob("compiled-*"):
            if other != folder and time.time() - other.stat().st_mtime > DAY:
                shutil.rmtree(other, ignore_errors=True)
        return folder if os.access(folder, os.W_OK) else None
    return None


def digest_of_sources():
    """A short name for all of the package and of the kernels."""
    paths = [path for name in ("hw4cli", "kernels") for path in (ROOT / name).rglob("*") if path.is_file()]
    texts = (path.read_bytes() for path in sorted(paths) if path.suffix != ".pyc")
    return hashlib.sha256(b"\0".join(texts)).hexdigest()[:16]


class OneOfAll:
    """A lock for the threads of all processes of a run: what one compiles, others wait for."""

    def __init__(self, folder):
        self.folder, self.threads, self.open = folder, threading.Lock(), ExitStack()

    def __enter__(self):
        self.threads.acquire()
        self.open.enter_context(locked(self.folder))

    def __exit__(self, *_):
        self.open.close()
        self.threads.release()
