"""A dataset beside a model of it: how they are opened and compared, without what changes them.

After each step every implementation has to read what the model says, row for row alike and with
the same row ids, must find the dataset sound, and one of the old versions must read as it did
when it was the latest; in the end, all of them. What the model leaves open, such as the order of
rows, is compared between implementations only.
"""

from __future__ import annotations

import tempfile
from types import ModuleType
from typing import Any, ClassVar, Final

import pyarrow as pa
from hypothesis.stateful import RuleBasedStateMachine, invariant

from lancelet.values import dataclass
from tests.kit.table_model import (
    COLUMNS,
    CONDITIONS,
    ID,
    Condition,
    Nulls,
    Row,
    TableModel,
)

ROW_VERSIONS: Final = ("_row_created_at_version", "_row_last_updated_at_version")


@dataclass(frozen=True, slots=True)
class Past:
    """What a version held when it was the latest of its branch.

    Versions of one generation have the same columns, and one follows from the other.
    """

    model: TableModel
    row_ids: dict[int, int]
    stable: bool
    generation: int


class ComparedDataset(RuleBasedStateMachine):
    """A dataset and a model of it, which are compared after every step.

    Attributes:
        implementations: The modules that may do a step, ours first; all of them read.
        readers: The modules that read after each step.
    """

    implementations: ClassVar[tuple[ModuleType, ...]]
    readers: ClassVar[tuple[ModuleType, ...]]

    def __init__(self, file_version: str, *, stable: bool) -> None:
        """Begin with no dataset, of a file version, and with stable row ids or without."""
        super().__init__()
        self.file_version = file_version
        self.stable = stable
        self.folder = tempfile.TemporaryDirectory()
        self.uri = f"{self.folder.name}/t.lance"
        self.model = TableModel(nulls=Nulls(file_version != "0.1", file_version >= "2.1"))
        self.branch: str | None = None
        self.past: dict[tuple[str | None, int], Past] = {}
        self.tags: dict[str, tuple[str | None, int]] = {}
        self.names = 0
        self.generation = 0
        self.steps = 0
        self.ours, *_ = self.implementations

    def open(self, implementation: ModuleType, version: int | None = None) -> Any:
        """Return the dataset of the branch, at its latest version or another."""
        dataset = implementation.dataset(self.uri)
        if self.branch is None and version is None:
            return dataset
        return dataset.checkout_version((self.branch, version))

    def by(self, number: int) -> Any:
        """Return the dataset as the implementation sees it that a number picks."""
        return self.open(self.implementation(number))

    def implementation(self, number: int) -> ModuleType:
        """Return the implementation that a number picks."""
        return self.implementations[number % len(self.implementations)]

    def pick(self, number: int, names: list[Any]) -> Any:
        """Return one of some names, or None if there are none."""
        return names[number % len(names)] if names else None

    def own_past(self) -> dict[int, Past]:
        """Return the versions of the branch."""
        return {
            version: past for (branch, version), past in self.past.items() if branch == self.branch
        }

    def others(self) -> list[str]:
        """Return the columns but the id."""
        return [name for name in self.model.types if name != ID]

    def conditions(self) -> list[Condition]:
        """Return the filters that can be asked now."""
        return [each for each in CONDITIONS if self.model.has(each)]

    def new_name(self, number: int) -> str:
        """Return a name for a column: one that was dropped, or a new one."""
        gone = [name for name in COLUMNS if name not in self.model.types]
        if gone and number % 2:
            return gone[0]
        self.names += 1
        return f"c{self.names}"

    def rows_table(self, rows: list[Row]) -> pa.Table:
        """Return rows of the model as a table."""
        return pa.Table.from_pylist(rows, self.model.schema(rows[0]))

    @invariant()
    def reads_as_the_model_says(self) -> None:
        """Compare all readers with the model and with one another, and an old version."""
        self.steps += 1
        ours = self.open(self.ours)
        expected = self.model.table()
        columns = [*self.model.types, *(ROW_VERSIONS if self.stable else ())]
        found = ours.to_table(columns=columns, with_row_id=True)
        assert ours.schema.equals(expected.schema), (ours.schema, expected.schema)
        plain = found.select(expected.column_names).sort_by(ID)
        assert plain.to_pylist() == expected.to_pylist()
        assert ours.count_rows() == len(self.model.rows)
        findings = [f for f in ours.check("indices") if f.severity.value != "note"]
        assert findings == []
        for reader in self.readers:
            theirs = self.open(reader)
            theirs.validate()
            assert theirs.version == ours.version
            read = theirs.to_table(columns=columns, with_row_id=True)
            assert read.equals(found), (read.to_pylist(), found.to_pylist())
        self.filters_agree(ours)
        row_ids = dict(zip(found[ID].to_pylist(), found["_rowid"].to_pylist(), strict=True))
        for past in list(self.own_past().values())[-1:]:
            if self.stable and past.generation == self.generation:
                kept = row_ids.keys() & past.row_ids.keys()
                assert {key: row_ids[key] for key in kept} == {
                    key: past.row_ids[key] for key in kept
                }
        self.past[self.branch, ours.version] = Past(
            self.model.copy(), row_ids, self.stable, self.generation
        )
        places = list(self.past)
        self.old_version_reads_as_it_did(*places[self.steps % len(places)])

    def filters_agree(self, ours: Any) -> None:
        """Compare the answers to filters, which may come from indices, with the model's."""
        conditions = self.conditions()
        for number in (self.steps, 3 * self.steps + 1):
            condition = conditions[number % len(conditions)]
            expected = self.model.matching(condition)
            for dataset in (ours, *(self.open(reader) for reader in self.readers)):
                found = dataset.to_table(columns=[ID], filter=condition.sql)[ID]
                assert sorted(found.to_pylist()) == expected, (type(dataset), condition.sql)

    def old_version_reads_as_it_did(self, branch: str | None, version: int) -> None:
        """Compare an old version with what it was."""
        past = self.past[branch, version]
        dataset = self.ours.dataset(self.uri).checkout_version((branch, version))
        found = dataset.to_table(with_row_id=True).sort_by(ID)
        assert found.drop(["_rowid"]).to_pylist() == past.model.table().to_pylist()
        assert found["_rowid"].to_pylist() == [past.row_ids[key] for key in sorted(past.row_ids)]

    def teardown(self) -> None:
        """Compare every version and every tag with what it was."""
        try:
            for place in self.past:
                self.old_version_reads_as_it_did(*place)
            for name, (branch, version) in self.tags.items():
                tag = self.ours.dataset(self.uri).tags.list()[name]
                assert (tag["branch"], tag["version"]) == (branch, version)
        finally:
            self.folder.cleanup()
