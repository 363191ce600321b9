"""Which versions of files a table has: one that new files take, and perhaps others beside it.

What an operation brings, and what is made of it:

    table 2.1, files 2.1     nothing to say
    table 2.1, files 2.0     flagged as mixed, from now on
    table 0.1, files 2.0     refused, as are 0.1 files in other tables
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lancelet.errors import InvalidInputError
from lancelet.format.flags import Feature
from lancelet.format.fragment import DataFile, Fragment
from lancelet.format.manifest import Manifest
from lancelet.format.operation import (
    Append,
    DataReplacement,
    Merge,
    Operation,
    Overwrite,
    Rewrite,
    Update,
)
from lancelet.format.version import FileVersion
from lancelet.values import replace


class MixedVersionsError(InvalidInputError, OSError):
    """Files of 0.1 and of later versions were to be in one table."""


def with_file_versions(manifest: Manifest, operation: Operation) -> Manifest:
    """Return a manifest that says which versions its files have, after an operation."""
    own = manifest.data_version
    others = {file.version for file in _files_of(operation)} - {own}
    if not others:
        return manifest
    if FileVersion.V0_1 in {own, *others}:
        raise MixedVersionsError(
            "All data files must have the same version: 0.1 cannot be in one table with others",
            table=own.value,
            files=sorted(version.value for version in others),
        )
    mixed = int(Feature.MIXED_FILE_VERSIONS)
    return replace(
        manifest,
        reader_flags=manifest.reader_flags | mixed,
        writer_flags=manifest.writer_flags | mixed,
    )


def _files_of(operation: Operation) -> Iterator[DataFile]:
    """Yield the files that an operation brings, and perhaps some that were there."""
    match operation:
        case Append(fragments=brought) | Overwrite(fragments=brought) | Merge(fragments=brought):
            yield from _files(brought)
        case Update(updated_fragments=updated, new_fragments=new):
            yield from _files((*updated, *new))
        case Rewrite(groups=groups):
            yield from _files(fragment for group in groups for fragment in group.new_fragments)
        case DataReplacement(replacements=replacements):
            yield from (replacement.new_file for replacement in replacements)


def _files(fragments: Iterable[Fragment]) -> Iterator[DataFile]:
    return (file for fragment in fragments for file in fragment.files)
