"""What a program's last words come to, whatever they are, in time that grows no faster than they do."""

import time

import pytest

from hw4cli.judge import submission
from hw4cli.judge.scoring import results
from hw4cli.sandbox import slurm
from hw4cli.system import exits
from hw4cli.text import tables, words

TEXTS = {
    "the same subject over and over": "gpu ",
    "subjects that run together": "cudacuda",
    "half an error": "CUDA_ERROR ",
    "beginnings of the driver's words": "illegal out of too many resources no kernel ",
    "digits": "1234567890",
    "digits and stops": "1.,",
    "a launcher's level": "srun-1.",
    "spaces": " \t",
    "quotes": "`a' ",
    "nothing to print": "\x00\x1b",
    "signs of Markdown": "|<`*_",
    "many short lines": "gpu \n",
}
READERS = {
    "a program's end": lambda text: exits.exit_problem(1, text),
    "a build's end": submission._first_error,
    "a launcher's end": lambda text: slurm.error_lines(text.splitlines()),
    "a cell": lambda text: tables.plain(["name"], [[text]]),
    "Markdown": tables.escaped,
    "a message": lambda text: words.wrapped(text, 80),
    "XML": results._xml_text,
}


@pytest.mark.parametrize("reader", READERS)
def test_no_words_of_a_stranger_take_more_than_linear_time(reader):
    read = READERS[reader]

    def seconds(text, length):
        whole = text * (length // len(text))
        times = []
        for _ in range(3):
            start = time.process_time()
            read(whole)
            times.append(time.process_time() - start)
        return min(times)

    for text in TEXTS.values():
        short, long = seconds(text, 16 << 10), seconds(text, 64 << 10)
        # Four times the text: 16 times the time would be quadratic. What is over in 20 ms is no matter.
        assert long < max(0.02, 10 * short), (text, short, long)


def test_a_cuda_error_is_found_in_the_first_line_that_tells_of_one():
    for line in (
        "hw4.cu:17 CUDA failed with an illegal address",
        "kernel launch: invalid configuration argument",
        "RuntimeError in cublasCreate: cublas error 13",
        "cudaErrorMemoryAllocation",
        "an illegal memory access was encountered",
    ):
        assert exits.cuda_error(f"all is well on the gpu\n{line}\nlater: CUDA error\n").startswith(line)
    assert exits.cuda_error("error: the gpu is fine\nthis kernel took 3 ms") is None
