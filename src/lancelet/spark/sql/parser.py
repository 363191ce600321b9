"""Reading a statement word by word, with errors that point at the word."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from lancelet.spark.sql.names import Reference, properties_at, reference_at
from lancelet.spark.sql.source import Source, Token


class Words:
    """The words of a statement, of which some were read."""

    def __init__(
        self, source: Source, catalogs: Mapping[str, Any], views: Mapping[str, Reference]
    ) -> None:
        """Begin at the first word; tables of `catalogs` are known, and those `views` stand for."""
        self.source = source
        self.number = 0
        self._catalogs, self._views = catalogs, views

    @property
    def token(self) -> Token | None:
        """The next word, or None at the end."""
        tokens = self.source.tokens
        return tokens[self.number] if self.number < len(tokens) else None

    @property
    def position(self) -> int:
        """Where the next word stands in the text."""
        return self.source.text.__len__() if self.token is None else self.token.start

    def at(self, *words: str) -> bool:
        """Say whether these words, in upper case, come next."""
        ahead = self.source.tokens[self.number : self.number + len(words)]
        return len(ahead) == len(words) and all(
            word in {token.word, token.kind} for word, token in zip(words, ahead, strict=True)
        )

    def take(self, *words: str) -> bool:
        """Read these words if they come next, and say whether they did."""
        if not self.at(*words):
            return False
        self.number += len(words)
        return True

    def take_any(self, *words: str) -> str | None:
        """Read one of some words if it comes next, and return it."""
        return next((word for word in words if self.take(word)), None)

    def need(self, *words: str) -> None:
        """Read these words, which must come next."""
        if not self.take(*words):
            self.fail(f"expected {' '.join(words)}")

    def fail(self, message: str, **facts: Any) -> NoReturn:
        """Raise an error that points at the next word."""
        self.source.fail(message, self.position, **facts)

    def name(self, what: str) -> str:
        """Read a name."""
        token = self.token
        is_name = token is not None and (
            token.kind == "IDENTIFIER" or token.text.replace("-", "_").isidentifier()
        )
        if token is None or not is_name:
            self.fail(f"expected {what}")
        self.number += 1
        return token.text

    def path(self, what: str) -> str:
        """Read a name with dots, such as that of a field of a struct."""
        parts = [self.name(what)]
        while self.take("DOT"):
            parts.append(self.name(what))
        return ".".join(parts)

    def string(self, what: str) -> str:
        """Read a text in quotes."""
        token = self.token
        if token is None or token.kind != "STRING":
            self.fail(f"expected {what} in quotes")
        self.number += 1
        return token.text

    def whole(self, what: str) -> int:
        """Read a number."""
        token = self.token
        if token is None or token.kind != "NUMBER" or not token.text.isdigit():
            self.fail(f"expected {what}, a whole number")
        self.number += 1
        return int(token.text)

    def table(self, *, by_view: bool = False) -> Reference | None:
        """Read the name of a Lance table, or return None if something else comes next.

        A view stands for its table where that is what a statement of Spark would mean.
        """
        views = self._views if by_view else None
        found = reference_at(self.source, self.number, self._catalogs, views)
        if found is None:
            return None
        reference, self.number = found
        return reference

    def need_table(self) -> Reference:
        """Read the name of a Lance table."""
        found = self.table()
        if found is None:
            self.fail("expected a Lance table, as lance.`/path` or in an attached namespace")
        return found

    def names(self, what: str) -> list[str]:
        """Read names in parentheses."""
        self.need("L_PAREN")
        found = [self.path(what)]
        while self.take("COMMA"):
            found.append(self.path(what))
        self.need("R_PAREN")
        return found

    def properties(self) -> dict[str, str]:
        """Read properties in parentheses: ('a.b' = 'c', d = 3)."""
        found, self.number = properties_at(self.source, self.number)
        return found

    def text_until(self, *stops: Sequence[str]) -> str:
        """Read up to any of some phrases outside parentheses, or to the end, as it is written.

        Words between CASE and END are not looked at either.
        """
        start, stop = self.position, self.position
        depth = 0
        while self.token is not None:
            token = self.token
            if not depth and any(self.at(*phrase) for phrase in stops):
                break
            if token.kind == "L_PAREN" or token.word == "CASE":
                depth += 1
            elif token.kind == "R_PAREN" or (token.word == "END" and depth):
                depth -= 1
                if depth < 0:
                    break
            stop = token.stop
            self.number += 1
        if stop == start:
            self.fail("expected more")
        return self.source.text[start:stop]

    def end(self) -> None:
        """Refuse words behind the end of the statement."""
        if self.token is not None:
            self.fail("the statement should end here")
