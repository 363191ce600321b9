"""Context that a program adds to every request, such as a refreshed token.

    class Tokens(DynamicContextProvider):
        def provide_context(self, info):
            return {"headers.Authorization": f"Bearer {renew()}"}

Pass a provider as `context_provider`, or set it in the properties: `dynamic_context_provider.impl`
is the class, and other properties with this prefix are passed to its constructor.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, Final

from lancelet.errors import InvalidInputError

_PREFIX: Final = "dynamic_context_provider."
_CLASS: Final = f"{_PREFIX}impl"
_HEADERS: Final = "headers."

REQUEST_HEADERS: Final[ContextVar[Mapping[str, str]]] = ContextVar("headers", default={})  # noqa: B039 - never changed
"""The headers of the provider for the operation that runs."""


class DynamicContextProvider(ABC):
    """Provides context for each request."""

    @abstractmethod
    def provide_context(self, info: dict[str, str]) -> dict[str, str]:
        """Return context values by name; `headers.X` sets the header `X`.

        Args:
            info: The `operation` and the `object_id` of the request.
        """


def without_provider(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties without those of the provider."""
    return {name: value for name, value in properties.items() if not name.startswith(_PREFIX)}


def provider_of(properties: Mapping[str, str]) -> DynamicContextProvider | None:
    """Create the provider configured by properties, or return None."""
    named = properties.get(_CLASS)
    if named is None:
        return None
    module, _, name = named.rpartition(".")
    if not module:
        raise InvalidInputError(
            "a context provider must be a class name such as `my.module.Provider`", found=named
        )
    try:
        kind = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise InvalidInputError("the context provider cannot be imported", found=named) from error
    given = {
        each.removeprefix(_PREFIX): value
        for each, value in properties.items()
        if each.startswith(_PREFIX) and each != _CLASS
    }
    provider: DynamicContextProvider = kind(**given)
    return provider


def headers_of(provider: Any, operation: str, object_id: str) -> dict[str, str]:
    """Return the headers that a provider sets for a request."""
    if provider is None:
        return {}
    context = provider.provide_context({"operation": operation, "object_id": object_id})
    return {
        name.removeprefix(_HEADERS): value
        for name, value in context.items()
        if name.startswith(_HEADERS)
    }
