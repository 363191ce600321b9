"""Tags, branches and clones, with the API of pylance.

    ds.tags.create("v1", 3)                   version 3 of the checked-out branch
    ds.tags.create("rc", ("dev/x", None))     the latest version of branch dev/x
    ds.create_branch("dev/y", "v1")           a branch that starts at a tag
    ds.shallow_clone("copy.lance", "v1")      a table that refers to the files of `ds`

A reference is a number (of the checked-out branch), a tag, or a pair of a branch and a number.
None selects the main branch or the latest version.
"""

from __future__ import annotations

import builtins
import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypedDict, TypeVar, cast

from lancelet import change
from lancelet.dataset.arguments import checks_types
from lancelet.dataset.dry_runs import previews_dataset
from lancelet.dataset.handle import Handle, OpenOptions, locate, open_reference, text_of
from lancelet.dataset.show import display
from lancelet.errors import InvalidInputError
from lancelet.format import refs as stored
from lancelet.format.manifest import NANOSECONDS
from lancelet.format.paths import tag_path
from lancelet.table import refs
from lancelet.table.clone import deep_clone, shallow_clone
from lancelet.table.commit import refresh_snapshot
from lancelet.table.fast_forward import fast_forward
from lancelet.table.location import TableLocation

if TYPE_CHECKING:
    from lancelet.change.dry_run import ChangeReport
    from lancelet.dataset.dataset import LanceDataset
    from lancelet.dataset.handle import VersionLike
    from lancelet.table.snapshot import Snapshot

_DESCENDING: Final = {None: True, "desc": True, "asc": False}

T = TypeVar("T")


class Tag(TypedDict):
    """A named version; `branch` is None for the main branch."""

    branch: str | None
    version: int
    created_at: datetime | None
    updated_at: datetime | None
    manifest_size: int
    metadata: dict[str, str]


class Branch(TypedDict):
    """A branch and its parent version; `create_at` is in seconds since 1970."""

    parent_branch: str | None
    branch_identifier: list[tuple[int, str]]
    parent_version: int
    create_at: int
    manifest_size: int
    metadata: dict[str, str]


class VersionRef(TypedDict):
    """The number of a version, without its contents."""

    version: int


class Tags:
    """The tags of a table."""

    def __init__(self, dataset: LanceDataset) -> None:
        """Manage the tags of the table of a dataset."""
        self._dataset = dataset

    def __repr__(self) -> str:
        """Show the tag names."""
        return display.line("Tags", self._dataset.uri, names=sorted(self.list()))

    def _repr_html_(self) -> str:
        """Render the tags with their versions for notebooks."""
        rows = (
            (name, each["branch"] or "main", each["version"]) for name, each in self.list().items()
        )
        return display.card("Tags", {}, display.grid(("tag", "branch", "version"), rows))

    def list(self) -> dict[str, Tag]:
        """Return all tags.

        Returns:
            The tags by name.

        Example:
            ```python
            dataset.tags.create("v1")
            dataset.tags.list()["v1"]["version"]
            ```
        """
        found = refs.list_tags(_main(self._dataset))
        return {name: _tag_to_user(tag) for name, tag in found.items()}

    def list_ordered(self, order: str | None = None) -> builtins.list[tuple[str, Tag]]:
        """Return all tags, ordered by version.

        Args:
            order: `desc`, the default, or `asc`.

        Returns:
            Pairs of name and tag.

        Example:
            ```python
            dataset.tags.create("v1")
            [name for name, tag in dataset.tags.list_ordered("asc")]
            ```
        """
        return _ordered(self.list(), order, lambda tag: tag["version"])

    @checks_types
    def get_version(self, tag: str) -> int:
        """Return the version number of a tag.

        Args:
            tag: The name.

        Returns:
            The version number.

        Raises:
            RefNotFoundError: If the tag or branch does not exist.

        Example:
            ```python
            dataset.tags.create("v1")
            dataset.tags.get_version("v1")
            ```
        """
        return refs.get_tag(_main(self._dataset), tag).version

    @checks_types
    def create(
        self, tag: str, reference: VersionLike = None, *, dry_run: bool = False
    ) -> ChangeReport | None:
        """Tag a version.

        Args:
            tag: The name.
            reference: The version; by default the checked-out one.
            dry_run: If True, return a `ChangeReport` without committing.

        Returns:
            None; with `dry_run`, the `ChangeReport`.

        Raises:
            AlreadyExistsError: If the name already exists.
            VersionNotFoundError: If the version does not exist or was cleaned up.

        Example:
            ```python
            dataset.tags.create("v1", 1)
            dataset.checkout_version("v1")
            ```
        """
        target = _target(self._dataset, reference)
        if dry_run and _main(self._dataset).store.exists(tag_path(tag)):
            raise refs.RefExistsError(f"tag {tag} already exists", uri=self._dataset.uri)
        create = partial(refs.create_tag, name=tag, version=target[0], branch=target[1])
        return _done(self._dataset, "CreateTag", create, dry_run=dry_run)

    @checks_types
    def update(
        self, tag: str, reference: VersionLike = None, *, dry_run: bool = False
    ) -> ChangeReport | None:
        """Move a tag to another version.

        Args:
            tag: The name.
            reference: The version; by default the checked-out one.
            dry_run: If True, return a `ChangeReport` without committing.

        Returns:
            None; with `dry_run`, the `ChangeReport`.

        Raises:
            RefNotFoundError: If the tag or branch does not exist.
            VersionNotFoundError: If the version does not exist or was cleaned up.

        Example:
            ```python
            dataset.tags.create("latest-good")
            dataset.delete("id = 3")
            dataset.tags.update("latest-good")
            ```
        """
        target = _target(self._dataset, reference)
        update = partial(refs.update_tag, name=tag, version=target[0], branch=target[1])
        return _done(self._dataset, "UpdateTag", update, dry_run=dry_run)

    @checks_types
    def delete(self, tag: str, *, dry_run: bool = False) -> ChangeReport | None:
        """Delete a tag. The version is not deleted.

        Args:
            tag: The name.
            dry_run: If True, return a `ChangeReport` without committing.

        Returns:
            None; with `dry_run`, the `ChangeReport`.

        Raises:
            RefNotFoundError: If the tag or branch does not exist.

        Example:
            ```python
            dataset.tags.create("v1")
            dataset.tags.delete("v1")
            ```
        """
        delete = partial(refs.delete_tag, name=tag)
        return _done(self._dataset, "DeleteTag", delete, dry_run=dry_run)

    @checks_types
    def replace_metadata(
        self, tag: str, metadata: Mapping[str, str], *, dry_run: bool = False
    ) -> ChangeReport | None:
        """Replace the metadata of a tag.

        Args:
            tag: The name.
            metadata: The new metadata.
            dry_run: If True, return a `ChangeReport` without committing.

        Returns:
            None; with `dry_run`, the `ChangeReport`.

        Raises:
            RefNotFoundError: If the tag or branch does not exist.

        Example:
            ```python
            dataset.tags.create("v1")
            dataset.tags.replace_metadata("v1", {"owner": "ann"})
            ```
        """
        replace = partial(refs.replace_tag_metadata, name=tag, metadata=metadata)
        return _done(self._dataset, "ReplaceTagMetadata", replace, dry_run=dry_run)


class Branches:
    """The branches of a table."""

    def __init__(self, dataset: LanceDataset) -> None:
        """Manage the branches of the table of a dataset."""
        self._dataset = dataset

    def __repr__(self) -> str:
        """Show the branch names."""
        return display.line("Branches", self._dataset.uri, names=sorted(self.list()))

    def _repr_html_(self) -> str:
        """Render the branches with their versions for notebooks."""
        rows = (
            (name, each["parent_branch"] or "main", each["parent_version"])
            for name, each in self.list().items()
        )
        return display.card(
            "Branches", {}, display.grid(("branch", "parent_branch", "parent_version"), rows)
        )

    def list(self) -> dict[str, Branch]:
        """Return all branches.

        Returns:
            The branches by name.

        Example:
            ```python
            dataset.create_branch("experiment")
            list(dataset.branches.list())
            ```
        """
        found = refs.list_branches(_main(self._dataset))
        return {name: _branch_to_user(branch) for name, branch in found.items()}

    def list_ordered(self, order: str | None = None) -> builtins.list[tuple[str, Branch]]:
        """Return all branches, ordered by their parent version.

        Args:
            order: `desc`, the default, or `asc`.

        Returns:
            Pairs of name and branch.

        Example:
            ```python
            dataset.create_branch("experiment")
            dataset.branches.list_ordered()
            ```
        """
        return _ordered(self.list(), order, lambda branch: branch["parent_version"])

    @previews_dataset
    def fast_forward(self, branch: str, *, dry_run: bool = False) -> LanceDataset | ChangeReport:
        """Commit the state of a branch as the next version of its parent.

        The files of the branch are copied, and the branch remains unchanged.

        Args:
            branch: The name.
            dry_run: If True, return a `ChangeReport` without committing.

        Returns:
            The parent at the new version; with `dry_run`, the `ChangeReport`.

        Raises:
            RefNotFoundError: If the branch does not exist.
            CommitConflictError: If the parent has commits that are not in the branch.

        Example:
            ```python
            experiment = dataset.create_branch("experiment")
            experiment.delete("id = 3")
            dataset.branches.fast_forward("experiment").count_rows()  # 19
            ```
        """
        refresh_snapshot(self._dataset.snapshot)
        forward = partial(fast_forward, name=branch)
        if dry_run:
            return change.dry_run.dry_run_write(
                _main(self._dataset), forward, if_unchanged="Overwrite"
            )
        return self._dataset.at(forward(_main(self._dataset)))

    @checks_types
    def delete(self, branch: str, *, dry_run: bool = False) -> ChangeReport | None:
        """Delete a branch with its files.

        Args:
            branch: The name.
            dry_run: If True, return a `ChangeReport` without committing.

        Returns:
            None; with `dry_run`, the `ChangeReport`.

        Raises:
            RefNotFoundError: If the branch does not exist.
            InvalidInputError: If a tag or another branch depends on it.

        Example:
            ```python
            dataset.create_branch("experiment")
            dataset.branches.delete("experiment")
            ```
        """
        delete = partial(refs.delete_branch, name=branch)
        return _done(self._dataset, "DeleteBranch", delete, dry_run=dry_run)

    @checks_types
    def replace_metadata(
        self, branch: str, metadata: Mapping[str, str], *, dry_run: bool = False
    ) -> ChangeReport | None:
        """Replace the metadata of a branch.

        Args:
            branch: The name.
            metadata: The new metadata.
            dry_run: If True, return a `ChangeReport` without committing.

        Returns:
            None; with `dry_run`, the `ChangeReport`.

        Raises:
            RefNotFoundError: If the tag or branch does not exist.

        Example:
            ```python
            dataset.create_branch("experiment")
            dataset.branches.replace_metadata("experiment", {"owner": "ann"})
            ```
        """
        replace = partial(refs.replace_branch_metadata, name=branch, metadata=metadata)
        return _done(self._dataset, "ReplaceBranchMetadata", replace, dry_run=dry_run)


class RefMethods:
    """Methods that manage tags, branches and clones."""

    _handle: Handle

    @property
    def tags(self) -> Tags:
        """The tags of the table."""
        return Tags(self)  # type: ignore[arg-type]  # mixed into LanceDataset alone

    @property
    def branches(self) -> Branches:
        """The branches of the table."""
        return Branches(self)  # type: ignore[arg-type]  # mixed into LanceDataset alone

    def version_refs(self) -> list[VersionRef]:
        """Return the numbers of all versions, oldest first, without reading manifests.

        Returns:
            One reference per version.

        Example:
            ```python
            [reference["version"] for reference in dataset.version_refs()]
            ```
        """
        location = self._handle.location
        entries = location.handler.list_versions(location.store)
        return [VersionRef(version=entry.version) for entry in entries]

    @previews_dataset
    @checks_types
    def create_branch(
        self,
        branch: str,
        reference: VersionLike = None,
        storage_options: Mapping[str, str] | None = None,
        *,
        dry_run: bool = False,
    ) -> LanceDataset | ChangeReport:
        """Create a branch at a version, and return the dataset on it.

        Args:
            branch: The name.
            reference: The version; by default the checked-out one.
            storage_options: Options of the object store; by default the dataset's.
            dry_run: If True, return a `ChangeReport` without committing.

        Returns:
            The dataset on the branch; with `dry_run`, the `ChangeReport`.

        Raises:
            AlreadyExistsError: If the name already exists.
            VersionNotFoundError: If the version does not exist or was cleaned up.
            RefNotFoundError: If the tag or branch does not exist.

        Example:
            ```python
            experiment = dataset.create_branch("experiment")
            experiment.delete("id < 5")
            dataset.count_rows()  # 20
            ```
        """
        del storage_options  # branches share the folder of the table
        refresh_snapshot(self._handle.snapshot)  # raises if the path contains another table by now
        source = open_reference(self._handle, reference)
        create = partial(refs.create_branch, name=branch, source=source)
        if dry_run:
            return change.dry_run.dry_run_write(refs.main_location(source), create)
        return cast("LanceDataset", self).at(create(refs.main_location(source)))

    @previews_dataset
    def shallow_clone(
        self,
        /,
        target_path: str | os.PathLike[str],
        reference: VersionLike,
        storage_options: Mapping[str, str] | None = None,
        *,
        dry_run: bool = False,
        **kwargs: Any,
    ) -> LanceDataset | ChangeReport:
        """Create a table that refers to the files of a version instead of copying them.

        Args:
            target_path: The URI of the new table.
            reference: The version.
            storage_options: Options of the object store of the new table.
            dry_run: If True, return a `ChangeReport` without committing.
            kwargs: Ignored.

        Returns:
            The new dataset; with `dry_run`, the `ChangeReport`.

        Raises:
            AlreadyExistsError: If the name already exists.
            VersionNotFoundError: If the version does not exist or was cleaned up.

        Example:
            ```python
            dataset.shallow_clone("clone.lance", dataset.version)
            ```
        """
        source = open_reference(self._handle, reference)
        tag = reference if isinstance(reference, str) else None
        clone = partial(shallow_clone, source, tag=tag)
        return self._cloned(clone, 0, target_path, storage_options, kwargs, dry_run=dry_run)

    @previews_dataset
    def deep_clone(
        self,
        /,
        target_path: str | os.PathLike[str],
        reference: VersionLike,
        storage_options: Mapping[str, str] | None = None,
        *,
        dry_run: bool = False,
        **kwargs: Any,
    ) -> LanceDataset | ChangeReport:
        """Create a table with copies of all files of a version.

        Args:
            target_path: The URI of the new table.
            reference: The version.
            storage_options: Options of the object store of the new table.
            dry_run: If True, return a `ChangeReport` without committing.
            kwargs: Ignored.

        Returns:
            The new dataset; with `dry_run`, the `ChangeReport`.

        Raises:
            AlreadyExistsError: If the name already exists.
            VersionNotFoundError: If the version does not exist or was cleaned up.

        Example:
            ```python
            dataset.deep_clone("copy.lance", dataset.version)
            ```
        """
        source = open_reference(self._handle, reference)
        clone, rows = partial(deep_clone, source), source.num_rows
        return self._cloned(clone, rows, target_path, storage_options, kwargs, dry_run=dry_run)

    def _cloned(
        self,
        clone: Callable[[TableLocation], Snapshot],
        num_rows: int,
        target: str | os.PathLike[str],
        storage_options: Mapping[str, str] | None,
        more: Mapping[str, Any],
        *,
        dry_run: bool,
    ) -> LanceDataset | ChangeReport:
        """Create a clone and open it with `more`, or report the copied rows."""
        own = self._handle.options
        settings = own.storage_options if storage_options is None else storage_options
        options = OpenOptions(settings, own.base_options)
        location = locate(text_of(target), options)[0]
        if dry_run:
            return change.dry_run.dry_run_write(location, clone, num_rows)
        clone(location)
        kind = cast("type[LanceDataset]", type(self))  # the class that uses this mixin
        return kind(
            text_of(target),
            storage_options=settings,
            base_store_params=own.base_options,
            **more,
        )


def _main(dataset: LanceDataset) -> TableLocation:
    return refs.main_location(dataset.snapshot)


def _done(
    dataset: LanceDataset,
    operation: str,
    action: Callable[[TableLocation], object],
    *,
    dry_run: bool,
) -> ChangeReport | None:
    """Change the refs of the main table, or report the files to write and delete."""
    refresh_snapshot(dataset.snapshot)  # raises if the path contains another table by now
    if dry_run:
        return change.dry_run.dry_run_without_commit(_main(dataset), operation, action)
    action(_main(dataset))
    return None


def _target(dataset: LanceDataset, reference: VersionLike) -> tuple[int, str | None]:
    """Resolve a reference to a version number and a branch."""
    snapshot = dataset.snapshot
    match reference:
        case None:
            return snapshot.version, snapshot.manifest.branch
        case int():
            return reference, snapshot.manifest.branch
        case (branch, int() as number):
            return number, branch
        case _:
            found = open_reference(dataset.handle, reference)
            return found.version, found.manifest.branch


def _ordered(found: Mapping[str, T], order: str | None, version: Any) -> list[tuple[str, T]]:
    """Return refs sorted by version, then by name."""
    if order not in _DESCENDING:
        raise InvalidInputError(f"Invalid sort order {order!r}", expected=["asc", "desc"])
    by_name = sorted(found.items())
    return sorted(by_name, key=lambda item: version(item[1]), reverse=_DESCENDING[order])


def _tag_to_user(tag: stored.Tag) -> Tag:
    return Tag(
        branch=tag.branch,
        version=tag.version,
        created_at=_moment(tag.created_at_ns),
        updated_at=_moment(tag.updated_at_ns),
        manifest_size=tag.manifest_bytes,
        metadata=dict(tag.metadata),
    )


def _branch_to_user(branch: stored.Branch) -> Branch:
    return Branch(
        parent_branch=branch.parent_branch,
        branch_identifier=[(step.parent_version, step.id) for step in branch.identifier or ()],
        parent_version=branch.parent_version,
        create_at=branch.created_at,
        manifest_size=branch.manifest_bytes,
        metadata=dict(branch.metadata),
    )


def _moment(time_ns: int | None) -> datetime | None:
    if time_ns is None:
        return None
    seconds, rest_ns = divmod(time_ns, NANOSECONDS)
    return datetime.fromtimestamp(seconds, UTC) + timedelta(microseconds=rest_ns // 1000)
