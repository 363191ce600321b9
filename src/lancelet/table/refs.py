"""Tags and branches of a table: creating, moving, finding and removing them.

    t.lance                       the main branch, which has all the names
    t.lance/_refs/tags/v1.json    tag v1: version 2 of branch dev/x
    t.lance/tree/dev/x            branch dev/x: a shallow clone, with versions of its own

A name is made by one conditional put, so of two who want it one gets it. A branch is a table
first and gets its name then; what a creator who died leaves behind has no name, and deleting the
branch removes it.
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
from lancelet.table.removals import held
from lancelet.table.snapshot import Snapshot, latest_snapshot, open_entries, open_snapshot
from lancelet.values import replace

T = TypeVar("T")

Reference: TypeAlias = int | str | tuple[str | None, int | None] | None
"""A version number, a tag, a branch and a version of it (None for the latest), or the latest."""


class RefExistsError(AlreadyExistsError, ValueError):
    """The name of a tag or branch is taken; delete it, or update the tag."""


class RefInUseError(CommitError):
    """Other branches or tags need the branch; delete them first."""


def main_location(snapshot: Snapshot) -> TableLocation:
    """Return where the main table of a version is, which has the tags and branches of all."""
    location, branch = snapshot.location, snapshot.manifest.branch
    if branch is None:
        return location
    if location.main is not None:
        return location.main
    path, mark, query = location.uri.partition("?")
    root = path.rstrip("/").removesuffix(f"/{branch_root(branch)}")
    if root == path.rstrip("/"):
        raise CorruptDataError(
            "a branch is not where its name says; was its folder copied?",
            uri=location.uri,
            branch=branch,
        )
    return TableLocation.open(root + mark + query, location.storage_options, location.base_options)


def branch_location(main: TableLocation, branch: str | None) -> TableLocation:
    """Return where a branch is; None and `main` are the main table itself."""
    if branch is None or branch == MAIN:
        return main
    return replace(main.below(branch_root(check_branch_name(branch))), main=main)


def open_reference(main: TableLocation, reference: Reference) -> Snapshot:
    """Open what a reference means: a version of the main branch, a tag, or a branch."""
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
    """Open the last version that was committed at a moment or before."""
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
    return _listed(main, TAGS, _read_tag)


def get_tag(main: TableLocation, name: str) -> Tag:
    """Return a tag."""
    check_tag_name(name)
    try:
        return _read_tag(main, tag_path(name))
    except ObjectNotFoundError as error:
        raise _no_ref(main, "tag", name, list_tags(main)) from error


def create_tag(main: TableLocation, name: str, version: int, branch: str | None = None) -> Tag:
    """Give a name to a version of a branch."""
    _check_changeable(main)
    check_tag_name(name)
    with _tag_of(main, version, branch, Tag(None, version, 0)) as moved:
        tag = replace(moved, created_at_ns=moved.updated_at_ns)
        try:
            main.store.put_if_absent(tag_path(name), with_checksum(render_tag(tag)))
        except AlreadyExistsError as error:
            raise RefExistsError(f"tag {name} already exists", uri=main.uri) from error
    return tag


def update_tag(main: TableLocation, name: str, version: int, branch: str | None = None) -> Tag:
    """Move a tag to another version."""
    _check_changeable(main)
    with _tag_of(main, version, branch, get_tag(main, name)) as tag:
        main.store.put(tag_path(name), with_checksum(render_tag(tag)))
    return tag


def replace_tag_metadata(main: TableLocation, name: str, metadata: Mapping[str, str]) -> Tag:
    """Replace what is noted of a tag."""
    _check_changeable(main)
    tag = replace(get_tag(main, name), metadata=dict(metadata))
    main.store.put(tag_path(name), with_checksum(render_tag(tag)))
    return tag


def delete_tag(main: TableLocation, name: str) -> None:
    """Take a name away; the version stays until cleaning up finds it."""
    _check_changeable(main)
    get_tag(main, name)
    main.store.delete(tag_path(name))


def list_branches(main: TableLocation) -> dict[str, Branch]:
    """Return the branches by name, without the main one."""
    return _listed(main, BRANCHES, _read_branch)


def get_branch(main: TableLocation, name: str) -> Branch:
    """Return a branch."""
    check_branch_name(name)
    found = _branch_or_none(main, name)
    if found is None:
        raise _no_ref(main, "branch", name, list_branches(main))
    return found


def _no_ref(main: TableLocation, what: str, name: str, known: Iterable[str]) -> RefNotFoundError:
    hint = similar_names(name, list(known))
    return RefNotFoundError(
        f"Ref not found error: {what} {name} does not exist{hint}", uri=main.uri
    )


def create_branch(main: TableLocation, name: str, source: Snapshot) -> Snapshot:
    """Start a branch at a version of the main table or of another branch."""
    _check_changeable(main)
    check_new_branch_name(name)
    if _branch_or_none(main, name) is not None:
        raise RefExistsError(f"branch {name} already exists", uri=main.uri)
    parent = source.manifest.branch
    above = () if parent is None else get_branch(main, parent).identifier
    with held(source.location, source.version):
        return _create_branch(main, name, source, above)


def _create_branch(
    main: TableLocation, name: str, source: Snapshot, above: tuple[BranchStep, ...] | None
) -> Snapshot:
    try:
        created = shallow_clone(source, branch_location(main, name), branch=name)
    except AlreadyExistsError as error:
        raise RefExistsError(
            "a branch of that name is being made, or was half made or half deleted; "
            "delete it unless a writer is creating it",
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
    """Replace what is noted of a branch."""
    _check_changeable(main)
    branch = replace(get_branch(main, name), metadata=dict(metadata))
    main.store.put(branch_path(name), with_checksum(render_branch(branch)))
    return branch


def delete_branch(main: TableLocation, name: str) -> None:
    """Remove a branch with its files, unless a tag or another branch needs them.

    The name goes first; a branch without a name that is left by an interruption can be deleted
    again.
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
        # All but its own folders are files of the other branch.
        for inner in TABLE_FOLDERS:
            main.store.delete_folder(f"{folder}/{inner}")
    else:
        _delete_around(main, folder, [branch_root(other) for other in branches if other != name])
    while folder:
        main.store.remove_if_empty(folder)
        folder = parent(folder)


def _delete_around(main: TableLocation, folder: str, others: list[str]) -> None:
    """Delete a folder but for the folders of other branches that are below it."""
    nested = [root for root in others if root.startswith(f"{folder}/")]
    if not nested:
        main.store.delete_folder(folder)
        return
    listing = main.store.list_delimited(folder)
    main.store.delete_many([info.path for info in listing.objects])
    for inner in listing.folders:
        if inner not in nested:
            _delete_around(main, inner, nested)


def _check_changeable(main: TableLocation) -> None:
    """Refuse to change the names of a table that needs a newer release."""
    latest = latest_snapshot(main)
    if latest is not None:
        latest.check_changeable()


@contextmanager
def _tag_of(main: TableLocation, version: int, branch: str | None, before: Tag) -> Iterator[Tag]:
    """Yield a tag moved to a version, which must exist and stays until the tag was stored."""
    if branch == MAIN:
        branch = None
    if branch is not None:
        get_branch(main, branch)
    location = branch_location(main, branch)
    try:
        with held(location, version) as entry:
            yield replace(
                before,
                branch=branch,
                version=version,
                manifest_bytes=entry.size,
                updated_at_ns=surroundings.time_ns(),
            )
    except VersionRemovedError:
        raise  # it is there, and says why nothing can refer to it
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


def _listed(
    main: TableLocation, folder: str, read: Callable[[TableLocation, str], T]
) -> dict[str, T]:
    """Return what the names in a folder mean, without those that are taken away meanwhile."""
    found = {}
    for info in main.store.list(folder):
        name = parse_ref_name(last_part(info.path))
        if info.size and name is not None:
            with suppress(ObjectNotFoundError):
                found[name] = read(main, info.path)
    return found


def _read_tag(main: TableLocation, path: str) -> Tag:
    data = _read(main, path)
    with corrupt_within(path=path, uri=main.uri):
        return parse_tag(data)


def _read_branch(main: TableLocation, path: str) -> Branch:
    data = _read(main, path)
    with corrupt_within(path=path, uri=main.uri):
        return parse_branch(data)


def _read(main: TableLocation, path: str) -> bytes:
    """Return the bytes of a name; a file without any is of one who died while it was made."""
    data = main.store.read(path)
    if not data:
        raise ObjectNotFoundError("the name was never given", path=path, uri=main.uri)
    return data
