"""cupy is imported by parts: threads that ask for it at once all get it whole."""

import sys
import threading
import time

from hw4cli.device import cupyparts


def test_threads_that_import_cupy_at_once_all_find_its_parts(tmp_path, monkeypatch):
    (tmp_path / "cupy").mkdir()
    (tmp_path / "cupy/__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "cupy", raising=False)

    begun, found = threading.Event(), []

    def parts(cupy):
        begun.set()
        time.sleep(0.05)
        cupy.ndarray = list

    monkeypatch.setattr(cupyparts, "_import_parts", parts)
    threads = [threading.Thread(target=lambda: found.append(hasattr(cupyparts.load(), "ndarray"))) for _ in range(4)]
    threads[0].start()
    assert begun.wait(30)
    for thread in threads[1:]:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 4
    del sys.modules["cupy"]  # by monkeypatch it would come back afterwards
