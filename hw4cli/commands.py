"""The commands by name, and whether a command line needs a GPU: without importing click."""

# `hw4 NAME` is the function NAME of the module hw4cli.cli.NAME (_ stands there for -); its docstring begins with this
# sentence.
COMMANDS = {
    "run": "Compute attention: read INPUTFILE, write OUTPUTFILE.",
    "gen": "Make test cases and their answers.",
    "judge": "Run a program on CASES (default: all thirty) and judge it by the assignment's rules.",
    "rescore": "Apply other rules to what `hw4 judge --output DIR` ran, without running anything.",
    "scoreboard": "Show the ranking of everyone judged into DIR, by `hw4 judge --output` or `hw4 judge --class`.",
    "verify": "Compare OUTPUT with ANSWER, element by element.",
    "info": "Show what an input FILE holds: header, size, ranges, and what is outside the assignment's ranges.",
    "kernels": "Show the ladder of kernels: idea, tiles, threads, shared memory, where it runs, how exact it is.",
    "bench": 'Time KERNELS (default: flash; "all" is the whole ladder) on the GPU, in turns.',
    "check": "Compile KERNELS for every architecture, without a GPU, and count what they use.",
    "explain": "Show how KERNELS are launched for a case, what they move and compute, and what limits them.",
    "profile": "Count what KERNELS, or a program, do on the GPU, by nvprof, Nsight Compute or rocprofv3.",
    "roofs": "Measure what this GPU reaches: copy, L2 cache, shared memory, FMA, exp2, tensor cores.",
    "tune": "Find the fastest kernel and tile for a workload on this GPU (default: of split, split8, exact and flash).",
    "new-kernel": "Begin a kernel of your own: NAME.cu, from one of the ladder.",
    "plot": "Draw a picture of RECORDS, which `hw4 bench --output` wrote.",
    "lab": "Make one page of RECORDS, to choose and to compare in: it needs a browser and nothing else.",
    "report": "Write the report of DIR, a folder with your records: tables, charts, and blanks for your words.",
    "timeline": "Record when one block of KERNELS copies, multiplies and takes exponentials, by the GPU's clock.",
    "leaderboard": "Submit kernels and programs to a leaderboard, and show it.",
    "selftest": "Test the kernels on random shapes and data.",
    "doctor": "Check what this machine has and lacks for hw4, and show what to do about it.",
    "completion": "Print the script by which a shell completes hw4's arguments on the Tab key.",
}
WITHOUT_GPU = ("cpu", "emulate")  # values of --device
DIGITS = 9  # of a number in --gpus, at most: one with thousands is no int
OWN_OPTIONS = ("-h", "--help", "--version")  # of hw4 itself


def wants_gpu(arguments: list[str]) -> bool:
    """Whether a command line computes, as `hw4 IN OUT` does, and not only on the CPU."""
    if not arguments or arguments[0] in OWN_OPTIONS or (arguments[0] in COMMANDS and arguments[0] != "run"):
        return False
    if any(argument.startswith("--srun") for argument in arguments):
        return False  # others compute
    without = {f"{option}{name}" for name in WITHOUT_GPU for option in ("", "--device=")}
    return not {*without, "-h", "--help", "--ranks"} & set(arguments)  # which GPU is a rank's shows later


def gpus_option(arguments: list[str]) -> str | None:
    """The value of --gpus in a command line, the last one as click takes it; None where it is not given."""
    found = None
    for word, following in zip(arguments, [*arguments[1:], None], strict=True):
        if word == "--":  # files follow
            break
        if word == "--gpus":
            found = following
        elif word.startswith("--gpus="):
            found = word.removeprefix("--gpus=")
    return found


def first_gpu(gpus: str | None) -> int:
    """The number of the GPU that begins, by the value of --gpus: the first one, unless ids:2,0 names another."""
    kind, _, numbers = (gpus or "").partition(":")
    number = numbers.partition(",")[0]
    return int(number) if kind == "ids" and number.isdecimal() and len(number) <= DIGITS else 0
