"""A C++ text as its declarations: which names each declares, and which it mentions.

The scanner knows comments, strings, brackets and the preprocessor's conditions. It is for the kernels' own texts and
for those of users that are like them; what it cannot cut into declarations is refused (UncutError).
"""

import ast
import operator
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

Known = Mapping[str, int]  # macros that are defined, with their values
SOME = -(2**40)  # the value of a macro that is defined as something else than a number

_SKIPPED = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.S)
_WORD = re.compile(r"[A-Za-z_]\w*")
_DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(?P<word>\w+)[ \t]*(?P<rest>[^\n]*)$")
_LINE = re.compile(r'^#line \d+ "(?P<file>[^"]+)"$')
_DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(?P<name>\w+)(?P<parameters>\([^)]*\))?(?P<body>.*)$", re.S)
_TEMPLATE = re.compile(r"\s*template\s*<")


class UncutError(ValueError):
    """A text that is not understood, with the reason."""


@dataclass(frozen=True)
class Declaration:
    """One declaration of a text, or one #define: its kind, the comment in front of it, and what names it declares."""

    kind: str
    text: str
    comment: str
    names: tuple[str, ...]
    file: str
    conditions: tuple[str, ...] = ()  # the #if lines, and #else, around it that are decided by the compiler
    mentions: frozenset[str] = field(default=frozenset(), repr=False)


def blanked(text: str) -> str:
    """The text with comments, strings and characters as blanks."""
    return _SKIPPED.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


def words_in(text: str) -> frozenset[str]:
    """The names that a text mentions, outside of comments and strings; not those of members, behind a point."""
    return frozenset(re.findall(r"(?<![\w.])(?<!->)[A-Za-z_]\w*", blanked(text)))


_OPERATIONS = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}  # fmt: skip


def value_of(expression: str, known: Known, absent: frozenset[str] = frozenset()) -> bool | None:
    """Whether the condition of an #if holds; None where that is the compiler's to say: of its own macros, which begin
    with two underscores, and of those of which it is only known that they are defined. All others are not defined, nor
    are the `absent`."""

    def defined(match: re.Match[str]) -> str:
        compilers = match[1].startswith("__") and match[1] not in {*known, *absent}
        return match[1] if compilers else str(int(match[1] in known))

    expression = re.sub(r"\bdefined\s*\(?\s*(\w+)\s*\)?", defined, blanked(expression))
    expression = re.sub(r"!(?!=)", " not ", expression.replace("&&", " and ").replace("||", " or "))
    try:
        return _evaluated(ast.parse(expression.strip(), mode="eval").body, known)
    except (SyntaxError, TypeError):
        return None


def _evaluated(node: ast.expr, known: Known) -> bool | None:
    if isinstance(node, ast.BoolOp):
        values = [_evaluated(value, known) for value in node.values]
        decisive = isinstance(node.op, ast.Or)
        if decisive in values:
            return decisive
        return None if None in values else not decisive
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        value = _evaluated(node.operand, known)
        return None if value is None else not value
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        return bool(_OPERATIONS[type(node.ops[0])](_number(node.left, known), _number(node.comparators[0], known)))
    return bool(_number(node, known))


def _number(node: ast.expr, known: Known) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.Name):
        value = known.get(node.id, SOME if node.id.startswith("__") else 0)
        if value != SOME:
            return value
    raise TypeError


def decided(text: str, known: Known, absent: frozenset[str] = frozenset()) -> str:
    """A text without the branches of #if whose conditions are known not to hold, and without these lines.

    A macro that is defined as a number is known from there on. Raises UncutError.
    """
    values = dict(known)
    lines: list[str] = []
    # Of each open #if: whether what stands here is kept; whether a branch has been taken; whether the lines are kept.
    stack: list[list[bool]] = []
    for line in text.split("\n"):
        found = _DIRECTIVE.match(line)
        word, rest = (found["word"], found["rest"]) if found else ("", "")
        if word in ("if", "ifdef", "ifndef"):
            condition = {"ifdef": f"defined({rest})", "ifndef": f"!defined({rest})"}.get(word, rest)
            alive = all(level[0] for level in stack)
            value = value_of(condition, values, absent) if alive else False
            stack.append([value is not False, value is True, value is None and alive])
            if value is None and alive:
                lines.append(line)
        elif word == "else" and stack:
            if stack[-1][2]:
                lines.append(line)
            else:
                stack[-1][0] = not stack[-1][1]
        elif word == "elif":
            raise UncutError("it has an #elif")
        elif word == "endif" and stack:
            if stack.pop()[2]:
                lines.append(line)
        elif all(level[0] for level in stack):
            if define := _DEFINE.match(line):
                number = re.fullmatch(r"\s*(\d+)\s*", _SKIPPED.sub("", define["body"]))
                certain = number and not define["parameters"] and not any(level[2] for level in stack)
                values[define["name"]] = int(number[1]) if number and certain else SOME
            lines.append(line)
    if stack:
        raise UncutError("an #if has no #endif")
    return "\n".join(lines)


def declarations_of(text: str) -> list[Declaration]:
    """A text's declarations in their order; `#line 1 "FILE"` says from which file each comes.

    Raises UncutError.
    """
    found: list[Declaration] = []
    conditions: list[str] = []
    comment: list[str] = []
    pending: list[str] = []
    file = ""
    for line in text.split("\n"):
        if mark := _LINE.match(line):
            file = mark["file"]
            if not pending:
                comment = []
            continue
        directive = _DIRECTIVE.match(line)
        if not pending and directive:
            word = directive["word"]
            if word in ("if", "ifdef", "ifndef"):
                conditions.append(line.strip())
            elif word == "else" and conditions:
                conditions[-1] += "\n#else"
            elif word == "endif" and conditions:
                conditions.pop()
            elif word == "define":
                define = _DEFINE.match(line)
                if not define or line.endswith("\\"):
                    raise UncutError(f"{file}: a #define of several lines")
                text_of = line.strip()
                found.append(_made("define", text_of, comment, (define["name"],), file, conditions))
            elif word == "include":
                found.append(_made("other", line.strip(), comment, (), file, conditions))
            elif word != "pragma" or line.strip() != "#pragma once":
                raise UncutError(f"{file}: #{word} between declarations")
            comment = []
            continue
        if not pending and not line.strip():
            comment = []
            continue
        if not pending and line.lstrip().startswith("//"):
            comment.append(line)
            continue
        pending.append(line)
        whole = "\n".join(pending)
        pieces, left = _cut(whole)
        for piece in pieces:
            found.append(_declaration(piece, comment, file, conditions))
            comment = []
        pending = left.split("\n") if left.strip() else []
    if pending:
        raise UncutError(f"{file}: a declaration does not end: {' '.join(pending[0].split())[:60]}")
    return found


def _cut(text: str) -> tuple[list[str], str]:
    """The declarations that are whole in a text of whole lines, each with a comment behind it; and what is left."""
    plain = "\n".join(" " * len(line) if _DIRECTIVE.match(line) else line for line in blanked(text).split("\n"))
    pieces, begin, depth = [], 0, 0
    at = 0
    while at < len(plain):
        letter = plain[at]
        depth += (letter in "([{") - (letter in ")]}")
        ends = letter == ";" and not depth
        if letter == "}" and not depth and not re.match(r"\s*[;,)]", plain[at + 1 :]):
            head = plain[begin:at]
            ends = not re.match(r"\s*(?:template\s*<[^{]*>\s*)?(?:struct|class|union|enum)\b", head) and not re.search(
                r"=\s*[^(){};]*\{[^{}]*$", head
            )
        at += 1
        if ends:
            line_end = text.find("\n", at)
            rest = text[at : line_end if line_end >= 0 else len(text)]
            if rest.strip().startswith("//"):  # the comment behind it is its own
                at += len(rest)
            pieces.append(text[begin:at].strip("\n"))
            begin = at
    return pieces, text[begin:].lstrip("\n") if text[begin:].strip() else ""


def _made(
    kind: str, text: str, comment: Sequence[str], names: Iterable[str], file: str, conditions: Sequence[str]
) -> Declaration:
    inside = words_in(text + "\n" + "\n".join(conditions))
    return Declaration(kind, text, "\n".join(comment), tuple(names), file, tuple(conditions), inside)


def _declaration(text: str, comment: Sequence[str], file: str, conditions: Sequence[str]) -> Declaration:
    plain = blanked(text)
    body = _without_template(plain)
    kind, names = "other", list[str]()
    if re.match(r"\s*static_assert\b", body):
        kind = "assert"
    elif found := re.match(r"\s*(?:struct|class|union)\s+(?:alignas\s*\([^{]*?\)\s*)?(\w+)", body):
        kind, names = "type", [found[1]]
    elif found := re.match(r"\s*enum\s*(?:class\s+)?(\w*)[^{]*\{([^}]*)\}", body):
        values = [part for part in found[2].split(",") if part.strip()]
        names = [found[1], *(_WORD.findall(part)[0] for part in values)]
        kind = "type"
    elif (found := re.match(r"\s*using\s+(\w+)\s*=", body)) or (
        found := re.match(r"\s*typedef\b.*?(\w+)\s*(?:\[[^;]*)?;", body, re.S)
    ):
        kind, names = "type", [found[1]]
    elif re.match(r"\s*using\b", body):
        kind, names = "other", _WORD.findall(body)[-1:]
    elif name := _function_name(body):
        kind, names = ("kernel" if re.search(r"\b__global__\b", plain) else "function"), [name]
    else:
        kind, names = "variable", list(_variables(body))
    if kind == "variable" and not names:
        raise UncutError(f"{file}: not understood: {' '.join(text.split())[:60]}")
    return _made(kind, text, comment, filter(None, names), file, conditions)


def _without_template(plain: str) -> str:
    """What follows the `template <...>` in front of a declaration."""
    while found := _TEMPLATE.match(plain):
        depth, at = 1, found.end()
        while depth and at < len(plain):
            depth += (plain[at] == "<") - (plain[at] == ">")
            at += 1
        plain = plain[at:]
    return plain


def _function_name(body: str) -> str:
    """The name in front of a function's parameters, the last ones in parentheses before its body; "" if it is none."""
    depth, name = 0, ""
    for at, letter in enumerate(body):
        if letter == "(" and not depth and (before := re.search(r"(\w+)\s*$", body[:at])):
            name = before[1]
        if letter in ";{" and not depth:
            return name
        if letter == "=" and not depth:
            return ""
        depth += (letter in "([{") - (letter in ")]}")
    return ""


def _variables(body: str) -> Iterator[str]:
    """The names of a declaration of variables."""
    depth, begin, pieces = 0, 0, []
    for at, letter in enumerate(body):
        depth += (letter in "([{") - (letter in ")]}")
        if letter in ",;" and not depth:
            pieces.append(body[begin:at])
            begin = at + 1
    for piece in pieces:
        before = re.split(r"=|\[|\{", piece)[0]
        if words := _WORD.findall(before):
            yield words[-1]
