"""HLO text as data: computations and their instructions, in the order in which they are scheduled."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from functools import cached_property

from combinators.frozen import dataclass

_COMMENT = re.compile(r"/\*.*?\*/")
_NAME = re.compile(r"%([\w.\-]+)")
_HEAD = re.compile(r"^(ENTRY )?%?([\w.\-]+) ?(\(.*)?\{$")
_DEFINED = re.compile(r"^\s+(ROOT )?%?([\w.\-]+) = ")
_END = re.compile(r"^\}($|, execution_thread=)")
_ROLES = re.compile(r"\b(body|condition|to_apply|calls|true_computation|false_computation)=%?([\w.\-]+)")
_BRANCHES = re.compile(r"\bbranch_computations=\{([^}]*)\}")
# Of some instruction that runs a computation one stands there: most run none, and are not searched.
_RUN = ("body=", "condition=", "to_apply=", "calls=", "_computation")
_OPERATION = re.compile(r'op_name="([^"]*)"')


@dataclass(frozen=True)
class Instruction:
    """One instruction.

    Attributes:
      name: without `%`.
      shape: of the result, as printed; a tuple in parentheses.
      opcode: such as `fusion` or `all-reduce-start`.
      argument: what stands between its parentheses, such as operands, or the number of a constant.
      rest: the attributes behind them.
      root: whether it is the result of its computation.
    """

    name: str
    shape: str
    opcode: str
    argument: str
    rest: str
    root: bool = False

    @cached_property
    def operands(self) -> tuple[str, ...]:
        """The names of the operands."""
        return tuple(_NAME.findall(self.argument))

    @cached_property
    def called(self) -> tuple[tuple[str, str], ...]:
        """Role and name of the computations that it runs: `body`, `condition`, `calls`, `to_apply`, `branch`."""
        if not any(word in self.rest for word in _RUN):
            return ()
        branches = [name for listed in _BRANCHES.findall(self.rest) for name in re.findall(r"%?([\w.\-]+)", listed)]
        return (*_ROLES.findall(self.rest), *(("branch", name) for name in branches))

    @property
    def origin(self) -> str:
        """Where it comes from, in JAX's words; empty where XLA made it."""
        found = _OPERATION.search(self.rest)
        return found.group(1) if found else ""

    def attribute(self, name: str) -> str:
        """The text of an attribute such as `index` or `direction`; empty where there is none."""
        found = re.search(rf"\b{name}=([^,\s]+)", self.rest)
        return found.group(1) if found else ""


@dataclass(frozen=True)
class Module:
    """A program: its computations, by name.

    Attributes:
      computations: instructions in the order of the text, which is the schedule where the program `is_scheduled`.
      entry: the name of the computation that is run.
    """

    computations: Mapping[str, tuple[Instruction, ...]]
    entry: str
    _named: dict[str, dict[str, Instruction]] = field(default_factory=dict[str, dict[str, Instruction]], repr=False)

    def find(self, computation: str, name: str) -> Instruction | None:
        """An instruction by name; None where the text does not hold it."""
        if computation not in self._named:
            self._named[computation] = {each.name: each for each in self.computations.get(computation, ())}
        return self._named[computation].get(name)

    def root(self, computation: str) -> Instruction | None:
        """The instruction whose result is that of the computation."""
        return next((each for each in self.computations.get(computation, ()) if each.root), None)

    @cached_property
    def callers(self) -> Mapping[str, tuple[tuple[str, Instruction, str], ...]]:
        """For each computation: where it is run, by what, and in which role."""
        found: dict[str, list[tuple[str, Instruction, str]]] = {}
        for name, instructions in self.computations.items():
            for instruction in instructions:
                for role, callee in instruction.called:
                    found.setdefault(callee, []).append((name, instruction, role))
        return {name: tuple(listed) for name, listed in found.items()}


def read(text: str) -> Module:
    """Read the text of a compiled program.

    Args:
      text: `compiled.as_text()`.
    """
    computations: dict[str, list[Instruction]] = {}
    current, entry = "", ""
    for line in _whole_lines(text):
        if not line.startswith(" "):
            head = _HEAD.match(line)
            current = head.group(2) if head else ""
            if head:
                computations[current] = []
                entry = current if head.group(1) else entry
        elif current:
            computations[current].extend(_instruction(line))
    return Module({name: tuple(listed) for name, listed in computations.items()}, entry)


def _whole_lines(text: str) -> Iterator[str]:
    """Lines, with an instruction on one: what a kernel of Pallas tells of itself is printed on lines of its own."""
    instruction: list[str] = []
    for line in text.splitlines():
        begins = _DEFINED.match(line)
        if instruction and not (begins or _END.match(line)):
            instruction.append(line)
            continue
        if instruction:
            yield "".join(instruction)
        instruction = [line] if begins else []
        if not begins:
            yield line
    if instruction:
        yield "".join(instruction)


def _instruction(line: str) -> Iterator[Instruction]:
    # Long tuples are printed with comments such as /*index=5*/.
    line = _COMMENT.sub("", line) if "/*" in line else line
    head = _DEFINED.match(line)
    if head is None:
        return
    start = head.end()
    end = _closing(line, start) if line.startswith("(", start) else line.find(" ", start)
    opening = line.find("(", end)
    if end < 0 or opening < 0:
        return
    closing = _closing(line, opening)
    yield Instruction(
        name=head.group(2),
        shape=line[start:end].strip(),
        opcode=line[end:opening].strip(),
        argument=line[opening + 1 : closing - 1],
        rest=line[closing:],
        root=head.group(1) is not None,
    )


def _closing(line: str, start: int) -> int:
    """The place behind the parenthesis that closes the one at `start`; the end of the line where none does."""
    first = line.find(")", start)
    if first > 0 and line.find("(", start + 1, first) < 0:
        return first + 1
    depth = 0
    for found in re.compile(r"[()]").finditer(line, start):
        depth += 1 if found.group() == "(" else -1
        if depth == 0:
            return found.end()
    return len(line)
