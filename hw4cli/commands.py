"""The commands by name, and whether a command line needs a GPU: without importing click."""

from hw4cli.resources import has_solution

OF_THE_JUDGE = (
    "gen",
    "judge",
    "verify",
    "scoreboard",
    "grades",
    "similar",
    "info",
    "kit",
    "doctor",
)  # packaging/hw4-judge
# The groups of the first help page. `hw4 NAME` is the function NAME of the module hw4cli.cli.NAME (_ stands there for
# -); its docstring begins with this sentence.
GROUPS = {
    "The homework": {
        "run": "Compute attention: read INPUTFILE, write OUTPUTFILE.",
        "gen": "Make test cases and their answers.",
        "judge": "Judge a program, or a class of them, by the assignment's rules.",
        "verify": "Show where an output is wrong, and by which mistake.",
        "scoreboard": "Show the ranking of everyone who was judged.",
        "grades": "Write the gradebook of everyone who was judged.",
        "similar": "Show which programs of a class are similar.",
        "kit": "Make a folder to begin the homework in.",
        "info": "Show what an input file holds.",
        "new-kernel": "Begin a kernel of your own, from one of the ladder.",
        "export": "Write a kernel as a program of one file, to hand in.",
        "check": "Compile kernels or programs without a GPU, or execute them.",
        "report": "Write the assignment's report from a folder of records.",
        "doctor": "Check what this machine has and lacks, and what to do.",
    },
    "The laboratory": {
        "explain": "Show all kernels, or launches, traffic and limits of some.",
        "bench": "Time kernels or whole programs, or what this GPU reaches.",
        "tune": "Find the fastest kernel and tile for a workload on this GPU.",
        "profile": "Count what kernels or programs do on the GPU, or record when.",
        "plot": "Draw records as a picture, or as a page to choose in.",
        "leaderboard": "Submit kernels and programs to a leaderboard, and show it.",
        "selftest": "Test the kernels on random shapes and data.",
        "completion": "Print the script for a shell's Tab key.",
    },
}
if not has_solution():  # the judge alone has some of the commands
    GROUPS = {"The homework": {name: text for name, text in GROUPS["The homework"].items() if name in OF_THE_JUDGE}}
COMMANDS = {name: sentence for group in GROUPS.values() for name, sentence in group.items()}
# Names that earlier versions had, or that other tools have, and what is there in their place.
INSTEAD = {
    "rescore": "`hw4 judge --rescore DIR`",
    "kernels": "`hw4 explain`",
    "roofs": "`hw4 bench roofs`",
    "lab": "`hw4 plot RECORDS -o FILE.html`",
    "timeline": "`hw4 profile KERNELS --set timeline`",
    **dict.fromkeys(("--case", "--cases"), "a plain argument, as in t28"),
    "--shape": "a plain argument, as in 4,16384,64",
    "--workload": "a plain argument, as in lm8k",
    "--input": "a plain argument",
    "--format": "--json, or -o and a file's ending",
    **{f"--{form}": f"-o FILE.{form}" for form in ("html", "pdf", "csv")},
    "--log": "-o FILE.csv",
    "--arch": "--gpu",
    "--runs": "--samples",
    "--end-to-end": "--program",
}
WITHOUT_GPU = ("cpu", "emulate")  # values of --device
DIGITS = 9  # of a number in --gpus, at most: one with thousands is no int
OWN_OPTIONS = ("-h", "--help", "--version")  # of hw4 itself


def wants_gpu(arguments: list[str]) -> bool:
    """Whether a command line computes, as `hw4 IN OUT` does, and not only on the CPU."""
    if "run" not in COMMANDS or not arguments or arguments[0] in {*OWN_OPTIONS, *COMMANDS} - {"run"}:
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
