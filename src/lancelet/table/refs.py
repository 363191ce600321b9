"""Create, update, list, open and delete tags and branches.

For example:

    t.lance                       the main branch, which stores all tags and branches
    t.lance/_refs/tags/v1.json    tag v1: version 2 of branch dev/x
    t.lance/tree/dev/x            branch dev/x: a shallow clone with its own versions
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import TypeAlias, TypeVar

from lancelet import surroundings
from lancelet.errors import (
    AlreadyExistsError,
    CommitError,
    CorruptDataError,
    ObjectNotFoundError,
    RefNotFoundError,
    VersionNotFoundError,
    VersionRemovedError,
    corrupt_within,
    similar_names,
)
from lancelet.format.paths import (
    BRANCHES,
    TABLE_FOLDERS,
    TAGS,
    branch_path,
    branch_root,
    is_inside_table_directory,
    parse_ref_name,
    tag_path,
)
from lancelet.format.refs import (
    MAIN,
    Branch,
    BranchStep,
    Tag,
    check_branch_name,
    check_new_branch_name,
    check_tag_name,
    parse_branch,
    parse_tag,
    render_branch,
    render_tag,
    with_checksum,
)
from lancelet.io.uri import name as last_part
from lancelet.io.uri import parent
from lancelet.table.clone import shallow_clone
from lancelet.table.location import TableLocation
from lancelet.table.removals import hold_version
from lancelet.table.snapshot import Snapshot, latest_snapshot, open_entries, open_snapshot
from lancelet.values import replace

T = TypeVar("T")

Reference: TypeAlias = int | str | tuple[str | None, int | None] | None
"""A version number, a tag, a branch and a version of it (None for the latest), or the latest."""


class RefExistsError(AlreadyExistsError, ValueError):
    """A tag or branch of this name exists; delete it, or update the tag."""


class RefInUseError(CommitError):
    """Other branches or tags need the branch; delete them first."""


def main_location(snapshot: Snapshot) -> TableLocation:
    """Return the location of the main table, which stores the tags and branches."""
    location, branch = snapshot.location, snapshot.manifest.branch
    if branch is None:
        return location
    if location.main is not None:
        return location.main
    path, separator, query = location.uri.partition("?")
    root = path.rstrip("/").removesuffix(f"/{branch_root(branch)}")
    if root == path.rstrip("/"):
        raise CorruptDataError(
            "the folder of the branch does not match its name; it may have been copied",
            uri=location.uri,
            branch=branch,
        )
    return TableLocation.open(
        root + separator + query, location.storage_options, location.base_options
    )


def branch_location(main: TableLocation, branch: str | None) -> TableLocation:
    """Return the location of a branch; None and `main` refer to the main table."""
    if branch is None or branch == MAIN:
        return main
    return replace(main.below(branch_root(check_branch_name(branch))), main=main)


def open_reference(main: TableLocation, reference: Reference) -> Snapshot:
    """Open a reference: a version of the main branch, a tag, or a branch."""
    match reference:
        case None | int():
            return open_snapshot(main, reference)
        case str():
            tag = get_tag(main, reference)
            return open_snapshot(branch_location(main, tag.branch), tag.version)
        case (branch, version):
            if branch is not None and branch != MAIN:
                get_branch(main, branch)
            return open_snapshot(branch_location(main, branch), version)


def open_as_of(location: TableLocation, moment: datetime) -> Snapshot:
    """Open the last version that was committed at or before a time."""
    newest_first = reversed(location.handler.list_versions(location.store))
    for snapshot in open_entries(location, newest_first):
        if snapshot.manifest.timestamp <= moment:
            return snapshot
    raise VersionNotFoundError(
        "the time is earlier than the first version of this dataset",
        uri=location.uri,
        moment=moment.isoformat(),
    )


def list_tags(main: TableLocation) -> dict[str, Tag]:
    """Return the tags by name."""
    return _list_refs(main, TAGS, _read_tag)


def get_tag(main: TableLocation, name: str) -> Tag:
    """Return a tag."""
    check_tag_name(name)
    try:
        return _read_tag(main, tag_path(name))
    except ObjectNotFoundError as error:
        raise _no_ref(main, "tag", name, list_tags(main)) from error


def create_tag(main: TableLocation, name: str, version: int, branch: str | None = None) -> Tag:
    """Create a tag of a version of a branch."""
    _check_changeable(main)
    check_tag_name(name)
    with _held_tag(main, version, branch, Tag(None, version, 0)) as moved:
        tag = replace(moved, created_at_ns=moved.updated_at_ns)
        try:
            main.store.put_if_absent(tag_path(name), with_checksum(render_tag(tag)))
        except AlreadyExistsError as error:
            raise RefExistsError(f"tag {name} already exists", uri=main.uri) from error
    return tag


def update_tag(main: TableLocation, name: str, version: int, branch: str | None = None) -> Tag:
    """Move a tag to another version."""
    _check_changeable(main)
    with _held_tag(main, version, branch, get_tag(main, name)) as tag:
        main.store.put(tag_path(name), with_checksum(render_tag(tag)))
    return tag


def replace_tag_metadata(main: TableLocation, name: str, metadata: Mapping[str, str]) -> Tag:
    """Replace the metadata of a tag."""
    _check_changeable(main)
    tag = replace(get_tag(main, name), metadata=dict(metadata))
    main.store.put(tag_path(name), with_checksum(render_tag(tag)))
    return tag


def delete_tag(main: TableLocation, name: str) -> None:
    """Delete a tag; its version is retained until the next cleanup."""
    _check_changeable(main)
    get_tag(main, name)
    main.store.delete(tag_path(name))


def list_branches(main: TableLocation) -> dict[str, Branch]:
    """Return the branches by name, excluding the main branch."""
    return _list_refs(main, BRANCHES, _read_branch)


def get_branch(main: TableLocation, name: str) -> Branch:
    """Return a branch."""
    check_branch_name(name)
    branch = _branch_or_none(main, name)
    if branch is None:
        raise _no_ref(main, "branch", name, list_branches(main))
    return branch


def _no_ref(main: TableLocation, kind: str, name: str, existing: Iterable[str]) -> RefNotFoundError:
    hint = similar_names(name, list(existing))
    return RefNotFoundError(
        f"Ref not found error: {kind} {name} does not exist{hint}", uri=main.uri
    )


def create_branch(main: TableLocation, name: str, source: Snapshot) -> Snapshot:
    """Create a branch from a version of the main table or of another branch."""
    _check_changeable(main)
    check_new_branch_name(name)
    if _branch_or_none(main, name) is not None:
        raise RefExistsError(f"branch {name} already exists", uri=main.uri)
    parent = source.manifest.branch
    above = () if parent is None else get_branch(main, parent).identifier
    with hold_version(source.location, source.version):
        return _create_branch(main, name, source, above)


def _create_branch(
    main: TableLocation, name: str, source: Snapshot, above: tuple[BranchStep, ...] | None
) -> Snapshot:
    try:
        created = shallow_clone(source, branch_location(main, name), branch=name)
    except AlreadyExistsError as error:
        raise RefExistsError(
            "a branch of that name is being created, or its creation or deletion was "
            "interrupted; delete it unless a writer is creating it",
            name=name,
            uri=main.uri,
        ) from error
    step = BranchStep(source.version, f"{surroundings.random_bits(128):032x}")
    branch = Branch(
        parent_branch=source.manifest.branch,
        parent_version=source.version,
        created_at=surroundings.time_ns() // 1_000_000_000,
        manifest_bytes=source.entry.size,
        identifier=None if above is None else (*above, step),
    )
    try:
        main.store.put_if_absent(branch_path(name), with_checksum(render_branch(branch)))
    except AlreadyExistsError as error:
        raise RefExistsError(f"branch {name} already exists", uri=main.uri) from error
    return created


def replace_branch_metadata(main: TableLocation, name: str, metadata: Mapping[str, str]) -> Branch:
    """Replace the metadata of a branch."""
    _check_changeable(main)
    branch = replace(get_branch(main, name), metadata=dict(metadata))
    main.store.put(branch_path(name), with_checksum(render_branch(branch)))
    return branch


def delete_branch(main: TableLocation, name: str) -> None:
    """Delete a branch and its files.

    The reference is deleted first. An interrupted deletion can be repeated.

    Raises:
        RefInUseError: A tag or another branch needs the branch.
    """
    _check_changeable(main)
    check_branch_name(name)
    branches = list_branches(main)
    folder = branch_root(name)
    if name not in branches and next(main.store.list(folder), None) is None:
        raise _no_ref(main, "branch", name, branches)
    children = {other for other, branch in branches.items() if branch.parent_branch == name}
    children |= {other for other in branches if is_inside_table_directory(other, name)}
    tags = sorted(tag for tag, value in list_tags(main).items() if value.branch == name)
    if children or tags:
        raise RefInUseError(
            "branches or tags need the branch; delete them first",
            name=name,
            branches=sorted(children),
            tags=tags,
        )
    main.store.delete(branch_path(name))
    if any(is_inside_table_directory(name, other) for other in branches):
        # Other files in the folder belong to nested branches.
        for inner in TABLE_FOLDERS:
            main.store.delete_folder(f"{folder}/{inner}")
    else:
        _delete_except_nested(
            main, folder, [branch_root(other) for other in branches if other != name]
        )
    while folder:
        main.store.remove_if_empty(folder)
        folder = parent(folder)


def _delete_except_nested(main: TableLocation, folder: str, other_roots: list[str]) -> None:
    """Delete a folder except the folders of nested branches."""
    nested = [root for root in other_roots if root.startswith(f"{folder}/")]
    if not nested:
        main.store.delete_folder(folder)
        return
    listing = main.store.list_delimited(folder)
    main.store.delete_many([info.path for info in listing.objects])
    for inner in listing.folders:
        if inner not in nested:
            _delete_except_nested(main, inner, nested)


def _check_changeable(main: TableLocation) -> None:
    """Raise if changing references of the table requires a newer release."""
    latest = latest_snapshot(main)
    if latest is not None:
        latest.check_changeable()


@contextmanager
def _held_tag(main: TableLocation, version: int, branch: str | None, before: Tag) -> Iterator[Tag]:
    """Yield a tag for a version, which is held until the tag is stored."""
    if branch == MAIN:
        branch = None
    if branch is not None:
        get_branch(main, branch)
    location = branch_location(main, branch)
    try:
        with hold_version(location, version) as entry:
            yield replace(
                before,
                branch=branch,
                version=version,
                manifest_bytes=entry.size,
                updated_at_ns=surroundings.time_ns(),
            )
    except VersionRemovedError:
        raise  # This error already describes the removed version.
    except VersionNotFoundError as error:
        raise VersionNotFoundError(
            f"Version not found error: version {branch or MAIN}:{version} does not exist",
            uri=location.uri,
        ) from error


def _branch_or_none(main: TableLocation, name: str) -> Branch | None:
    try:
        return _read_branch(main, branch_path(name))
    except ObjectNotFoundError:
        return None


def _list_refs(
    main: TableLocation, folder: str, read: Callable[[TableLocation, str], T]
) -> dict[str, T]:
    """Return the references in a folder, skipping those deleted during the listing."""
    references = {}
    for info in main.store.list(folder):
        name = parse_ref_name(last_part(info.path))
        if info.size and name is not None:
            with suppress(ObjectNotFoundError):
                references[name] = read(main, info.path)
    return references


def _read_tag(main: TableLocation, path: str) -> Tag:
    data = _read(main, path)
    with corrupt_within(path=path, uri=main.uri):
        return parse_tag(data)


def _read_branch(main: TableLocation, path: str) -> Branch:
    data = _read(main, path)
    with corrupt_within(path=path, uri=main.uri):
        return parse_branch(data)


def _read(main: TableLocation, path: str) -> bytes:
    """Return the content of a reference file.

    Empty files of interrupted writers are treated as missing.
    """
    data = main.store.read(path)
    if not data:
        raise ObjectNotFoundError("the reference file is empty", path=path, uri=main.uri)
    return data
