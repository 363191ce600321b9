"""Dataclasses that compile their methods on first use, and cached properties.

    @dataclass(frozen=True, slots=True)
    class Point:            defines fields, slots and match arguments
        x: int

    Point(1)                compiles `__init__`, `__repr__`, `__eq__` and `__hash__`

The standard library compiles the methods when the class is defined. A process that takes the first
row of a table defines several hundred dataclasses and uses a few of them; compiling all methods
dominated its running time.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from copy import copy
from dataclasses import FrozenInstanceError
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final, Generic, Self, TypeVar, dataclass_transform, overload

T = TypeVar("T")

_ORDER: Final = ("__lt__", "__le__", "__gt__", "__ge__")


class cached_property(Generic[T]):  # noqa: N801 - as in the standard library
    """A property that is computed on first access and cached in the object.

    Up to Python 3.11, the standard library holds one lock per class during the computation, even
    for I/O. This class does not lock: concurrent accesses may compute the value repeatedly, but all
    return the same result.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        """Cache the result of a method."""
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type[Any], name: str) -> None:
        """Store the name of the method as the key of the cache."""
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type[Any]) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type[Any]) -> T: ...

    def __get__(self, instance: object | None, owner: type[Any]) -> Self | T:
        """Compute the value and store it as an attribute of the object."""
        if instance is None:
            return self
        found: T = vars(instance).setdefault(self._name, self._compute(instance))
        return found


@overload
def dataclass(cls: type[T], /) -> type[T]: ...


@overload
def dataclass(
    *,
    init: bool = True,
    repr: bool = True,
    eq: bool = True,
    order: bool = False,
    frozen: bool = False,
    slots: bool = False,
) -> Callable[[type[T]], type[T]]: ...


@dataclass_transform(field_specifiers=(dataclasses.field,))
def dataclass(cls: type[Any] | None = None, /, **options: bool) -> Any:
    """Make a class a dataclass, like `dataclasses.dataclass`; frozen classes compile lazily."""
    if not options.get("frozen"):
        return dataclasses.dataclass(cls, **options)
    return lambda own: _frozen(own, **options)


def replace(value: T, /, **changes: Any) -> T:
    """Return a copy of a dataclass with other values of some fields.

    Faster than `dataclasses.replace`, which inspects every field in each call. A commit replaces
    fields of large values a dozen times.
    """
    cls: Any = type(value)
    fields, values = _initialised(cls)
    changed: T = cls(**{**dict(zip(fields, values(value), strict=True)), **changes})
    return changed


@lru_cache(None)
def _initialised(cls: Any) -> tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]:
    """Return the names of the `__init__` fields of a class, and a getter of their values."""
    names = tuple(each.name for each in dataclasses.fields(cls) if each.init)
    if len(names) == 1:
        return names, lambda value: (getattr(value, names[0]),)
    return names, attrgetter(*names)


def _frozen(
    cls: type[Any],
    *,
    init: bool = True,
    repr: bool = True,  # noqa: A002 - as in the standard library
    eq: bool = True,
    order: bool = False,
    frozen: bool = True,  # noqa: ARG001 - always true, see `dataclass`
    slots: bool = False,
) -> type[Any]:
    own = set(vars(cls))
    if "__eq__" in own and vars(cls).get("__hash__", cls) is None:
        own.discard("__hash__")  # added by Python, not by the class
    if cls.__doc__ is None:
        cls.__doc__ = cls.__name__  # otherwise the standard library computes a signature
    made = dataclasses.dataclass(cls, init=False, repr=False, eq=False, slots=slots)
    generated = {"__init__": init, "__repr__": repr, "__eq__": eq, "__hash__": eq}
    generated |= dict.fromkeys(_ORDER, order)
    names = [name for name, is_generated in generated.items() if is_generated and name not in own]
    for name in names:
        setattr(made, name, _compiled_late(made, name))
    if init:
        made.__signature__ = _Signature()
    methods: dict[str, Callable[..., Any]]
    methods = dict(zip(("__setattr__", "__delattr__"), _refusing(made), strict=True))
    if slots and "__getstate__" not in own:
        methods |= {"__getstate__": _values, "__setstate__": _set_values}
    for name, method in methods.items():
        setattr(made, name, method)
    return made


def _compiled_late(cls: type[Any], name: str) -> Callable[..., Any]:
    """Return a method that replaces itself by the compiled method on the first call."""

    def method(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        compiled = _compiled(cls, name)
        setattr(cls, name, compiled)
        return compiled(self, *args, **kwargs)

    return method


def _compiled(cls: type[Any], name: str) -> Callable[..., Any]:
    """Compile a method from the fields; all except `__init__` with the standard library."""
    if name == "__init__":
        method = _compiled_init(cls)
    else:
        twin = dataclasses.make_dataclass(
            cls.__name__,
            [(each.name, each.type, copy(each)) for each in dataclasses.fields(cls)],
            namespace={"__doc__": name},  # otherwise the standard library computes a signature
            init=False,
            repr=name == "__repr__",
            eq=name == "__eq__" or name in _ORDER,
            order=name in _ORDER,
            unsafe_hash=name == "__hash__",
        )
        method = vars(twin)[name]
    method.__qualname__ = f"{cls.__qualname__}.{name}"
    return method


def _compiled_init(cls: type[Any]) -> Callable[..., None]:
    """Compile `__init__`, which sets each field to its argument, default, or factory result."""
    parameters, lines = ["self"], []
    by_name: list[str] = []
    namespace: dict[str, Any] = {"__set": object.__setattr__, "__missing": dataclasses.MISSING}
    for each in dataclasses.fields(cls):
        value, parameter = each.name, each.name
        if each.default_factory is not dataclasses.MISSING:
            namespace[f"__make_{each.name}"] = each.default_factory
            parameter += "=__missing"
            value = f"__make_{each.name}()"
            if each.init:
                value += f" if {each.name} is __missing else {each.name}"
        elif each.default is not dataclasses.MISSING:
            namespace[f"__default_{each.name}"] = each.default
            parameter += f"=__default_{each.name}"
            value = each.name if each.init else f"__default_{each.name}"
        elif not each.init:
            continue
        lines.append(f" __set(self, {each.name!r}, {value})")
        if each.init:
            (by_name if each.kw_only else parameters).append(parameter)
    lines.append(" self.__post_init__()" if hasattr(cls, "__post_init__") else " pass")
    signature = ", ".join([*parameters, "*", *by_name] if by_name else parameters)
    exec("\n".join([f"def __init__({signature}):", *lines]), namespace)  # noqa: S102 - generated
    method: Callable[..., None] = namespace["__init__"]
    return method


class _Signature:
    """The signature of a dataclass, computed when it is inspected."""

    def __get__(self, instance: object, cls: type[Any]) -> inspect.Signature:
        found = inspect.Signature(
            [
                inspect.Parameter(
                    each.name,
                    inspect.Parameter.KEYWORD_ONLY
                    if each.kw_only
                    else inspect.Parameter.POSITIONAL_OR_KEYWORD,
                    default=_default_of(each),
                    annotation=each.type,
                )
                for each in sorted(dataclasses.fields(cls), key=lambda each: bool(each.kw_only))
                if each.init
            ]
        )
        return found.replace(return_annotation=None)


def _default_of(field: dataclasses.Field[Any]) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    has_factory = field.default_factory is not dataclasses.MISSING
    return field.default_factory if has_factory else inspect.Parameter.empty


def _refusing(cls: type[Any]) -> tuple[Callable[..., None], Callable[..., None]]:
    """Return `__setattr__` and `__delattr__` methods that reject changes of fields."""
    names = frozenset(each.name for each in dataclasses.fields(cls))

    def set_attribute(self: Any, name: str, value: Any) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def delete_attribute(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return set_attribute, delete_attribute


def _values(self: Any) -> list[Any]:
    return [getattr(self, each.name) for each in dataclasses.fields(self)]


def _set_values(self: Any, values: list[Any]) -> None:
    for each, value in zip(dataclasses.fields(self), values, strict=True):
        object.__setattr__(self, each.name, value)
