"""Metadata of a dataset as text. Mirrors the pylance module of this name."""

from __future__ import annotations

from dataclasses import fields

from lancelet.dataset.dataset import LanceDataset
from lancelet.dataset.show.outline import Titled, Wrapped, outline
from lancelet.dataset.write.metadata import FragmentMetadata, fragment_from_user
from lancelet.errors import VersionNotFoundError
from lancelet.format.field import Field
from lancelet.format.schema import Schema


def format_schema(dataset: LanceDataset) -> str:
    """Format the fields of the schema with their ids."""
    return outline(_schema(dataset.snapshot.schema))


def format_manifest(dataset: LanceDataset) -> str:
    """Format the manifest."""
    manifest = dataset.snapshot.manifest
    members = {each.name: getattr(manifest, each.name) for each in fields(manifest)}
    writer = manifest.writer_version
    members["schema"] = _schema(manifest.schema)
    members["writer_version"] = None if writer is None else Wrapped("Some", writer)
    return outline(Titled("Manifest", members))


def format_fragment(fragment: FragmentMetadata, dataset: LanceDataset) -> str:
    """Format the metadata of a fragment, with the fields of its files."""
    stored, schema = fragment_from_user(fragment), dataset.snapshot.schema
    files = [
        Titled(
            "PrettyPrintableDataFile",
            {
                "path": file.path,
                "fields": file.fields,
                "column_indices": file.column_indices,
                "schema": _schema(schema.project_ids(file.fields)),
                "major_version": file.major_version,
                "minor_version": file.minor_version,
            },
        )
        for file in stored.files
    ]
    shown = {
        "id": stored.id,
        "files": files,
        "deletion_file": stored.deletion_file,
        "physical_rows": stored.physical_rows,
    }
    return outline(Titled("PrettyPrintableFragment", shown))


def list_transactions(dataset: LanceDataset, max_transactions: int = 10) -> list[str]:
    """Return the latest transactions up to the checked-out version, newest first."""
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


def _schema(schema: Schema) -> Titled:
    shown = [_field(field) for field in schema.fields]
    return Titled("Schema", {"fields": shown, "metadata": schema.metadata})


def _field(field: Field) -> Titled:
    members = {each.name: getattr(field, each.name) for each in fields(field)}
    first = {name: members.pop(name) for name in ("name", "id", "parent_id")}
    logical_type = Wrapped("LogicalType", members.pop("logical_type"))
    children = [_field(child) for child in members.pop("children")]
    own = {**first, "logical_type": logical_type, **members, "children": children}
    return Titled("Field", own)
