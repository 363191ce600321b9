"""Base paths as pylance has them: places outside of a dataset's folder that hold its files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lancelet import ops
from lancelet.format.base_paths import BasePath
from lancelet.values import dataclass

if TYPE_CHECKING:
    from lancelet.dataset.handle import Handle


@dataclass(frozen=True)
class DatasetBasePath:
    """A place outside of a dataset's folder.

    Attributes:
        path: Where it is; a path on this machine is made absolute when it is registered.
        name: What `target_bases` may call it.
        is_dataset_root: Whether it holds a `data` folder, or the files themselves.
        id: Its number in the dataset; given at the commit if it is 0 or None.
    """

    path: str
    name: str | None = None
    is_dataset_root: bool = False
    id: int | None = None

    def __post_init__(self) -> None:
        """Take paths of any form."""
        object.__setattr__(self, "path", os.fspath(self.path))
        object.__setattr__(self, "id", self.id or 0)


class BaseMethods:
    """Shows and registers base paths."""

    _handle: Handle

    def base_paths(self) -> dict[int, DatasetBasePath]:
        """Return the base paths of the dataset, by id.

        Returns:
            The `DatasetBasePath` of each id; empty if all files are in the folder of the dataset.

        Example:
            ```python
            dataset.base_paths()  # {}
            ```
        """
        bases = self._handle.snapshot.manifest.bases
        return {base_id: base_to_user(base) for base_id, base in bases.items()}

    def add_bases(
        self,
        new_bases: Sequence[DatasetBasePath],
        transaction_properties: Mapping[str, str] | None = None,
        *,
        dry_run: bool = False,
    ) -> Any:
        """Register base paths: other folders or buckets that data files may be written to.

        Args:
            new_bases: The bases; ids that are None are assigned.
            transaction_properties: Properties to record with the transaction.
            dry_run: Preview: commit nothing and return a `ChangeReport` of what would change.

        Returns:
            None; with `dry_run`, the `ChangeReport`.

        Raises:
            AlreadyExistsError: If the name is taken.

        Example:
            ```python
            dataset.add_bases([lance.DatasetBasePath("memory://cold", "cold")])
            dataset.base_paths()
            ```
        """
        remarks = ops.publish.Remarks(properties=dict(transaction_properties or {}))
        handle, bases = self._handle, bases_from_user(new_bases)
        if dry_run:
            return ops.dry_run.rehearse(
                handle.snapshot, lambda now: ops.bases.add_bases(now, bases, remarks), 0
            )
        handle.snapshot = ops.bases.add_bases(handle.snapshot, bases, remarks)
        return self

    def update_base_paths(
        self,
        paths: Mapping[int | str, str | os.PathLike[str]],
        transaction_properties: Mapping[str, str] | None = None,
        *,
        dry_run: bool = False,
    ) -> Any:
        """Change where base paths are, after their files were moved.

        The files must be at the new paths already, and nobody may write to the old ones.

        Args:
            paths: The new path of each moved base, by its id, name or old path.
            transaction_properties: Properties to record with the transaction.
            dry_run: Preview: commit nothing and return a `ChangeReport` of what would change.

        Returns:
            None; with `dry_run`, the `ChangeReport`.

        Raises:
            InvalidInputError: If no base has that id, name or path.

        Example:
            ```python
            dataset.add_bases([lance.DatasetBasePath("memory://cold", "cold")])
            dataset.update_base_paths({"cold": "memory://colder"})
            ```
        """
        remarks = ops.publish.Remarks(properties=dict(transaction_properties or {}))
        handle, moved = self._handle, {key: os.fspath(path) for key, path in paths.items()}
        if dry_run:
            return ops.dry_run.rehearse(
                handle.snapshot,
                lambda now: ops.bases.update_base_paths(now, moved, remarks),
                0,
            )
        handle.snapshot = ops.bases.update_base_paths(handle.snapshot, moved, remarks)
        return self


def base_to_user(base: BasePath) -> DatasetBasePath:
    """Return a base as users see it."""
    return DatasetBasePath(base.path, base.name, base.is_dataset_root, base.id)


def bases_from_user(bases: Sequence[DatasetBasePath] | None) -> tuple[BasePath, ...]:
    """Return the bases that a user describes."""
    return tuple(
        BasePath(base.id or 0, ops.bases.absolute_path(base.path), base.is_dataset_root, base.name)
        for base in bases or ()
    )
