"""Launches that are prepared for arrays of a geometry, by a driver that notes what comes."""

import random
import struct
import threading
from types import SimpleNamespace

import fakedriver
import numpy as np
import pytest
from helpers import ROOT

from hw4cli.device import launcher
from hw4cli.device.launcher import Argument, Prepared, PreparedByCupy, Step, prepared
from hw4cli.errors import LostGpuError, MachineError
from hw4cli.plans.plan import AMD_DEVICES, DEVICES, Launch

STEPS = (Launch("first", 40, 128, 1024), Launch("second", 5, 256, 0, early=True))
H100 = DEVICES[90]


@pytest.fixture
def driver(monkeypatch):
    return fakedriver.install(monkeypatch)


def make(addresses):
    """As structs are: sizes, addresses, what lies behind one of them, floats."""
    q, o, scratch = addresses
    return struct.pack("<iiQqQQQfi", 3, -1, q, 2**40, o, scratch, scratch + 4096, 0.125, 7)


def call(driver, props=H100, cleared=0, make=make):
    functions = [driver.function(step.symbol) for step in STEPS]
    return Prepared(SimpleNamespace(props=props), [Step(Argument(make, 3), functions, STEPS, cleared)], 8192)


ADDRESSES = (1 << 33, 5 << 30, 0x7F00_0000_1000)


def test_any_addresses_give_the_bytes_that_packing_them_gives():
    argument, draw = Argument(make, 3), random.Random(1)
    assert argument.is_filled
    for _ in range(100):
        addresses = tuple(draw.choice([0, draw.randrange(1 << 47)]) for _ in range(3))
        assert argument.filled(*addresses) == make(addresses)


def test_a_struct_of_a_known_form_is_asked_for_once_and_another_twice():
    asked = []

    def of(number, form="<QQiiQ"):
        def packed(addresses):
            asked.append(addresses)
            return struct.pack(form, addresses[0], number << 40, 1, number, addresses[1] + number * 64)

        return packed

    first = Argument(of(1), 2)
    assert len(asked) == 2 and first.places == {(0, 0), (3, 1)}
    for number, count in ((2, 1), (9, 1), (0x20, 2), (0x21, 2)):  # two of them look like addresses
        asked.clear()
        other = Argument(of(number), 2, first.places)
        assert len(asked) == count and other.is_filled and other.places == first.places
        assert other.filled(*ADDRESSES[:2]) == of(number)(ADDRESSES)
    assert not Argument(lambda at: struct.pack("<QQ", at[0] >> 4, at[1]), 2, first.places).is_filled


def test_a_number_that_looks_like_an_address_is_none():
    """As the words of a tensor map do in which sizes and types are packed."""

    def packed(addresses):
        return struct.pack("<4Q", launcher.SAMPLES[1] + 4096, addresses[0], launcher.SAMPLES[0], launcher.OTHERS[2])

    argument = Argument(packed, 3)
    assert argument.is_filled and argument.filled(*ADDRESSES) == packed(ADDRESSES)


@pytest.mark.parametrize(
    "other",
    [
        lambda at: struct.pack("<QQ", at[0] >> 4, at[1]),
        lambda at: struct.pack("<QQ", at[0] ^ at[1], at[2]),
        lambda at: struct.pack("<QQ", at[0] // 3 * 3, at[2] % 4096),
        lambda at: struct.pack("<IQI", 1, at[0], 2),
        lambda at: struct.pack("<QI", at[0], at[1] & 0xFFFF_FFFF),
    ],
    ids=["shifted", "mixed", "its last digits", "between words", "behind the last word"],
)
def test_what_depends_on_addresses_in_another_way_is_packed_anew_for_others(other):
    argument = Argument(other, 3)
    assert not argument.is_filled and argument.filled(*ADDRESSES) == other(ADDRESSES)


def test_where_addresses_come_again_nothing_is_packed_and_few_are_kept(driver):
    asked = []

    def of(addresses):
        asked.append(addresses)
        return struct.pack("<QQ", addresses[0] >> 4, addresses[1])  # which is packed each time, where others are filled

    one = call(driver, make=of)
    asked.clear()
    for _ in range(3):
        for n in range(launcher.AGAIN):
            one.enqueue((n << 8, *ADDRESSES[1:]), 5)
    assert len(asked) == launcher.AGAIN
    assert [argument for *_, argument, _ in driver.launched[::2]] == 3 * [
        struct.pack("<QQ", n << 4, ADDRESSES[1]) for n in range(launcher.AGAIN)
    ]
    one.enqueue(ADDRESSES, 5)
    one.enqueue((0, *ADDRESSES[1:]), 5)  # the first of all had to make room
    assert len(asked) == launcher.AGAIN + 2


def test_launches_get_the_bytes_the_stream_and_their_sizes(driver):
    one = call(driver)
    for stream in (0, 77, 0):
        one.enqueue(ADDRESSES, stream)
    expected = make(ADDRESSES)
    both = [("first", False), ("second", True)]
    assert driver.launched == [(name, stream, expected, early) for stream in (0, 77, 0) for name, early in both]


def test_before_hopper_no_launch_begins_early(driver):
    call(driver, DEVICES[80]).enqueue(ADDRESSES, 0)
    assert [early for *_, early in driver.launched] == [False, False]


def test_scratch_that_must_be_zero_is_cleared_on_the_stream_before_the_launches(driver):
    call(driver, cleared=20).enqueue(ADDRESSES, 5)
    assert driver.launched[0] == ("memset", 5, (ADDRESSES[2], 0, 20), False)
    assert [symbol for symbol, *_ in driver.launched] == ["memset", "first", "second"]


def test_a_table_is_copied_or_where_a_graph_is_captured_written_by_launches_that_hold_it(driver):
    """A graph is replayed when the host's memory is gone; an argument has 4 KB."""
    table = random.Random(2).randbytes(2 * 4016 + 48)
    gpu = SimpleNamespace(props=H100, functions=lambda plan: [driver.function(x.symbol) for x in plan.launches])
    step = Step(Argument(make, 3), [driver.function("first")], STEPS[:1], 0, table, 4096)
    one, at = Prepared(gpu, [step]), ADDRESSES[2] + 4096
    one.enqueue(ADDRESSES, 5)
    assert driver.launched[0] == ("copy", 5, (at, table), False)
    driver.launched, driver.capturing = [], True
    one.enqueue(ADDRESSES, 5)
    *parts, last = driver.launched
    assert last[0] == "first" and [part[:2] for part in parts] == [("tablewriter", 5)] * 3
    found = b""
    for _, _, passed, _ in parts:
        to, words, _ = struct.unpack_from("<Qii", passed)
        assert to == at + len(found) and len(passed) == 4032
        found += passed[16 : 16 + 4 * words]
    assert found == table


def test_a_thread_without_a_context_gets_the_gpus_and_asks_again(driver):
    one, driver.contexts = call(driver, cleared=20), set()
    for _ in range(2):
        thread = threading.Thread(target=one.enqueue, args=(ADDRESSES, 3))
        thread.start()
        thread.join()
    assert [symbol for symbol, *_ in driver.launched] == 2 * ["memset", "first", "second"]


def test_arrays_are_filled_with_words_and_no_byte_behind_them(driver):
    one, driver.contexts, array = call(driver), set(), np.ones(9, np.float32)
    one.fill(array.ctypes.data, 32, 0xFF800000, 3)
    assert array.tolist() == 8 * [-np.inf] + [1.0]
    one.fill(array.ctypes.data, 4, 0, 3)
    assert array[0] == 0 and [on for _, on, *_ in driver.launched] == [3, 3]


@pytest.mark.parametrize(
    ("status", "kind"), [(700, LostGpuError), (719, LostGpuError), (400, MachineError), (709, MachineError)]
)
def test_what_the_driver_refuses_is_one_sentence_and_all_that_was_prepared_is_forgotten(
    driver, monkeypatch, status, kind
):
    """A GPU that was reset has none of the functions any more."""
    forgotten = []
    monkeypatch.setattr(launcher, "_KEPT", [lambda: forgotten.append(True)])
    one, driver.refusals = call(driver), [0, status]
    with pytest.raises(MachineError, match=rf"refuses to launch second \(error {status}\)") as raised:
        one.enqueue(ADDRESSES, 0)
    assert type(raised.value) is kind and forgotten == [True]


def test_a_context_that_does_not_come_is_an_error_too(driver):
    one, driver.refusals = call(driver), [201, 201]
    with pytest.raises(MachineError, match="error 201"):
        one.enqueue(ADDRESSES, 0)


def test_streams_come_and_go_and_few_are_kept(driver):
    one = call(driver)
    for stream in range(1000):
        one.enqueue(ADDRESSES, stream)
    assert len(one._by_stream) <= launcher.STREAMS
    assert [stream for _, stream, *_ in driver.launched[::2]] == list(range(1000))


def test_eight_threads_share_one_call_and_each_launch_has_its_own_bytes(driver):
    one = call(driver)

    def work(seed):
        for n in range(200):
            one.enqueue((seed << 32, n << 8, 64 * seed), seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = {(seed, make((seed << 32, n << 8, 64 * seed))) for seed in range(1, 9) for n in range(200)}
    assert {(stream, argument) for _, stream, argument, _ in driver.launched} == expected
    assert len(driver.launched) == 2 * len(expected)


class Stream:
    """One of cupy's for ROCm."""

    current = None

    def __init__(self, address):
        self.address = address

    def __enter__(self):
        Stream.current = self.address

    def __exit__(self, *error):
        Stream.current = None


def test_amds_gpus_are_launched_on_by_cupy():
    calls = []

    def function(grid, block, params, shared_mem):
        calls.append((Stream.current, grid, block, params[0].tobytes(), shared_mem))

    clear = SimpleNamespace(memsetAsync=lambda *given: calls.append(given))
    cupy = SimpleNamespace(cuda=SimpleNamespace(ExternalStream=Stream, runtime=clear))
    gpu = SimpleNamespace(props=AMD_DEVICES["gfx90a"], cupy=cupy)
    one = prepared(gpu, [Step(Argument(make, 3), [function] * 2, STEPS, 20)])
    assert isinstance(one, PreparedByCupy) and not one.is_filled
    one.enqueue(ADDRESSES, 9)
    expected = np.frombuffer(make(ADDRESSES), np.uint8).tobytes()
    assert calls == [
        (ADDRESSES[2], 0, 20, 9),
        (9, (40,), (128,), expected, 1024),
        (9, (5,), (256,), expected, 0),
    ]


def test_arrays_are_launched_by_the_launcher_alone():
    """But for the copies of rows that no kernel loads, by the GPU's own function for it."""
    for path in (ROOT / "hw4cli/arrays").rglob("*.py"):
        for other in ("import enqueue", "cuLaunchKernel", "shared_mem", "np.frombuffer(passed"):
            assert other not in path.read_text(), f"{path} launches by itself"
