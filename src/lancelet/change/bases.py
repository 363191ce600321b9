"""Base paths: registration, updates, and the selection of write targets.

    bases       1 `hot` s3://fast/t     2 `cold` s3://slow/t
    selection   ("cold",)               every file goes to base 2
    selection   ("hot", "cold")         files go to 1, 2, 1, 2 ..
    selection   rotates=True            files go to the table root, 1, 2, then the root again

A base is identified by its name or its path. Deletion files and manifests stay in the table root.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from lancelet.change.publish import CommitProperties, publish
from lancelet.change.write import Target
from lancelet.errors import InvalidInputError
from lancelet.format.base_paths import BasePath
from lancelet.format.operation import UpdateBases
from lancelet.format.paths import DATA
from lancelet.io.uri import parse_uri
from lancelet.table.location import TableLocation
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass


class BaseError(InvalidInputError, OSError):
    """A base is not registered, or its path is invalid."""


@dataclass(frozen=True, slots=True)
class BaseSelection:
    """Selects the bases that new files are written to.

    `names` lists bases by name or path. `rotates` selects all bases in turn: True includes the
    table root, False only the registered bases, and None (the default) disables it.
    """

    names: tuple[str, ...] = ()
    rotates: bool | None = None

    def __post_init__(self) -> None:
        """Raise if both `names` and `rotates` are set."""
        if self.names and self.rotates is not None:
            raise BaseError("Cannot specify target_all_bases together with target_bases")

    def targets(self, location: TableLocation, bases: Mapping[int, BasePath]) -> list[Target]:
        """Return the targets of new files, used in turn."""
        if self.rotates is not None:
            root = [Target(location.store)] if self.rotates or not bases else []
            return root + [_target(location, bases[base_id]) for base_id in sorted(bases)]
        if not self.names:
            return [Target(location.store)]
        return [
            Target(location.store)
            if _same_path(name, location.uri)
            else _target(location, find_base(bases, name))
            for name in self.names
        ]


def find_base(bases: Mapping[int, BasePath], name: str) -> BasePath:
    """Return the base with the given name or path."""
    for matches in (lambda base: base.name == name, lambda base: _same_path(base.path, name)):
        for base in bases.values():
            if matches(base):
                return base
    available = sorted(base.name or base.path for base in bases.values())
    raise BaseError(f"Base reference {name!r} not found in available bases", available=available)


def number_bases(bases: Sequence[BasePath]) -> tuple[BasePath, ...]:
    """Return the bases of a new table, assigning ids from 1 to those without one."""
    numbered: list[BasePath] = []
    for base in bases:
        used_ids = {other.id for other in (*numbered, *bases)}
        free_id = next(number for number in range(1, len(bases) + 2) if number not in used_ids)
        numbered.append(base if base.id else replace(base, id=free_id))
        duplicates = [
            other
            for other in numbered[:-1]
            if _same_path(other.path, base.path)
            or (base.name is not None and base.name == other.name)
            or other.id == numbered[-1].id
        ]
        if duplicates:
            raise BaseError(
                "two bases share an id, name or path; make them unique",
                first=duplicates[0].path,
                second=base.path,
            )
    return tuple(numbered)


def add_bases(
    snapshot: Snapshot, bases: Sequence[BasePath], properties: CommitProperties | None = None
) -> Snapshot:
    """Register bases; a base without an id gets the next free one."""
    return publish(snapshot, UpdateBases(tuple(bases)), properties=properties)


def update_base_paths(
    snapshot: Snapshot, paths: Mapping[int | str, str], properties: CommitProperties | None = None
) -> Snapshot:
    """Change the paths of bases, keyed by id, name or path."""
    bases = snapshot.manifest.bases
    moved: dict[int, BasePath] = {}
    for key, path in paths.items():
        base = base_with_id(bases, key) if isinstance(key, int) else find_base(bases, key)
        if base.id in moved:
            raise BaseError("a base path was specified twice", id=base.id, name=base.name)
        moved[base.id] = replace(base, path=absolute_path(path))
    if not moved:
        raise BaseError("no base path was specified", available=sorted(bases))
    return publish(
        snapshot, UpdateBases(tuple(moved.values()), replaces=True), properties=properties
    )


def base_with_id(bases: Mapping[int, BasePath], base_id: int) -> BasePath:
    """Return the base with an id; raise `BaseError` if it is not registered."""
    if base_id not in bases:
        raise BaseError("no base has this id", id=base_id, available=sorted(bases))
    return bases[base_id]


def absolute_path(path: str) -> str:
    """Return the absolute path or URI of a base.

    >>> absolute_path("s3://bucket/cold"), absolute_path("/data/cold/")
    ('s3://bucket/cold', '/data/cold')
    """
    uri = parse_uri(path)
    return uri.authority + uri.path if uri.scheme == "file" else path


def _target(location: TableLocation, base: BasePath) -> Target:
    folder = DATA if base.is_dataset_root else ""
    return Target(location.base_store(base), folder, base.id)


def _same_path(first: str, second: str) -> bool:
    return first.rstrip("/") == second.rstrip("/")
