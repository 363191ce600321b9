"""A recursive descent parser for statements, with errors that point to the next token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from lancelet.spark.sql.names import Reference, properties_at, reference_at
from lancelet.spark.sql.source import Source, Token, ends_operand, follows_dot


class StatementParser:
    """Parses a statement token by token; `number` is the index of the next token."""

    def __init__(
        self, source: Source, catalogs: Mapping[str, Any], views: Mapping[str, Reference]
    ) -> None:
        """Start at the first token; names resolve to tables of `catalogs` and of `views`."""
        self.source = source
        self.number = 0
        self.fragments: list[tuple[int, str]] = []
        """The expressions read so far, with their positions."""
        self._catalogs, self._views = catalogs, views

    @property
    def token(self) -> Token | None:
        """The next token, or None at the end."""
        tokens = self.source.tokens
        return tokens[self.number] if self.number < len(tokens) else None

    @property
    def position(self) -> int:
        """The offset of the next token in the text."""
        return self.source.text.__len__() if self.token is None else self.token.start

    def at(self, *keywords: str) -> bool:
        """Return whether these upper-case keywords are the next tokens."""
        ahead = self.source.tokens[self.number : self.number + len(keywords)]
        return len(ahead) == len(keywords) and all(
            keyword in {token.word, token.kind}
            for keyword, token in zip(keywords, ahead, strict=True)
        )

    def take(self, *keywords: str) -> bool:
        """Consume these keywords if they are the next tokens; return whether they were."""
        if not self.at(*keywords):
            return False
        self.number += len(keywords)
        return True

    def take_any(self, *keywords: str) -> str | None:
        """Consume and return the next token if it is one of these keywords."""
        return next((keyword for keyword in keywords if self.take(keyword)), None)

    def need(self, *keywords: str) -> None:
        """Consume these keywords; raise if they are not the next tokens."""
        if not self.take(*keywords):
            self.fail(f"expected {' '.join(keywords)}")

    def fail(self, message: str, **facts: Any) -> NoReturn:
        """Raise an error that points to the next token."""
        self.source.fail(message, self.position, **facts)

    def name(self, description: str) -> str:
        """Parse a name; errors call it `description`."""
        token = self.token
        is_name = token is not None and (
            token.kind == "IDENTIFIER" or token.text.replace("-", "_").isidentifier()
        )
        if token is None or not is_name:
            self.fail(f"expected {description}")
        self.number += 1
        return token.text

    def path(self, description: str) -> str:
        """Parse a dotted name, such as the path of a struct field."""
        parts = [self.name(description)]
        while self.take("DOT"):
            parts.append(self.name(description))
        return ".".join(parts)

    def string(self, description: str) -> str:
        """Parse a quoted string."""
        token = self.token
        if token is None or token.kind != "STRING":
            self.fail(f"expected {description} in quotes")
        self.number += 1
        return token.text

    def whole(self, description: str) -> int:
        """Parse an integer."""
        token = self.token
        if token is None or token.kind != "NUMBER" or not token.text.isdigit():
            self.fail(f"expected {description}, a whole number")
        self.number += 1
        return int(token.text)

    def table(self, *, by_view: bool = False) -> Reference | None:
        """Parse the name of a Lance table; return None if the next token is something else.

        With `by_view`, the name may also be a view of a whole table.
        """
        views = self._views if by_view else None
        found = reference_at(self.source, self.number, self._catalogs, views)
        if found is None:
            return None
        reference, self.number = found
        return reference

    def need_table(self) -> Reference:
        """Parse the name of a Lance table; raise if there is none."""
        found = self.table()
        if found is None:
            self.fail("expected a Lance table, as lance.`/path` or in an attached namespace")
        return found

    def names(self, description: str) -> list[str]:
        """Parse a list of names in parentheses."""
        self.need("L_PAREN")
        found = [self.path(description)]
        while self.take("COMMA"):
            found.append(self.path(description))
        self.need("R_PAREN")
        return found

    def properties(self) -> dict[str, str]:
        """Parse properties in parentheses: ('a.b' = 'c', d = 3)."""
        found, self.number = properties_at(self.source, self.number)
        return found

    def text_until(self, *stops: Sequence[str]) -> str:
        """Return the text up to one of the phrases `stops`, or to the end.

        Phrases within parentheses and within CASE ... END, and fields such as `t.from`, are
        ignored. `end` is a column if an operand is expected, as in `end > 1` and `t.end`.
        """
        first, start, stop = self.number, self.position, self.position
        opened: list[str] = []
        while self.token is not None:
            token = self.token
            before = None if self.number == first else self.source.tokens[self.number - 1]
            if not (opened or follows_dot(before)) and any(self.at(*phrase) for phrase in stops):
                break
            if token.kind == "L_PAREN" or (token.word == "CASE" and not follows_dot(before)):
                opened.append(token.word or token.kind)
            elif token.kind == "R_PAREN":
                if not opened:
                    break
                opened.pop()
            elif token.word == "END" and opened[-1:] == ["CASE"] and ends_operand(before):
                opened.pop()
            stop = token.stop
            self.number += 1
        if stop == start:
            self.fail("expected more")
        self.fragments.append((start, self.source.text[start:stop]))
        return self.source.text[start:stop]

    def end(self) -> None:
        """Raise if the statement has further tokens."""
        if self.token is not None:
            self.fail("the statement should end here")
