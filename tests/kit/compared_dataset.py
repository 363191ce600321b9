"""Open a dataset and its model, and compare them.

After each step, every implementation must read the rows of the model with the same row ids and
find no errors in the dataset, and one old version must read as when it was the latest. At the end,
all versions are checked. Properties that the model does not define, such as the row order, are
compared between implementations only.
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
    """The content of a version when it was the latest of its branch.

    Versions of one generation have the same columns and a common history.
    """

    model: TableModel
    row_ids: dict[int, int]
    stable: bool
    generation: int


class ComparedDataset(RuleBasedStateMachine):
    """A dataset and its model, compared after every step.

    Attributes:
        implementations: The modules that may run a step, lancelet first; all of them read.
        readers: The modules that read after each step.
    """

    implementations: ClassVar[tuple[ModuleType, ...]]
    readers: ClassVar[tuple[ModuleType, ...]]

    def __init__(self, file_version: str, *, stable: bool) -> None:
        """Start without a dataset; set the file version and whether row ids are stable."""
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
        """Return the dataset of the branch, at the latest or the given version."""
        dataset = implementation.dataset(self.uri)
        if self.branch is None and version is None:
            return dataset
        return dataset.checkout_version((self.branch, version))

    def by(self, number: int) -> Any:
        """Open the dataset with the implementation selected by a number."""
        return self.open(self.implementation(number))

    def implementation(self, number: int) -> ModuleType:
        """Return the implementation selected by a number."""
        return self.implementations[number % len(self.implementations)]

    def pick(self, number: int, names: list[Any]) -> Any:
        """Return one of the names, or None if there are none."""
        return names[number % len(names)] if names else None

    def own_past(self) -> dict[int, Past]:
        """Return the versions of the branch."""
        return {
            version: past for (branch, version), past in self.past.items() if branch == self.branch
        }

    def others(self) -> list[str]:
        """Return the columns without the id."""
        return [name for name in self.model.types if name != ID]

    def conditions(self) -> list[Condition]:
        """Return the filters that apply to the current columns."""
        return [each for each in CONDITIONS if self.model.has(each)]

    def new_name(self, number: int) -> str:
        """Return a column name, either of a dropped column or new."""
        gone = [name for name in COLUMNS if name not in self.model.types]
        if gone and number % 2:
            return gone[0]
        self.names += 1
        return f"c{self.names}"

    def rows_table(self, rows: list[Row]) -> pa.Table:
        """Return model rows as a table."""
        return pa.Table.from_pylist(rows, self.model.schema(rows[0]))

    @invariant()
    def reads_as_the_model_says(self) -> None:
        """Compare all readers with the model and with each other, and check an old version."""
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
                shared_keys = row_ids.keys() & past.row_ids.keys()
                assert {key: row_ids[key] for key in shared_keys} == {
                    key: past.row_ids[key] for key in shared_keys
                }
        self.past[self.branch, ours.version] = Past(
            self.model.copy(), row_ids, self.stable, self.generation
        )
        version_keys = list(self.past)
        self.old_version_reads_as_it_did(*version_keys[self.steps % len(version_keys)])

    def filters_agree(self, ours: Any) -> None:
        """Compare filtered reads, which may use indices, with the model."""
        conditions = self.conditions()
        for number in (self.steps, 3 * self.steps + 1):
            condition = conditions[number % len(conditions)]
            expected = self.model.matching(condition)
            for dataset in (ours, *(self.open(reader) for reader in self.readers)):
                found = dataset.to_table(columns=[ID], filter=condition.sql)[ID]
                assert sorted(found.to_pylist()) == expected, (type(dataset), condition.sql)

    def old_version_reads_as_it_did(self, branch: str | None, version: int) -> None:
        """Compare an old version with its recorded content."""
        past = self.past[branch, version]
        dataset = self.ours.dataset(self.uri).checkout_version((branch, version))
        found = dataset.to_table(with_row_id=True).sort_by(ID)
        assert found.drop(["_rowid"]).to_pylist() == past.model.table().to_pylist()
        assert found["_rowid"].to_pylist() == [past.row_ids[key] for key in sorted(past.row_ids)]

    def teardown(self) -> None:
        """Compare every version and every tag with its recorded content."""
        try:
            for version_key in self.past:
                self.old_version_reads_as_it_did(*version_key)
            for name, (branch, version) in self.tags.items():
                tag = self.ours.dataset(self.uri).tags.list()[name]
                assert (tag["branch"], tag["version"]) == (branch, version)
        finally:
            self.folder.cleanup()
