"""Base paths: registering places outside of a table's folder, and choosing where rows are written.

    bases     1 `hot` s3://fast/t     2 `cold` s3://slow/t
    choice    ("cold",)               every file goes to base 2
    choice    ("hot", "cold")         files go to 1, 2, 1, 2 ..
    choice    spread=True             files go to the table itself, 1, 2, and again

A base is named by its name or its path. Deletion files and manifests stay with the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from lancelet.errors import InvalidInputError
from lancelet.format.base_paths import BasePath
from lancelet.format.operation import UpdateBases
from lancelet.format.paths import DATA
from lancelet.io.uri import parse_uri
from lancelet.ops.publish import Remarks, publish
from lancelet.ops.write import Target
from lancelet.table.location import TableLocation
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass


class BaseError(InvalidInputError, OSError):
    """A base is not registered, or cannot be where it was asked for."""


@dataclass(frozen=True, slots=True)
class BaseChoice:
    """Where new files go: to the bases named, or spread over all of them.

    `spread` is None for not at all, else whether the table's own folder takes part.
    """

    names: tuple[str, ...] = ()
    spread: bool | None = None

    def __post_init__(self) -> None:
        """Refuse two answers to one question."""
        if self.names and self.spread is not None:
            raise BaseError("Cannot specify target_all_bases together with target_bases")

    def targets(self, location: TableLocation, bases: Mapping[int, BasePath]) -> list[Target]:
        """Return where files go in turn, given the bases of a table."""
        if self.spread is not None:
            own = [Target(location.store)] if self.spread or not bases else []
            return own + [_target(location, bases[base_id]) for base_id in sorted(bases)]
        if not self.names:
            return [Target(location.store)]
        return [
            Target(location.store)
            if _same_path(name, location.uri)
            else _target(location, find_base(bases, name))
            for name in self.names
        ]


def find_base(bases: Mapping[int, BasePath], name: str) -> BasePath:
    """Return the base with a name or a path."""
    for of_base in (lambda base: base.name == name, lambda base: _same_path(base.path, name)):
        for base in bases.values():
            if of_base(base):
                return base
    known = sorted(base.name or base.path for base in bases.values())
    raise BaseError(f"Base reference {name!r} not found in available bases", known=known)


def number_bases(bases: Sequence[BasePath]) -> tuple[BasePath, ...]:
    """Return the bases of a new table, with ids from 1 on for those that have none."""
    numbered: list[BasePath] = []
    for base in bases:
        taken = {other.id for other in (*numbered, *bases)}
        free = next(number for number in range(1, len(bases) + 2) if number not in taken)
        numbered.append(base if base.id else replace(base, id=free))
        same = [
            other
            for other in numbered[:-1]
            if _same_path(other.path, base.path)
            or (base.name is not None and base.name == other.name)
            or other.id == numbered[-1].id
        ]
        if same:
            raise BaseError(
                "two bases have one id, name or path", first=same[0].path, second=base.path
            )
    return tuple(numbered)


def add_bases(
    snapshot: Snapshot, bases: Sequence[BasePath], remarks: Remarks | None = None
) -> Snapshot:
    """Register bases; those without an id get the next one."""
    return publish(snapshot, UpdateBases(tuple(bases)), remarks=remarks)


def update_base_paths(
    snapshot: Snapshot, paths: Mapping[int | str, str], remarks: Remarks | None = None
) -> Snapshot:
    """Say where bases are now, each named by its id, its name or its path."""
    bases = snapshot.manifest.bases
    moved: dict[int, BasePath] = {}
    for key, path in paths.items():
        base = base_with_id(bases, key) if isinstance(key, int) else find_base(bases, key)
        if base.id in moved:
            raise BaseError("a base is named twice", id=base.id, name=base.name)
        moved[base.id] = replace(base, path=absolute_path(path))
    if not moved:
        raise BaseError("no base path is given", known=sorted(bases))
    return publish(snapshot, UpdateBases(tuple(moved.values()), replaces=True), remarks=remarks)


def base_with_id(bases: Mapping[int, BasePath], base_id: int) -> BasePath:
    """Return the base with an id that a caller names."""
    if base_id not in bases:
        raise BaseError("no base has the id", id=base_id, known=sorted(bases))
    return bases[base_id]


def absolute_path(path: str) -> str:
    """Return the path of a base so that it means the same from everywhere.

    >>> absolute_path("s3://bucket/cold"), absolute_path("/data/cold/")
    ('s3://bucket/cold', '/data/cold')
    """
    place = parse_uri(path)
    return place.authority + place.path if place.scheme == "file" else path


def _target(location: TableLocation, base: BasePath) -> Target:
    folder = DATA if base.is_dataset_root else ""
    return Target(location.base_store(base), folder, base.id)


def _same_path(first: str, second: str) -> bool:
    return first.rstrip("/") == second.rstrip("/")
