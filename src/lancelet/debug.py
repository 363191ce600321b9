"""What a dataset is made of, as text to look at, under pylance's name for the module."""

from __future__ import annotations

from dataclasses import dataclass

from lancelet.dataset.dataset import LanceDataset
from lancelet.dataset.metadata import FragmentMetadata, fragment_from_user
from lancelet.dataset.outline import outline
from lancelet.errors import VersionNotFoundError
from lancelet.format.fragment import Fragment
from lancelet.format.schema import Schema


@dataclass(frozen=True, slots=True)
class FragmentOutline:
    """A fragment beside the fields that each of its files has."""

    fragment: Fragment
    schemas: tuple[Schema, ...]


def format_schema(dataset: LanceDataset) -> str:
    """Return the fields with their ids."""
    return outline(dataset.snapshot.schema)


def format_manifest(dataset: LanceDataset) -> str:
    """Return everything that the manifest says."""
    return outline(dataset.snapshot.manifest)


def format_fragment(fragment: FragmentMetadata, dataset: LanceDataset) -> str:
    """Return what a fragment is made of, with the fields of its files."""
    stored, schema = fragment_from_user(fragment), dataset.snapshot.schema
    schemas = tuple(schema.project_ids(file.fields) for file in stored.files)
    return outline(FragmentOutline(stored, schemas))


def list_transactions(dataset: LanceDataset, max_transactions: int = 10) -> list[str]:
    """Return what was committed last up to the version that is looked at, newest first."""
    found: list[str] = []
    snapshot = dataset.snapshot
    while len(found) < max_transactions:
        if snapshot.transaction is not None:
            found.append(outline(snapshot.transaction))
        if snapshot.version <= 1:
            break
        try:
            snapshot = dataset.checkout_version(snapshot.version - 1).snapshot
        except VersionNotFoundError:
            break
    return found
