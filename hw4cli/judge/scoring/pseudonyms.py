"""Pseudonyms for a public scoreboard: each student knows only their own.

They are chosen at random once, and kept beside the results in a file that only its owner can read.
"""

import json
import secrets
from collections.abc import Iterable
from pathlib import Path

from hw4cli.errors import InputError
from hw4cli.system.files import write_text
from hw4cli.system.reading import read_json

NAME = "pseudonyms.json"
SCHEMA = 1
FIRST = """
amber ashen azure bold brave brisk calm candid clever coral cosy crimson daring dusky eager early fair fleet fond
frosty gentle glad golden grand happy hardy hazel honest humble indigo ivory jade jolly keen kind lively lucky mellow
merry mighty misty modest noble olive patient placid plucky proud quick quiet rapid rosy royal ruby sandy silent
silver sleek smooth snowy spry steady still sunny swift tidy topaz upbeat velvet violet vivid warm wily wise
"""
SECOND = """
alder ant aspen badger bat bear beaver beech bee birch bison boar cedar cobra cod condor coyote crab crane cricket
crow deer dolphin dove eagle eel egret elk elm falcon ferret finch fir fox frog gecko goose hare hawk heron hornet
ibex ibis jackal jay juniper kiwi koala lark larch lemur leopard linden lion lizard llama lobster lynx maple marten
mink mole moose moth newt oak orca oriole osprey otter owl ox panda panther pear pelican pigeon pike pine plover
poplar puffin puma quail rabbit raven robin rook rowan salmon seal shark snail sparrow spider spruce squid stork swan
tapir tern thrush tiger toad trout tuna turtle viper walnut walrus wasp weasel whale willow wolf wren yak yew
"""


def pseudonyms(folder: Path, users: Iterable[str]) -> dict[str, str]:
    """A pseudonym for each of these users of a folder of results; the recorded ones are kept.

    InputError if the file is damaged, MachineError if it cannot be written.
    """
    path, users = folder / NAME, list(users)
    known = _read(path)
    missing = [user for user in users if user not in known]
    taken = set(known.values())
    for user in missing:
        known[user] = _new_name(taken)
        taken.add(known[user])
    if missing:
        text = json.dumps({"schema": SCHEMA, "kind": "hw4-pseudonyms", "names": known}, indent=1)
        write_text(path, text + "\n", mode=0o600)
    return {user: known[user] for user in users}


def _new_name(taken: set[str]) -> str:
    """A pseudonym that is not taken; with a number where no pair of words is free."""
    for number in range(1, 1 << 20):
        for _ in range(100):
            name = f"{secrets.choice(FIRST.split())} {secrets.choice(SECOND.split())}" + (
                f" {number}" if number > 1 else ""
            )
            if name not in taken:
                return name
    raise AssertionError("more users than pseudonyms")


def _read(path: Path) -> dict[str, str]:
    try:
        document = read_json(path)
        names: dict[str, str] = document["names"]
        if document["schema"] != SCHEMA or not all(isinstance(name, str) for name in names.values()):
            raise ValueError
        return dict(names)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, LookupError, TypeError, AttributeError):
        raise InputError(f"{path} is damaged: restore it, or remove it for new pseudonyms") from None
