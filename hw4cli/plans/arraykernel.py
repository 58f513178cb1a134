"""An entry of the registry for a kernel of arrays: of 16-bit numbers (kernels16.py), or of gradients (gradients.py)."""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, NamedTuple

from hw4cli.plans.launch import Box
from hw4cli.plans.plan import DeviceProperties, Kernel, LaunchModel, Plan
from hw4cli.problem.workload import Workload

Encode = Callable[[Box], bytes]  # makes a tensor map's 128 bytes


class Sums(NamedTuple):
    """How a kernel adds: keys that one accumulator takes, how often m can move meanwhile, whether tensor cores sum P,
    into how many parts the keys go, one after the other: of splits, of warps; whether all is float32, on CUDA cores;
    whether some exponentials are by polynomial."""

    keys: int
    moves: int
    ones: bool
    parts: tuple[int, ...] = ()
    cores: bool = False
    polynomial: bool = False


@dataclass(frozen=True, eq=False, repr=False)
class ArrayKernel(Kernel):
    """A kernel of arrays as data. Its formulas get workloads in rows that kernels can load (`Workload.stored`).

    Entries stand from the fastest on: auto takes the first that is `preferred`.
    """

    _: KW_ONLY
    takes: Callable[[Workload, DeviceProperties], bool]  # whether it computes a workload on a GPU
    planned: Callable[[Workload, DeviceProperties, Any], Plan]  # by a tile of its own if one is given; MachineError
    packed: Callable[[Workload, Plan, Any, Encode], bytes]  # the launches' one argument, for arrays at their places
    work: Callable[[Plan, Workload, DeviceProperties], list[LaunchModel]]  # what each launch moves and computes
    preferred: Callable[[Workload, DeviceProperties], bool] | None = None  # where auto takes it; None: where it runs
    tile: Callable[[Workload, DeviceProperties], Any] | None = None  # the best of its tiles, where it has several
    sequences: bool = False  # whether one launch computes sequences of several lengths
    launched_by: str = ""  # the kernel that users name, which is launched as this one for some workloads
    repeatable: bool = True  # the same arrays give the same bits in every run: auto takes no other
    sums: Callable[[Workload, Plan], Sums] | None = None  # how it adds, for the bound of its error
    # Its own plans for numbers of keys, of one length, that lie between two multiples of this are the same.
    key_step: Callable[[Workload, DeviceProperties], int] | None = None
    space: tuple[Any, ...] = ()  # tiles that `hw4 tune` tries

    def like(self, name: str, idea: str, **changes: Any) -> "ArrayKernel":
        """Another kernel that is launched as this one is, but for `changes`, which replace fields of the entry: in its
        symbols its name stands where this one's stood."""

        def planned(work: Workload, props: DeviceProperties, tile: Any = None) -> Plan:
            made = self.planned(work, props, tile)
            launches = tuple(step._replace(symbol=renamed(step.symbol)) for step in made.launches)
            main = renamed(made.main_symbol) if made.main_symbol else ""
            return replace(made, variant=name, launches=launches, main_symbol=main)

        def renamed(symbol: str) -> str:
            return name + symbol.removeprefix(self.name)

        return replace(self, **{"name": name, "idea": idea, "planned": planned, "colour": None, **changes})

    def plan(self, work: Workload, props: DeviceProperties, tile: Any = None) -> Plan:
        """The launches for a workload, with another tile of its own if one is given. Raises MachineError where it does
        not run."""
        self.check_takes(work)
        return replace(self.planned(work.stored, props, tile), score=work.score)

    def models(self, plan: Plan, work: Workload, props: DeviceProperties) -> list[LaunchModel]:
        """What each launch of a plan moves and computes."""
        return self.work(plan, work.stored, props)

    def arguments(self, work: Workload, planned: Plan, arrays: Any, encode: Encode) -> bytes:
        """The one argument of each of a plan's launches."""
        return self.packed(work.stored, planned, arrays, encode)

    def is_automatic(self, work: Workload, props: DeviceProperties) -> bool:
        """Whether auto takes it, where it takes none that stands before it."""
        asked = (self.windows or not work.window) and (self.sequences or not work.sequences) and work.d <= self.widest
        asked = asked and self.takes_scores(work)
        return self.repeatable and asked and (self.preferred or self.takes)(work.stored, props)
