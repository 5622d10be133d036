"""The grammar of signatures.

```
signature  = operands "->" results
operands   = "" | operand { "," operand }          nothing at all: no operands
results    = operand { "," operand }
operand    = "" | "()" | "@" name | { axis } [ "..." ] { axis }   the first two: a 0-d tensor
axis       = factor | "1" | "(" factor { factor } ")" | "(" [ sign ] term { sign term } ")"
term       = number | [ number "*" ] factor
factor     = name | "[" name "]"
sign       = "+" | "-"
name       = a Python identifier, or "..." with a number: what `Signature.expand` makes of "..."
```
"""

from __future__ import annotations

from dataclasses import replace
from typing import NoReturn

from combinators.errors import SignatureError, message
from combinators.index_space.axis import Axis, Span, Term
from combinators.index_space.operand import Operand, canonical
from combinators.index_space.tokens import Token, described, refuse, tokenize

Tensors = tuple[Operand, ...]
MAX_CHARACTERS = 4096


def check_text(text: str) -> None:
    """Check that a text may be read as a signature.

    Raises:
      SignatureError: when it is no string, or too long.
    """
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise SignatureError(
            message(
                "a signature is a string.",
                f"got {type(text).__name__}",
                remedy='Write it as in "i k, k n -> i n".',
            )
        )
    _check_length(text, "signature")


def read(text: str) -> tuple[Tensors, Tensors]:
    """Read the operands and the results of a signature.

    Args:
      text: `operands -> results`, as `check_text` lets it pass.

    Returns:
      Both, with every dimension that is whole in one place whole everywhere.

    Raises:
      SignatureError: when the text is no signature; a caret points at the offending character.
    """
    operands, results = _Parser(text).signature()
    whole = {term.name for tensor in (*operands, *results) for axis in tensor.axes for term in axis.terms if term.whole}
    operands, results = _make_whole(operands, whole), _make_whole(results, whole)
    _check(text, operands, results)
    _check_length(canonical(operands, results), "canonical text of the signature")
    return operands, results


class _Parser:
    """Recursive descent without recursion: the grammar nests only once."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = tokenize(text)
        self.at = 0

    def peek(self) -> Token:
        return self.tokens[self.at]

    def take(self) -> Token:
        token = self.peek()
        self.at += token.kind != "end"
        return token

    def expect(self, kind: str, expected: str, remedy: str) -> Token:
        if self.peek().kind != kind:
            self.fail(expected, remedy)
        return self.take()

    def fail(self, expected: str, remedy: str) -> NoReturn:
        refuse(self.text, self.peek().span, f"expected {expected}, got {described(self.peek())}", remedy)

    def signature(self) -> tuple[Tensors, Tensors]:
        operands = () if self.peek().kind == "->" else self.tensors()
        self.expect("->", "an axis, `,` or `->`", "Write the signature as `operands -> results`.")
        results = self.tensors()
        if self.peek().kind != "end":
            self.fail("an axis, `,` or the end", "Write the signature as `operands -> results`, with one arrow.")
        return operands, results

    def tensors(self) -> Tensors:
        tensors = [self.tensor()]
        while self.peek().kind == ",":
            self.take()
            tensors.append(self.tensor())
        return tuple(tensors)

    def tensor(self) -> Operand:
        start = self.peek().span[0]
        if self.peek().kind == "@":
            return self.coordinate()
        if self.peek().kind == "(" and self.tokens[self.at + 1].kind == ")":
            self.take()
            end = self.take().span[1]
            if self.peek().kind not in (",", "->", "end"):
                self.fail("the end of the operand", "Write `()` alone for a 0-d tensor, or `1` for a broadcast axis.")
            return Operand(span=(start, end))
        end, lead, span = start, None, None
        axes: list[Axis] = []
        while self.peek().kind in ("name", "number", "[", "(", "..."):
            if self.peek().kind != "...":
                axes.append(self.axis())
            elif lead is None:
                lead, span = len(axes), self.take().span
            else:
                self.fail("an axis, `,` or `->`", "Write `...` only once in an operand.")
            end = self.tokens[self.at - 1].span[1]
        if self.peek().kind == "@":
            self.fail("an axis, `,` or `->`", "Separate the coordinate from the operand before it by `,`.")
        if self.peek().kind in ("+", "-", "*"):
            self.fail("an axis, `,` or `->`", "Put an affine expression in parentheses, as in `(2*y+dy)`.")
        return Operand(tuple(axes), lead is not None, span=(start, end), lead=lead or 0, ellipsis_span=span)

    def coordinate(self) -> Operand:
        start = self.take().span[0]
        name = self.expect("name", "the name of a dimension after `@`", "Write a coordinate as `@q`.")
        if self.peek().kind not in (",", "->", "end"):
            self.fail("`,` or `->` after a coordinate", "Separate the coordinate from the next operand by `,`.")
        return Operand(coordinate=name.text, span=(start, name.span[1]))

    def axis(self) -> Axis:
        token = self.peek()
        start = token.span[0]
        if token.kind == "number":
            return self.one()
        if token.kind == "(":
            self.take()
            axis = self.affine() if self.is_affine() else self.composite()
            end = self.expect(")", "`)`", "Close the parenthesis.").span[1]
            return replace(axis, span=(start, end))
        term = self.factor("an axis")
        return Axis("affine", (term,), span=(start, self.tokens[self.at - 1].span[1]))

    def one(self) -> Axis:
        token = self.peek()
        if token.text != "1":
            self.fail("an axis", "Name the axis and give its size by `sizes=`; only `1` may be written as a number.")
        self.take()
        if self.peek().kind == "name" and self.peek().span[0] == token.span[1]:
            self.fail("a space after `1`", "Start a name with a letter, and write a multiple as in `(2*y)`.")
        return Axis("one", span=token.span)

    def is_affine(self) -> bool:
        for token in self.tokens[self.at :]:
            if token.kind in ("+", "-", "*", "number"):
                return True
            if token.kind not in ("name", "[", "]"):
                return False
        return False

    def composite(self) -> Axis:
        terms: list[Term] = []
        while self.peek().kind != ")" or not terms:
            token = self.peek()
            term = self.factor("the name of a dimension")
            if any(term.name == other.name for other in terms):
                refuse(self.text, token.span, f"`{term.name}` is twice in one axis", "Give its parts different names.")
            terms.append(term)
        # One dimension in parentheses is the dimension itself.
        return Axis("composite" if len(terms) > 1 else "affine", tuple(terms))

    def affine(self) -> Axis:
        start = self.peek().span[0]
        terms: list[Term] = []
        offset = 0
        sign = self.sign() or 1
        while True:
            token = self.peek()
            number, term = self.term()
            if term is None:
                offset += sign * number
            elif any(term.name == other.name for other in terms):
                refuse(self.text, token.span, f"`{term.name}` is twice in one axis", "Add its coefficients up.")
            elif number == 0:
                refuse(self.text, token.span, f"the coefficient of `{term.name}` is 0", "Leave the term out.")
            else:
                terms.append(replace(term, coefficient=sign * number))
            if self.peek().kind not in ("+", "-"):
                break
            sign = self.sign()
        if self.peek().kind == "*":
            self.fail("`+`, `-` or `)`", "Write one number before the name, as in `2*y`.")
        if self.peek().kind != ")":
            self.fail("`+`, `-` or `)`", "Write a sum as `(2*y+dy)` or a composition as `(h d)`, not both.")
        if not terms:
            span = (start, self.peek().span[0])
            refuse(self.text, span, "expected a dimension in the expression", "Write `1` for a broadcast axis.")
        return Axis("affine", tuple(terms), offset)

    def sign(self) -> int:
        """Take a sign: 1, -1, or 0 where there is none."""
        if self.peek().kind not in ("+", "-"):
            return 0
        return 1 if self.take().kind == "+" else -1

    def term(self) -> tuple[int, Term | None]:
        if self.peek().kind != "number":
            return 1, self.factor("a number or the name of a dimension")
        number = int(self.take().text)
        if self.peek().kind in ("name", "["):
            self.fail("`*` after the number", "Write a multiple with `*`, as in `2*y`.")
        if self.peek().kind != "*":
            return number, None
        self.take()
        return number, self.factor("the name of a dimension after `*`")

    def factor(self, expected: str) -> Term:
        if self.peek().kind != "[":
            remedy = "Write an axis as `y`, `[c]`, `(2*y+dy)`, `(h d)` or `1`."
            return Term(self.expect("name", expected, remedy).text)
        self.take()
        name = self.expect("name", "a name after `[`", "Write a whole dimension as `[c]`.")
        self.expect("]", "`]`", "Put one name in brackets, as in `[c] [d]`.")
        return Term(name.text, whole=True)


def _make_whole(tensors: Tensors, whole: set[str]) -> Tensors:
    def axis(axis: Axis) -> Axis:
        return replace(axis, terms=tuple(replace(term, whole=term.name in whole) for term in axis.terms))

    return tuple(replace(tensor, axes=tuple(map(axis, tensor.axes))) for tensor in tensors)


def _check(text: str, operands: Tensors, results: Tensors) -> None:
    for result in results:
        _check_result(text, result)
        if result.ellipsis and not any(operand.ellipsis for operand in operands):
            refuse(text, _span(result), "`...` is on the right alone", "Write `...` in an operand, too.")
    axes = {name for tensor in (*operands, *results) for name in tensor.names}
    for operand in operands:
        if operand.coordinate is not None and operand.coordinate not in axes:
            problem = f"no operand and no result has the dimension `{operand.coordinate}`"
            refuse(text, _span(operand), problem, "Name a dimension that an axis has after `@`.")
    if any(tensor.ellipsis for tensor in (*operands, *results)):
        for tensor in (*operands, *results):
            for axis in tensor.axes:
                if any(name.startswith("...") for name in axis.names):
                    refuse(text, _span(axis), "`...` and one of its expanded names", "Use one of the two forms alone.")


def _check_result(text: str, result: Operand) -> None:
    if result.coordinate is not None:
        refuse(text, _span(result), "a coordinate is an operand", "Move it to the left of `->`.")
    seen: set[str] = set()
    for axis in result.axes:
        if axis.is_window:
            problem = "expected `y`, `[c]`, `(h d)` or `1` in a result, got an expression"
            refuse(text, _span(axis), problem, "Index the result by one name, and write the expression on the left.")
        for name in axis.names:
            if name in seen:
                refuse(text, _span(axis), f"`{name}` is twice in one result", "Use a dimension once in a result.")
            seen.add(name)


def _span(node: Axis | Operand) -> Span:
    return node.span or (0, 0)


def _check_length(text: str, what: str) -> None:
    if len(text) > MAX_CHARACTERS:
        raise SignatureError(
            message(
                f"the {what} is too long.",
                f"expected at most {MAX_CHARACTERS} characters, got {len(text)}",
                remedy="Shorten the names.",
            )
        )
