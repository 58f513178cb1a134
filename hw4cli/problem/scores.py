"""What is done with scores before the softmax, in a user's words: `score="s - 0.1 * abs(i - j)"`, `keep="j >= i - 9"`.

An expression has the names s (the score, scaled), b, h, i, j (batch, head, row, key), Nq and Nk; numbers, `inf`; arrays
of one's own by index, `bias[b, h, i, j]`; + - * / // % **, comparisons, and, or, not, `x if c else y`; abs, min, max,
exp, log, sqrt, tanh. Python's grammar reads it, and nothing else is let through; of C, `0.1f`, &&, || and ! are
understood. The same tree becomes the kernels' text (`texts`), NumPy's arithmetic (`evaluate`) and, of a score, its
slope (`slope_of`), by the rules of derivatives.
"""

import ast
import copy
import functools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from hw4cli.errors import InputError

SCORE = "s"
PLACES = ("b", "h", "i", "j", "Nq", "Nk")  # whole numbers
MOST_ARRAYS, MOST_DIMENSIONS = 4, 4
LONGEST = 2000  # letters of an expression
MOST_BENDS = 4  # of a line
MOST_ENLARGED = 256  # what a tanh to 2^-23 of 1 may be multiplied by; one by more is to 2^-21 of itself
# The smallest cap of which a slope comes from a weight's logarithm, which knows a score to 2^-20.
LEAST_OF_WEIGHTS = 2.0**-6
FLOAT, INT, BOOL = "float", "int", "bool"  # types of expressions
WORD = re.compile(r"[A-Za-z_]\w*")
FLOAT_OF_C = re.compile(r"(?<![\w.])((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)[fF]\b")


class Named(NamedTuple):
    """An array that an expression names: what its elements are ("float32", "int32", "bool", or "element", of 16 bits as
    Q's are), its shape, and its strides in elements; whether it is known to begin at a multiple of 16 bytes."""

    name: str
    kind: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    aligned: bool = False

    @property
    def type(self) -> str:
        """That of an element, in an expression."""
        return {"int32": INT, "bool": BOOL}.get(self.kind, FLOAT)

    @property
    def tile_bytes(self) -> int:
        """Those of an element, if a row's keys lie side by side where eight can be read at once; else 0."""
        element = {"bool": 1, "element": 2}.get(self.kind, 4)
        return element if self.aligned and not any(stride % 8 for stride in self.strides[:-1]) else 0


@dataclass(frozen=True)
class Score:
    """What becomes of a score, and which pairs have one; "" for all as they are. `arrays`: those that either names.
    `first`: what b is of the first batch that is computed; another one changes no text."""

    change: str = ""
    keep: str = ""
    arrays: tuple[Named, ...] = ()
    gradient: bool = False  # whether the gradients of the changed scores themselves are wanted, too
    first: int = 0

    @functools.cached_property
    def trees(self) -> tuple[ast.expr, ast.expr | None]:
        """Those of `change` and of `keep`."""
        types = {one.name: one for one in self.arrays}
        change = parsed("score", self.change or SCORE, types, FLOAT)
        return change, parsed("keep", self.keep, types, BOOL) if self.keep else None

    @functools.cached_property
    def keeps_slope(self) -> bool:
        """Whether the slope is 1 wherever there is a score: a bias, a mask."""
        return _number(slope_of(self.trees[0])) == 1

    def changes_by(self, name: str) -> bool:
        """Whether what becomes of a score depends on an index or an array."""
        return _names(self.trees[0], (name,))

    def keeps_by(self, name: str) -> bool:
        """Whether it depends on one which pairs have a score."""
        return self.trees[1] is not None and _names(self.trees[1], (name,))

    @property
    def texts(self) -> dict[str, str]:
        """The kernels' macros: a score of s, b, h, i, j, and its slope (kernels/score.cuh)."""
        change, keep = self.trees
        write = _Writer({one.name: (n, one) for n, one in enumerate(self.arrays)}, self.tile)
        texts = {"SCORE": write.float(change), "SCORE_SLOPE": write.float(slope_of(change))}
        if self.tile:
            texts["SCORE_TILE"] = write.row(*self._reads(self.tile))
        if self.line:
            rest, step, bends = self.line
            texts |= {"SCORE_REST": write.float(rest)} if _number(rest) != 0 else {}
            texts |= {"SCORE_STEP": write.float(step)} if self.rises else {}
            texts["SCORE_SIDES"] = "|".join(f"({write(bend)}<0)<<{n}" for n, bend in enumerate(bends)) or "0"
        elif self.folded.core is not change:
            texts["SCORE_CORE"] = write.float(self.folded.core)
        if self.folded.is_tanh:
            inner, outer = self.folded.inner, self.folded.outer
            texts |= {"SCORE_INNER": repr(inner), "SCORE_OUTER": repr(outer)}
            if outer >= LEAST_OF_WEIGHTS:
                texts["SCORE_SLOPE_AFTER"] = f"(T({inner * outer!r})*score_tanh_slope(s*T({1 / outer!r})))"
        return texts | ({} if keep is None else {"SCORE_KEEPS": write(keep)})

    @functools.cached_property
    def line(self) -> tuple[ast.expr, ast.expr, list[ast.expr]] | None:
        """If a score is s (folded: times a constant) and, from key to key of a row, a straight line with bends, as with
        ALiBi: what is added to s, by how much that grows from a key to the next, what changes sign at a bend."""
        change, bends = self.folded.core, list[ast.expr]()
        if self.folded.outer != 1 or _number(slope_of(change)) != 1:
            return None
        if (step := _step(change, bends)) is None or len(bends) > MOST_BENDS:
            return None
        return _plain(put(SCORE, ast.Constant(0.0), change)), step, bends

    @property
    def rises(self) -> bool:
        """Whether a score has such a line, which is not level."""
        return self.line is not None and _number(self.line[1]) != 0

    @functools.cached_property
    def folded(self) -> "Folded":
        """The score without constants around it and around s, which then cost nothing."""
        core, outer = self.trees[0], 1.0
        match core:
            case ast.BinOp(left=u, op=ast.Mult(), right=v):
                for part, other in ((u, v), (v, u)):
                    if (found := _number(part)) and _is_mild(found) and _names(other, (SCORE,)):
                        core, outer = other, found
            case ast.BinOp(left=u, op=ast.Div(), right=v):
                if (found := _number(v)) and _is_mild(found):
                    core, outer = u, 1 / found
        factors = set(_factors(core))
        inner = factors.pop() if len(factors) == 1 else 1.0
        if inner == 1 or not _is_mild(inner):
            return Folded(core, 1.0, outer)
        return Folded(_Unscaled().visit(copy.deepcopy(core)), inner, outer)

    @functools.cached_property
    def tile(self) -> str:
        """The array that is read at [..., i, j] or [..., j] alone, always at the same b and h, with keys side by side:
        kernels read such a one as tiles. "" if there is none."""
        for one in self.arrays:
            reads = self._reads(one.name)
            if one.kind == "int32" or len(one.shape) < 2 or one.strides[-1] != 1 or len(set(map(ast.dump, reads))) != 1:
                continue
            *others, j = map(ast.unparse, _indices(reads[0]))
            if others[-1:] == ["i"]:
                others.pop()
            if j == "j" and all(place in ("b", "h") or place.isdigit() for place in others):
                return one.name
        return ""

    @property
    def tile_is_mask(self) -> bool:
        """Whether that array is boolean."""
        return any(one.name == self.tile and one.kind == "bool" for one in self.arrays)

    @property
    def tile_has_rows(self) -> bool:
        """Whether that array has a row for each i, not one for all."""
        return any(_names(read, ("i",)) for read in self._reads(self.tile))

    @property
    def tile_is_of_heads(self) -> bool:
        """Whether that array is another one for each head, and the same for all batches."""
        reads = self._reads(self.tile)
        return any(_names(read, ("h",)) for read in reads) and not any(_names(read, ("b",)) for read in reads)

    @property
    def tile_is_shared(self) -> bool:
        """Whether that array is the same for all heads of a batch."""
        return bool(self.tile) and not any(_names(read, ("h",)) for read in self._reads(self.tile))

    def copied_bytes(self, keys: int) -> int:
        """Those of an element of that array, if it has so many keys and a row of it begins at a multiple of 16 bytes;
        else 0."""
        one = next((one for one in self.arrays if one.name == self.tile), None)
        if not one or not one.tile_bytes or one.shape[-1] < keys:
            return 0
        return 0 if any(stride * one.tile_bytes % 16 for stride in one.strides[:-1]) else one.tile_bytes

    def _reads(self, name: str) -> list[ast.Subscript]:
        """Where an array is read."""
        nodes = [node for tree in self.trees if tree for node in ast.walk(tree)]
        found = [node for node in nodes if isinstance(node, ast.Subscript) and ast.unparse(node.value) == name]
        return [*{ast.dump(node): node for node in found}.values()]

    @property
    def numbers(self) -> dict[str, int]:
        """The kernels' macros beside these."""
        tile = next((one.tile_bytes for one in self.arrays if one.name == self.tile), 0)
        found = {"SCORED": 1, "SCORE_VIEWS": max(1, len(self.arrays)), "SCORE_SLOPES": int(not self.keeps_slope)}
        found |= {"SCORE_TILE_BYTES": tile} if tile else {}
        found |= {"SCORE_ENLARGED": 1} if _enlarged(self.trees[0]) > MOST_ENLARGED else {}
        return {**found, **({"SCORE_GRADIENT": 1} if self.gradient else {})}

    def evaluate(
        self, s: Any, places: Mapping[str, Any], arrays: Iterable[Any], slope: bool = False
    ) -> tuple[Any, Any]:
        """NumPy's answer: scores, -inf where they are not kept, and, if it is asked for, their slopes.

        `places`: b and h as numbers, i as a column and j as a row of them, Nq and Nk; `arrays` in the order of ours."""
        change, keep = self.trees
        given = {**places, SCORE: s, **{one.name: array for one, array in zip(self.arrays, arrays, strict=True)}}
        shape, kept = s.shape, None if keep is None else _value(keep, given)
        found = _broadcast(_value(change, given), shape, s.dtype)
        slopes = _broadcast(_value(slope_of(change), given), shape, s.dtype) if slope else None
        if kept is not None:
            import numpy as np

            found = np.where(kept, found, s.dtype.type(-math.inf))
            slopes = None if slopes is None else np.where(kept, slopes, s.dtype.type(0))
        return found, slopes


class Folded(NamedTuple):
    """A score as outer · core, where the core's s is inner · s."""

    core: ast.expr
    inner: float
    outer: float

    @property
    def is_tanh(self) -> bool:
        """Whether the core is tanh(s), as softcap has it."""
        return ast.unparse(self.core) == f"tanh({SCORE})"


def _broadcast(x: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    import numpy as np

    return np.broadcast_to(np.asarray(x, dtype), shape)


# ---- From words


def parsed(what: str, words: str, arrays: Mapping[str, Named], wanted: str) -> ast.expr:
    """The tree of an expression of the wanted type. Raises InputError, with `what` it is, where the words are none."""
    if len(words) > LONGEST:
        raise InputError(f"{what} has {len(words):,} letters: give at most {LONGEST:,}")
    python = FLOAT_OF_C.sub(r"\1", words).replace("&&", " and ").replace("||", " or ")
    python = re.sub(r"!(?!=)", " not ", python)
    try:
        tree = ast.parse(python.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        hint = ": of C's c ? x : y write x if c else y" if "?" in words else ""
        raise InputError(f"{what} {words!r} is no expression{hint}") from None
    try:
        found = _type(tree, arrays, what == "score")
    except RecursionError:
        raise InputError(f"{what} is nested too deeply") from None
    except _WrongError as wrong:
        raise InputError(f"{what} {words!r}: {wrong}") from None
    if BOOL in (found, wanted) and found != wanted:
        kinds = {FLOAT: "a number", BOOL: "true or false", INT: "a number"}
        raise InputError(f"{what} {words!r} is {kinds[found]}: give {kinds[wanted]}")
    return tree


class _WrongError(Exception):
    """What is wrong with an expression, as a sentence without its subject."""


NUMBERS: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
}
COMPARED: dict[type[ast.cmpop], str] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
}
OF_FLOATS = ("exp", "log", "sqrt", "tanh")
FUNCTIONS = {**dict.fromkeys(("abs", *OF_FLOATS), 1), "min": 2, "max": 2}
LARGEST_POWER = 8


def _type(tree: ast.expr, arrays: Mapping[str, Named], scored: bool) -> str:
    """The type of an expression; _WrongError where it has none. `scored`: whether it may name s."""

    def of(part: ast.expr) -> str:
        return _type(part, arrays, scored)

    def number(part: ast.expr) -> str:
        if (found := of(part)) == BOOL:
            raise _WrongError(f"{ast.unparse(part)} is true or false, and no number")
        return found

    def truth(part: ast.expr) -> str:
        if of(part) != BOOL:
            raise _WrongError(f"{ast.unparse(part)} is a number, and not true or false: compare it")
        return BOOL

    match tree:
        case ast.Constant(value=bool()):
            return BOOL
        case ast.Constant(value=int(value)):
            if abs(value) >= 1 << 31:
                raise _WrongError(f"{value} does not fit 32 bits: write {value}.0")
            return INT
        case ast.Constant(value=float(value)):
            if not math.isfinite(value) or abs(value) > 3e38:
                raise _WrongError(f"{value} does not fit float32")
            return FLOAT
        case ast.Name(id="inf"):
            return FLOAT
        case ast.Name(id=name) if name == SCORE and scored:
            return FLOAT
        case ast.Name(id=name) if name in PLACES:
            return INT
        case ast.Name(id=name) if name in arrays:
            raise _WrongError(f"{name} is an array: name an element, {name}[…]")
        case ast.Name(id=name):
            known = ", ".join([SCORE] * scored + [*PLACES, *arrays])
            raise _WrongError(f"{name} is none of {known}")
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=part):
            return number(part)
        case ast.UnaryOp(op=ast.Not(), operand=part):
            return truth(part)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in NUMBERS:
            types = number(left), number(right)
            if isinstance(op, ast.FloorDiv | ast.Mod):
                if FLOAT in types:
                    raise _WrongError(f"{ast.unparse(tree)}: {NUMBERS[type(op)]} is of whole numbers")
                if not isinstance(right, ast.Constant) or not isinstance(right.value, int) or right.value < 1:
                    raise _WrongError(
                        f"{ast.unparse(tree)}: the right side of {NUMBERS[type(op)]} must be a number from 1 on"
                    )
                return INT
            if isinstance(op, ast.Pow):
                power = right.value if isinstance(right, ast.Constant) else None
                if type(power) is not int or not 1 <= power <= LARGEST_POWER:
                    raise _WrongError(f"{ast.unparse(tree)}: a power must be a whole number from 1 to {LARGEST_POWER}")
                return types[0]
            return FLOAT if FLOAT in types or isinstance(op, ast.Div) else INT
        case ast.Compare(left=left, ops=ops, comparators=others) if all(type(op) in COMPARED for op in ops):
            for part in (left, *others):
                number(part)
            return BOOL
        case ast.BoolOp(values=parts):
            for part in parts:
                truth(part)
            return BOOL
        case ast.IfExp(test=test, body=body, orelse=other):
            truth(test)
            types = of(body), of(other)
            if BOOL in types and types != (BOOL, BOOL):
                raise _WrongError(f"{ast.unparse(tree)} is a number in one case, and true or false in the other")
            return FLOAT if FLOAT in types else types[0]
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in FUNCTIONS:
            if len(args) != FUNCTIONS[name]:
                count = FUNCTIONS[name]
                raise _WrongError(f"{name}() takes {count} number{'s' * (count > 1)}, not {len(args)}")
            types_ = [number(part) for part in args]
            return FLOAT if FLOAT in types_ or name in OF_FLOATS else INT
        case ast.Call(func=ast.Name(id=name)):
            raise _WrongError(f"{name}() is none of {', '.join(FUNCTIONS)}")
        case ast.Subscript(value=ast.Name(id=name)) if name in arrays:
            indices = _indices(tree)
            if len(indices) != len(arrays[name].shape):
                raise _WrongError(f"{name} has {len(arrays[name].shape)} dimensions, not {len(indices)}")
            for part in indices:
                if isinstance(part, ast.Slice) or of(part) != INT:
                    raise _WrongError(f"{name}[{ast.unparse(part)}]: an index is a whole number")
            return arrays[name].type
        case ast.Subscript(value=ast.Name(id=name)):
            raise _WrongError(f"{name} is no array that was given: {', '.join(arrays) or 'there is none'}")
    raise _WrongError(f"{ast.unparse(tree)} is not understood: see the documentation of score= and keep=")


# ---- The slope


def _number(tree: ast.expr) -> float | None:
    """What an expression always is, if it is a number that stands there."""
    match tree:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return float(value)
        case ast.UnaryOp(op=ast.USub(), operand=part) if (found := _number(part)) is not None:
            return -found
    return None


def _binary(left: ast.expr, op: ast.operator, right: ast.expr) -> ast.expr:
    """The two put together, without sums with 0 and products with 0 or 1."""
    a, b = _number(left), _number(right)
    if isinstance(op, ast.Add) and 0 in (a, b):
        return right if a == 0 else left
    if isinstance(op, ast.Sub) and b == 0:
        return left
    if isinstance(op, ast.Mult):
        if 0 in (a, b):
            return ast.Constant(0.0)
        if 1 in (a, b):
            return right if a == 1 else left
    if isinstance(op, ast.Div) and (a == 0 or b == 1):
        return left
    return ast.BinOp(left, op, right)


def _call(name: str, *parts: ast.expr) -> ast.expr:
    return ast.Call(ast.Name(name), list(parts), [])


def _either(test: ast.expr, one: ast.expr, other: ast.expr) -> ast.expr:
    same = _number(one) is not None and _number(one) == _number(other)
    return one if same else ast.IfExp(test, one, other)


def slope_of(tree: ast.expr) -> ast.expr:
    """By how much an expression grows with s. Where it has a corner, that of one side."""
    zero, one = ast.Constant(0.0), ast.Constant(1.0)
    match tree:
        case ast.Name(id=name) if name == SCORE:
            return one
        case ast.UnaryOp(op=ast.USub(), operand=part):
            found = slope_of(part)
            return zero if _number(found) == 0 else ast.UnaryOp(ast.USub(), found)
        case ast.UnaryOp(op=ast.UAdd(), operand=part):
            return slope_of(part)
        case ast.BinOp(left=u, op=ast.Add() | ast.Sub() as op, right=v):
            if isinstance(op, ast.Sub) and _number(slope_of(u)) == 0 and _number(slope_of(v)) != 0:
                return ast.UnaryOp(ast.USub(), slope_of(v))
            return _binary(slope_of(u), op, slope_of(v))
        case ast.BinOp(left=u, op=ast.Mult(), right=v):
            return _binary(_binary(slope_of(u), ast.Mult(), v), ast.Add(), _binary(u, ast.Mult(), slope_of(v)))
        case ast.BinOp(left=u, op=ast.Div(), right=v):
            of_v = _binary(_binary(u, ast.Mult(), slope_of(v)), ast.Div(), _binary(v, ast.Mult(), v))
            return _binary(_binary(slope_of(u), ast.Div(), v), ast.Sub(), of_v)
        case ast.BinOp(left=u, op=ast.Pow(), right=ast.Constant(value=int(n))):
            power = one if n == 1 else ast.BinOp(u, ast.Pow(), ast.Constant(n - 1))
            return _binary(_binary(ast.Constant(float(n)), ast.Mult(), power), ast.Mult(), slope_of(u))
        case ast.IfExp(test=test, body=u, orelse=v):
            return _either(test, slope_of(u), slope_of(v))
        case ast.Call(func=ast.Name(id=name), args=[u]):
            outer: dict[str, Callable[[], ast.expr]] = {
                "abs": lambda: ast.IfExp(ast.Compare(u, [ast.Lt()], [zero]), ast.Constant(-1.0), one),
                "exp": lambda: tree,
                "log": lambda: _binary(one, ast.Div(), u),
                "sqrt": lambda: _binary(ast.Constant(0.5), ast.Div(), tree),
                "tanh": lambda: ast.BinOp(one, ast.Sub(), ast.BinOp(tree, ast.Mult(), tree)),
            }
            inner = slope_of(u)
            return zero if _number(inner) == 0 else _binary(outer[name](), ast.Mult(), inner)
        case ast.Call(func=ast.Name(id=name), args=[u, v]):
            test = ast.Compare(u, [ast.LtE() if name == "min" else ast.GtE()], [v])
            return _either(test, slope_of(u), slope_of(v))
    return zero  # of places, numbers and elements


# ---- What is the same for many scores


def _names(tree: ast.expr, names: Iterable[str]) -> bool:
    """Whether an expression has one of the names."""
    return any(isinstance(node, ast.Name) and node.id in names for node in ast.walk(tree))


class _Put(ast.NodeTransformer):
    """Puts an expression in the place of a name."""

    def __init__(self, name: str, tree: ast.expr) -> None:
        self._name, self._tree = name, tree

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """The expression, or the name."""
        return self._tree if node.id == self._name else node


def put(name: str, one: ast.expr, tree: ast.expr) -> ast.expr:
    """An expression with another one in the place of a name."""
    return _Put(name, one).visit(copy.deepcopy(tree))  # type: ignore[no-any-return]


def _plain(tree: ast.expr) -> ast.expr:
    """An expression without sums with 0."""
    match tree:
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as op, right=right):
            return _binary(_plain(left), op, _plain(right))
    return tree


def _step(tree: ast.expr, bends: list[ast.expr]) -> ast.expr | None:
    """By how much an expression grows from key to key, if that is the same for all keys and rows but for bends, of
    which each is one where an expression, added to `bends`, changes its sign; None if it is not."""
    zero = ast.Constant(0.0)
    if not _names(tree, (SCORE, "j")):
        return zero
    match tree:
        case ast.Name(id=name):
            return zero if name == SCORE else ast.Constant(1.0)
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as op, operand=part) if found := _step(part, bends):
            return found if isinstance(op, ast.UAdd) or _number(found) == 0 else ast.UnaryOp(op, found)
        case ast.BinOp(left=u, op=ast.Add() | ast.Sub() as op, right=v):
            of_u, of_v = _step(u, bends), _step(v, bends)
            if of_u is None or of_v is None:
                return None
            if isinstance(op, ast.Sub) and _number(of_u) == 0 and _number(of_v) != 0:
                return ast.UnaryOp(ast.USub(), of_v)
            return _binary(of_u, op, of_v)
        case ast.BinOp(left=u, op=ast.Mult(), right=v):
            factor, other = (v, u) if _names(u, (SCORE, "j")) else (u, v)
            if _names(factor, (SCORE, "i", "j")) or (found := _step(other, bends)) is None:
                return None
            return _binary(factor, ast.Mult(), found)
        case ast.BinOp(left=u, op=ast.Div(), right=v):
            if _names(v, (SCORE, "i", "j")) or (found := _step(u, bends)) is None:
                return None
            return _binary(found, ast.Div(), v)
        case ast.Call(func=ast.Name(id="abs" | "min" | "max" as name), args=args) if all(map(_is_affine, args)):
            bends.append(args[0] if name == "abs" else ast.BinOp(args[0], ast.Sub(), args[1]))
            steps: list[ast.expr] = [_step(part, bends) or zero for part in args]
            negative = ast.Compare(bends[-1], [ast.Lt()], [ast.Constant(0)])
            if name == "abs":
                return _either(negative, ast.UnaryOp(ast.USub(), steps[0]), steps[0])
            return _either(negative, *(steps if name == "min" else steps[::-1]))
    return None


def _is_affine(tree: ast.expr) -> bool:
    """Whether an expression of rows and keys, and not of s, is a plane: of no sign in a rectangle but its corners'."""
    if not _names(tree, (SCORE, "i", "j")):
        return True
    match tree:
        case ast.Name(id=name):
            return name != SCORE
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=part):
            return _is_affine(part)
        case ast.BinOp(left=u, op=ast.Add() | ast.Sub(), right=v):
            return _is_affine(u) and _is_affine(v)
        case ast.BinOp(left=u, op=ast.Mult(), right=v):
            return _is_affine(u) and _is_affine(v) and not all(_names(x, ("i", "j")) for x in (u, v))
    return False


def _enlarged(tree: ast.expr) -> float:
    """By how much the error of a tanh is multiplied, at most; inf where that is not known, 0 where there is none."""
    if not _names(tree, ("tanh",)):
        return 0
    match tree:
        case ast.Call(func=ast.Name(id="tanh"), args=[part]):
            return max(1, _enlarged(part))
        case ast.UnaryOp(operand=part):
            return _enlarged(part)
        case ast.BinOp(left=u, op=ast.Add() | ast.Sub(), right=v):
            return max(_enlarged(u), _enlarged(v))
        case ast.BinOp(left=u, op=ast.Mult(), right=v):
            for part, other in ((u, v), (v, u)):
                if (found := _number(part)) is not None:
                    return abs(found) * _enlarged(other)
        case ast.BinOp(left=u, op=ast.Div(), right=v) if found := _number(v):
            return _enlarged(u) / abs(found)
    return math.inf


def _is_mild(factor: float) -> bool:
    return 2.0**-64 <= factor <= 2.0**64


def _factors(tree: ast.AST) -> Iterator[float]:
    """The constants by which an expression multiplies s, each time that it names it; 1 for none."""
    match tree:
        case ast.BinOp(left=ast.Name(id="s"), op=ast.Mult(), right=x) if (found := _number(x)) is not None:
            yield found
        case ast.BinOp(left=x, op=ast.Mult(), right=ast.Name(id="s")) if (found := _number(x)) is not None:
            yield found
        case ast.BinOp(left=ast.Name(id="s"), op=ast.Div(), right=x) if found := _number(x):
            yield 1 / found
        case ast.Name(id="s"):
            yield 1.0
        case _:
            for part in ast.iter_child_nodes(tree):
                yield from _factors(part)


class _Unscaled(ast.NodeTransformer):
    """Puts s in the place of its products with constants."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        sides = (node.left, node.right)
        if not isinstance(node.op, ast.Mult | ast.Div) or not any(
            isinstance(x, ast.Name) and x.id == SCORE for x in sides
        ):
            return self.generic_visit(node)  # type: ignore[return-value]
        return ast.Name(SCORE) if any(_number(x) is not None for x in sides) else node


# ---- The kernels' text


class _Writer:
    """Writes expressions as kernels have them. `arrays`: the number and the kind of each; `tile`: the one that is read
    as tiles."""

    def __init__(self, arrays: Mapping[str, tuple[int, Named]], tile: str) -> None:
        self.arrays, self.tile = arrays, tile
        self.named = {name: one for name, (_, one) in arrays.items()}

    def type(self, tree: ast.expr) -> str:
        """That of a part."""
        return _type(tree, self.named, scored=True)

    def float(self, tree: ast.expr) -> str:
        """As a float; of whole numbers where that is exact, as rows and keys are floats, too (ScoreIndex)."""
        if self.type(tree) == FLOAT:
            return self(tree)
        match tree:
            case ast.Name(id="i" | "j" as name):
                return f"f{name}"
            case ast.UnaryOp(op=ast.USub(), operand=part):
                return f"(-{self.float(part)})"
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as op, right=right):
                return f"({self.float(left)}{NUMBERS[type(op)]}{self.float(right)})"
            case ast.Call(func=ast.Name(id="abs" | "min" | "max" as name), args=args):
                return f"score_{name}({','.join(map(self.float, args))})"
        return f"T({self(tree)})"

    def row(self, read: ast.Subscript) -> str:
        """Of the array that is read as tiles, a row."""
        number, one = self.arrays[self.tile]
        places = ",".join(map(self, _indices(read)[:-1]))
        return f"row_at<{_ELEMENTS[one.kind]}>(w.views[{number}],{places})"

    def __call__(self, tree: ast.expr) -> str:
        """A part, in brackets where it needs them."""
        match tree:
            case ast.Constant(value=bool(value)):
                return str(int(value))
            case ast.Constant(value=int(value)):
                return str(value)
            case ast.Constant(value=float(value)):
                return f"T({value!r})"
            case ast.Name(id="inf"):
                return "T(SCORE_INFINITY)"
            case ast.Name(id=name):
                return name
            case ast.UnaryOp(op=ast.Not(), operand=part):
                return f"!({self(part)})"
            case ast.UnaryOp(op=op, operand=part):
                return f"({'-' if isinstance(op, ast.USub) else '+'}{self(part)})"
            case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=int(n))):
                return f"({'*'.join([self(left)] * n)})"
            case ast.BinOp(left=left, op=op, right=right):
                floats = self.type(tree) == FLOAT
                sides = (self.float(left), self.float(right)) if floats else (self(left), self(right))
                if isinstance(op, ast.FloorDiv | ast.Mod):
                    return f"score_{'floor' if isinstance(op, ast.FloorDiv) else 'rest'}({sides[0]},{sides[1]})"
                if isinstance(op, ast.Div) and (divisor := _number(right)):  # which a GPU does not do as fast
                    return f"({sides[0]}*T({1 / divisor!r}))"
                return f"({sides[0]}{NUMBERS[type(op)]}{sides[1]})"
            case ast.Compare(left=left, ops=ops, comparators=others):
                parts = [left, *others]
                pairs = zip(parts, ops, others, strict=False)
                return "(" + "&&".join(f"{self(a)}{COMPARED[type(op)]}{self(b)}" for a, op, b in pairs) + ")"
            case ast.BoolOp(op=op, values=parts):
                return "(" + ("&&" if isinstance(op, ast.And) else "||").join(map(self, parts)) + ")"
            case ast.IfExp(test=test, body=body, orelse=other):
                write: Callable[[ast.expr], str] = self.float if self.type(tree) == FLOAT else self
                return f"({self(test)}?{write(body)}:{write(other)})"
            case ast.Call(func=ast.Name(id=name), args=args):
                write = self.float if self.type(tree) == FLOAT else self
                return f"score_{name}({','.join(map(write, args))})"
            case ast.Subscript(value=ast.Name(id=name)) if name == self.tile:
                return "(tile!=0)" if self.type(tree) == BOOL else "tile"
            case ast.Subscript(value=ast.Name(id=name)):
                number, one = self.arrays[name]
                places = ",".join(map(self, _indices(tree)))
                element = f"element_at<{_ELEMENTS[one.kind]}>(w.views[{number}],{places})"
                return f"T({element})" if one.type == FLOAT else f"({element}!=0)" if one.type == BOOL else element
        raise AssertionError(ast.dump(tree))


def _indices(read: ast.Subscript) -> list[ast.expr]:
    return read.slice.elts if isinstance(read.slice, ast.Tuple) else [read.slice]


_ELEMENTS = {"float32": "float", "element": "ScoreElement", "int32": "int", "bool": "unsigned char"}


# ---- NumPy's arithmetic


def _value(tree: ast.expr, given: Mapping[str, Any]) -> Any:
    """What an expression is, of arrays that broadcast to the scores' shape. Whole numbers are NumPy's int64, and
    indices stay within an array, as kernels have it."""
    import numpy as np

    def of(part: ast.expr) -> Any:
        return _value(part, given)

    match tree:
        case ast.Constant(value=value):
            return value
        case ast.Name(id="inf"):
            return math.inf
        case ast.Name(id=name):
            return given[name]
        case ast.UnaryOp(op=ast.Not(), operand=part):
            return np.logical_not(of(part))
        case ast.UnaryOp(op=op, operand=part):
            return -of(part) if isinstance(op, ast.USub) else of(part)
        case ast.BinOp(left=left, op=op, right=right):
            a, b = of(left), of(right)
            match op:
                case ast.Add():
                    return a + b
                case ast.Sub():
                    return a - b
                case ast.Mult():
                    return a * b
                case ast.Div():
                    return np.true_divide(a, b)
                case ast.FloorDiv():
                    return a // b
                case ast.Mod():
                    return a % b
            return a**b
        case ast.Compare(left=left, ops=ops, comparators=others):
            compared = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal}
            compared |= {"==": np.equal, "!=": np.not_equal}
            parts = [of(part) for part in (left, *others)]
            found = [compared[COMPARED[type(op)]](a, b) for a, op, b in zip(parts, ops, parts[1:], strict=False)]
            return functools.reduce(np.logical_and, found)
        case ast.BoolOp(op=op, values=parts_):
            return functools.reduce(np.logical_and if isinstance(op, ast.And) else np.logical_or, map(of, parts_))
        case ast.IfExp(test=test, body=body, orelse=other):
            return np.where(of(test), of(body), of(other))
        case ast.Call(func=ast.Name(id=name), args=args):
            return {"min": np.minimum, "max": np.maximum}.get(name, getattr(np, name))(*map(of, args))
        case ast.Subscript(value=ast.Name(id=name)):
            array, indices = given[name], _indices(tree)
            within = (np.clip(of(part), 0, size - 1) for part, size in zip(indices, array.shape, strict=True))
            found = array[tuple(within)]
            return found.astype(np.float32) if found.dtype.itemsize == 2 else found  # as kernels compute with elements
    raise AssertionError(ast.dump(tree))
