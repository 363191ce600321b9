"""Parse SQL text to expressions.

    a > 1 AND b.c IN (1, 2)
    And(Comparison(>, a, 1), In(b.c, [1, 2]))

This is a precedence climbing parser: `expression(level)` parses an operand and all following
operators with at least the precedence `level`. The text must be a single expression. Syntax errors
show the position with a caret. `bind` resolves names and types later; `Source` records positions
for its errors.
"""

from __future__ import annotations

from typing import Final

from lancelet.expr import expression as ex
from lancelet.expr.expression import Expression, Operator
from lancelet.expr.lexer import Kind, Token
from lancelet.expr.literal_text import parse_number
from lancelet.expr.literals import arrays_of_constants
from lancelet.expr.operands import OperandParser, Source

_DEEPEST: Final = 100

_COMPARISONS: Final = {
    "=": Operator.EQUAL,
    "==": Operator.EQUAL,
    "<>": Operator.NOT_EQUAL,
    "!=": Operator.NOT_EQUAL,
    "<": Operator.LESS,
    "<=": Operator.LESS_EQUAL,
    ">": Operator.GREATER,
    ">=": Operator.GREATER_EQUAL,
    "<=>": Operator.NOT_DISTINCT,
}
_MATCHES: Final = {
    "~": (False, False),
    "~*": (False, True),
    "!~": (True, False),
    "!~*": (True, True),
}
_PREDICATE_KEYWORDS: Final = frozenset(
    {"is", "in", "between", "like", "ilike", "rlike", "regexp", "similar"}
)


def parse(text: str) -> Expression:
    """Parse an expression, or raise `ExpressionError`.

    >>> parse("a between 1 and 2")
    And(operands=(Comparison(operator=<Operator.GREATER_EQUAL: '>='>, ...
    """
    return parse_with_source(text)[0]


def parse_with_source(text: str) -> tuple[Expression, Source]:
    """Parse an expression and record the positions of its nodes for errors."""
    parser = _Parser(text)
    return parser.whole(), parser.source


class _Parser(OperandParser):
    """Parses operators by precedence."""

    depth = 0

    def whole(self) -> Expression:
        if self.at_end():
            self.fail("the expression is empty")
        found = self.expression(ex.OR)
        if not self.at_end():
            self.fail(f"unexpected {self.lexer.token.value!r} after the expression")
        return found

    def expression(self, level: int) -> Expression:
        self.depth += 1
        if self.depth > _DEEPEST:
            self.fail(f"the expression is nested more than {_DEEPEST} levels deep")
        start = self.lexer.token.start
        found = self._prefix()
        while (following := self._following(found, level)) is not None:
            found = self.at(start, following)
        self.depth -= 1
        return found

    def _prefix(self) -> Expression:
        token = self.lexer.token
        if token.is_keyword("not"):
            self.lexer.advance()
            return self.at(token.start, ex.Not(self.expression(ex.NOT)))
        if token.is_sign("-", "+"):
            self.lexer.advance()
            number = self.lexer.token
            if number.kind is Kind.NUMBER:
                self.lexer.advance()
                sign = token.value if token.value == "-" else ""
                constant = ex.Literal(parse_number(sign + number.value))
                return self.postfix(token.start, self.at(token.start, constant))
            operand = self.expression(ex.UNARY)
            return operand if token.value == "+" else self.at(token.start, ex.Call("-", (operand,)))
        if token.is_sign("~"):
            self.lexer.advance()
            return self.at(token.start, ex.Call("~", (self.expression(ex.UNARY),)))
        return self.postfix(token.start, self.primary())

    def _following(self, left: Expression, level: int) -> Expression | None:
        """Parse an operator applied to `left`; None if its precedence is lower than `level`."""
        token = self.lexer.token
        if token.kind is Kind.NAME:
            return self._following_word(left, level, token)
        if token.kind is not Kind.SIGN:
            return None
        sign = "#" if token.value == "^" else token.value
        if sign == "||" and level <= ex.CONCAT:
            # A chain becomes one call, because recursion over a long chain would exceed the stack.
            operands = [left]
            while self.lexer.token.is_sign("||"):
                self.lexer.advance()
                operands.append(self.expression(ex.CONCAT + 1))
            return ex.Call(sign, tuple(operands))
        if sign in ex.BINARY_SIGNS and ex.BINARY_SIGNS[sign] >= level:
            self.lexer.advance()
            return ex.Call(sign, (left, self.expression(ex.BINARY_SIGNS[sign] + 1)))
        if level > ex.COMPARE:
            return None
        if sign in _COMPARISONS:
            self.lexer.advance()
            return ex.Comparison(_COMPARISONS[sign], left, self.expression(ex.CONCAT))
        if sign in _MATCHES:
            self.lexer.advance()
            negated, ignore_case = _MATCHES[sign]
            return self._regular(left, negated=negated, ignore_case=ignore_case)
        return None

    def _following_word(self, left: Expression, level: int, token: Token) -> Expression | None:
        word = token.value.lower()
        if word in {"and", "or"}:
            own = ex.AND if word == "and" else ex.OR
            if own < level:
                return None
            operands = [left]
            while self.take_word(word):
                operands.append(self.expression(own + 1))
            return (ex.And if word == "and" else ex.Or)(tuple(operands))
        negated = word == "not" and self.lexer.peek().value.lower() in _PREDICATE_KEYWORDS
        if (word not in _PREDICATE_KEYWORDS and not negated) or level > ex.COMPARE:
            return None
        if negated:
            self.lexer.advance()
        return self._predicate(left, self.lexer.advance(), negated=negated)

    def _predicate(self, left: Expression, token: Token, *, negated: bool) -> Expression:
        match token.value.lower():
            case "is":
                return self._is(left)
            case "in":
                found = self._in(left)
            case "between":
                found = self._between(left)
            case "like":
                found = self._like(left, ignore_case=False)
            case "ilike":
                found = self._like(left, ignore_case=True)
            case "rlike" | "regexp":
                return self._regular(left, negated=negated, ignore_case=False)
            case _:
                self.fail("SIMILAR TO is not supported; use LIKE or regexp_like", token)
        return ex.Not(self.at(token.start, found)) if negated else found

    def _is(self, left: Expression) -> Expression:
        negated = self.take_word("not")
        found: Expression
        if self.take_word("distinct"):
            self.require_word("from")
            operator = Operator.NOT_DISTINCT if negated else Operator.DISTINCT
            return ex.Comparison(operator, left, self.expression(ex.CONCAT))
        if self.take_word("null") or self.take_word("unknown"):
            found = ex.IsNull(left)
        elif self.take_word("true"):
            found = ex.IsTrue(left)
        elif self.take_word("false"):
            found = ex.IsTrue(ex.Not(left))
        else:
            self.fail(f"expected NULL, TRUE, FALSE, UNKNOWN or DISTINCT FROM, found {self.found()}")
        return ex.Not(found) if negated else found

    def _between(self, left: Expression) -> Expression:
        low = self.expression(ex.CONCAT)
        self.require_word("and")
        high = self.expression(ex.CONCAT)
        return ex.And(
            (
                ex.Comparison(Operator.GREATER_EQUAL, left, low),
                ex.Comparison(Operator.LESS_EQUAL, left, high),
            )
        )

    def _like(self, left: Expression, *, ignore_case: bool) -> Expression:
        pattern = self.expression(ex.CONCAT)
        escape = "\\"
        if self.take_word("escape"):
            token = self.lexer.advance()
            if token.kind is not Kind.TEXT or len(token.value) != 1:
                self.fail("ESCAPE requires one quoted character", token)
            escape = token.value
        return ex.Like(left, pattern, escape, ignore_case)

    def _regular(self, left: Expression, *, negated: bool, ignore_case: bool) -> Expression:
        flags = (ex.literal("i"),) if ignore_case else ()
        found = ex.Call("regexp_like", (left, self.expression(ex.CONCAT), *flags))
        return ex.Not(found) if negated else found

    def _in(self, left: Expression) -> Expression:
        opening = self.lexer.token
        if not opening.is_sign("("):
            self.fail(f"expected a list in parentheses, found {self.found()}")
        values = self.lexer.take_constants()
        if values is not None:
            self.require_sign(")")
            return ex.In(left, values)
        self.lexer.advance()
        items = self.items(")")
        if not items:
            self.fail("the list is empty", opening)
        return _membership(left, items)


def _membership(left: Expression, items: tuple[Expression, ...]) -> Expression:
    """Return `left IN items`: constants of one type as `In`, other items as comparisons."""
    constants = [item for item in items if isinstance(item, ex.Literal)]
    others = [item for item in items if not isinstance(item, ex.Literal)]
    found: list[Expression] = []
    if constants:
        scalars = [constant.scalar for constant in constants]
        found = [ex.In(left, values) for values in arrays_of_constants(scalars)]
    found += [ex.Comparison(Operator.EQUAL, left, item) for item in others]
    return found[0] if len(found) == 1 else ex.Or(tuple(found))
