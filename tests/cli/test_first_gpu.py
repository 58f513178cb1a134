"""Which GPU is opened before the command line is read as a whole."""

import pytest

from hw4cli.commands import first_gpu, gpus_option


@pytest.mark.parametrize(
    ("arguments", "gpu"),
    [
        (["in", "out"], 0),
        (["in", "out", "--gpus", "ids:2,0"], 2),
        (["--gpus=ids:3", "in", "out"], 3),
        (["--gpus", "ids:2", "in", "out", "--gpus=ids:1"], 1),
        (["--gpus", "count:4", "in", "out"], 0),
        (["in", "out", "--gpus"], 0),
        (["ids:3", "out"], 0),
        (["in", "ids:3,1"], 0),
        (["--gpus", "all", "ids:3", "out"], 0),
        (["--", "--gpus", "ids:3"], 0),
    ],
)
def test_the_first_gpu_is_that_of_the_option_whatever_the_files_are_called(arguments, gpu):
    assert first_gpu(gpus_option(arguments)) == gpu
