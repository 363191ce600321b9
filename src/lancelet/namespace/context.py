"""What a program adds to every request, such as a token that is renewed.

    class Tokens(DynamicContextProvider):
        def provide_context(self, info):
            return {"headers.Authorization": f"Bearer {renew()}"}

A provider is passed as `context_provider`, or named in the properties:
`dynamic_context_provider.impl` is its class, and what else begins so is passed to it.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Final

from lancelet.errors import InvalidInputError

_PREFIX: Final = "dynamic_context_provider."
_CLASS: Final = f"{_PREFIX}impl"
_HEADERS: Final = "headers."


class DynamicContextProvider(ABC):
    """Says before each request what goes along with it."""

    @abstractmethod
    def provide_context(self, info: dict[str, str]) -> dict[str, str]:
        """Return context by name; what is called `headers.X` becomes the header `X`.

        Args:
            info: The `operation`, and the `object_id` that it is about.
        """


def without_provider(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that are not about a provider."""
    return {name: value for name, value in properties.items() if not name.startswith(_PREFIX)}


def provider_of(properties: Mapping[str, str]) -> DynamicContextProvider | None:
    """Return the provider that properties name, or None."""
    named = properties.get(_CLASS)
    if named is None:
        return None
    module, _, name = named.rpartition(".")
    if not module:
        raise InvalidInputError(
            "a context provider is a class in a module, such as `my.module.Provider`", found=named
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
    """Return the headers that a provider adds to a request."""
    if provider is None:
        return {}
    context = provider.provide_context({"operation": operation, "object_id": object_id})
    return {
        name.removeprefix(_HEADERS): value
        for name, value in context.items()
        if name.startswith(_HEADERS)
    }
