"""A state machine that applies the same changes to a dataset and to a model of it.

    class Machine(DatasetMachine):
        implementations = (lancelet, other)     modules that have the API of pylance, ours first
        readers = (other,)

Each rule draws the implementation that runs a step, so a test can list one or alternate between
several. A rule applies a change to the dataset and the same change to the model.
`compared_dataset` checks both after each step.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from tests.kit.compared_dataset import ComparedDataset
from tests.kit.table_model import COLUMNS, ID, WIDTHS, TableModel

IDS: Final = st.lists(st.integers(0, 29), min_size=1, max_size=8, unique=True)
SEEDS: Final = st.integers(0, 6)
SMALL: Final = st.integers(0, 40)
INDEX_KINDS: Final = ("BTREE", "BITMAP", "ZONEMAP", "BLOOMFILTER")
FRAGMENT_REUSE: Final = "__lance_frag_reuse"


class DatasetMachine(ComparedDataset):
    """Applies the same changes to a dataset and its model."""

    # --- rows ---------------------------------------------------------------------------------

    @initialize(ids=IDS, seed=SEEDS, who=SMALL)
    def create(self, ids: list[int], seed: int, who: int) -> None:
        """Write the first version."""
        rows = self.model.new_rows(ids, seed)
        self.model.insert(rows)
        self.implementation(who).write_dataset(
            self.rows_table(rows),
            self.uri,
            data_storage_version=self.file_version,
            enable_stable_row_ids=self.stable,
            max_rows_per_file=3,
        )

    @rule(ids=IDS, seed=SEEDS, who=SMALL, left_out=SMALL)
    def append(self, ids: list[int], seed: int, who: int, left_out: int) -> None:
        """Append rows, sometimes with a subset of the columns."""
        fresh = [key for key in ids if key not in self.model.rows]
        names = list(self.model.types)
        if self.model.nulls.values and left_out % 3 == 0:
            may_lack = [n for n in self.others() if self.may_be_null(n)]
            lacking = self.pick(left_out, may_lack)
            names = [name for name in names if name != lacking]
        if fresh:
            rows = self.model.new_rows(fresh, seed, names)
            implementation = self.implementation(who)
            implementation.write_dataset(
                self.rows_table(rows), self.by(who), mode="append", max_rows_per_file=4
            )
            self.model.insert(rows)

    @rule(ids=IDS, seed=SEEDS, who=SMALL, number=SMALL)
    def append_to_an_old_version(self, ids: list[int], seed: int, who: int, number: int) -> None:
        """Append with an outdated handle, if the columns have not changed since."""
        fresh = [key for key in ids if key not in self.model.rows]
        version = self.pick(
            number,
            [v for v, past in self.own_past().items() if past.generation == self.generation],
        )
        if fresh and version is not None:
            rows = self.model.new_rows(fresh, seed)
            implementation = self.implementation(who)
            old = self.open(implementation, version)
            implementation.write_dataset(self.rows_table(rows), old, mode="append")
            self.model.insert(rows)

    def may_be_null(self, name: str) -> bool:
        """Return whether all values of a column may be null."""
        nulls = self.model.nulls
        return nulls.structs if pa.types.is_struct(self.model.types[name]) else nulls.values

    @rule(ids=IDS, seed=SEEDS, who=SMALL)
    def overwrite(self, ids: list[int], seed: int, who: int) -> None:
        """Overwrite the table with rows of the initial columns."""
        self.model = TableModel(nulls=self.model.nulls)
        self.generation += 1
        rows = self.model.new_rows(ids, seed)
        self.implementation(who).write_dataset(
            self.rows_table(rows),
            self.by(who),
            mode="overwrite",
            data_storage_version=self.file_version,
            max_rows_per_file=5,
        )
        self.model.insert(rows)

    @rule(number=SMALL, who=SMALL)
    def delete(self, number: int, who: int) -> None:
        """Delete the rows that match a condition."""
        condition = self.pick(number, self.conditions())
        found = self.by(who).delete(condition.sql)
        gone = self.model.matching(condition)
        self.model.delete(gone)
        assert found["num_deleted_rows"] == len(gone)

    @rule(who=SMALL)
    def truncate(self, who: int) -> None:
        """Delete all rows."""
        self.by(who).truncate_table()
        self.model.delete(list(self.model.rows))

    @rule(number=SMALL, column=SMALL, who=SMALL)
    def update(self, number: int, column: int, who: int) -> None:
        """Update a column in the rows that match a condition, or in all rows."""
        condition = self.pick(number, [*self.conditions(), None])
        name = self.pick(
            column, [n for n in self.others() if pa.types.is_primitive(self.model.types[n])]
        )
        if name is None:
            return
        ids = self.model.matching(condition)
        where = None if condition is None else condition.sql
        found = self.by(who).update({name: f"{name} + 1"}, where=where)
        assert found["num_rows_updated"] == len(ids)
        self.model.set_values(ids, name, lambda row: None if row[name] is None else row[name] + 1)

    @rule(number=SMALL)
    def update_leaf(self, number: int) -> None:
        """Update a field of a struct; pylance does not support this."""
        if self.model.types.get("p") != COLUMNS["p"]:
            return
        condition = self.pick(number, [*self.conditions(), None])
        ids = self.model.matching(condition)
        where = None if condition is None else condition.sql
        self.open(self.ours).update({"p.x": f"{number}"}, where=where)
        self.model.set_values(
            ids, "p", lambda row: None if row["p"] is None else {**row["p"], "x": number}
        )

    @rule(
        ids=IDS,
        seed=SEEDS,
        who=SMALL,
        matched=st.sampled_from(["keep", "update", "update_if", "delete"]),
        inserts=st.booleans(),
        unmatched=st.sampled_from(["keep", "keep", "delete", "delete_if"]),
        left_out=SMALL,
    )
    def merge_insert(
        self,
        ids: list[int],
        seed: int,
        who: int,
        matched: str,
        inserts: bool,
        unmatched: str,
        left_out: int,
    ) -> None:
        """Merge rows by id with any clauses, sometimes with a subset of the columns."""
        if matched == "keep" and unmatched == "keep" and not inserts:
            return
        names = list(self.model.types)
        only_updates = matched == "update" and not inserts and unmatched == "keep"
        is_partial = only_updates and left_out % 2 == 1 and len(names) > 2
        if is_partial:
            lacking = self.pick(left_out, self.others())
            names = [name for name in names if name != lacking]
        if matched == "delete" and unmatched != "keep":
            who = 0  # pylance fails here with an internal error.
        rows = self.model.new_rows(ids, seed, names)
        merge = self.by(who).merge_insert(ID)
        model, existing_ids = self.model, set(self.model.rows)
        match matched:
            case "update":
                merge = merge.when_matched_update_all()
            case "update_if":
                merge = merge.when_matched_update_all("source.id % 2 = 0")
            case "delete":
                merge = merge.when_matched_delete()
        if inserts:
            merge = merge.when_not_matched_insert_all()
        if unmatched == "delete":
            merge = merge.when_not_matched_by_source_delete()
        elif unmatched == "delete_if":
            merge = merge.when_not_matched_by_source_delete("id < 9")
        if is_partial and left_out % 3 == 0:
            merge = merge.write_mode("rewrite_columns")
        merge.execute(self.rows_table(rows))
        for row in rows:
            key = row[ID]
            if key not in existing_ids:
                if inserts:
                    model.insert([row])
            elif matched == "delete":
                model.delete([key])
            elif matched == "update" or (matched == "update_if" and key % 2 == 0):
                model.rows[key] = {**model.rows[key], **row}
        for key in existing_ids - set(ids):
            if unmatched == "delete" or (unmatched == "delete_if" and key < 9):
                model.delete([key])

    # --- columns ------------------------------------------------------------------------------

    @rule(number=SMALL, who=SMALL)
    def add_column(self, number: int, who: int) -> None:
        """Add a column that is computed, given by row, joined, or null."""
        name, dataset = self.new_name(number), self.by(who)
        self.generation += 1
        match number % 4:
            case 0:
                dataset.add_columns({name: f"id + {number}"})
                self.model.add_column(name, pa.int64(), lambda row: row[ID] + number)
            case 1:
                order = dataset.to_table(columns=[ID])[ID].to_pylist()
                values = pa.table({name: pa.array([key * 2 for key in order], pa.int32())})
                dataset.add_columns(values.to_reader())
                self.model.add_column(name, pa.int32(), lambda row: row[ID] * 2)
            case 2 if self.model.nulls.values:
                dataset.add_columns(pa.field(name, pa.string()))
                self.model.add_column(name, pa.string(), lambda _: None)
            case 3 if self.model.nulls.values:
                keys = [-1, *(key for key in self.model.rows if key % 2)]
                dataset.merge(
                    pa.table(
                        {
                            ID: pa.array(keys, pa.int64()),
                            name: pa.array([str(key) for key in keys], pa.string()),
                        }
                    ),
                    ID,
                )
                self.model.add_column(
                    name, pa.string(), lambda row: str(row[ID]) if row[ID] % 2 else None
                )

    @rule(number=SMALL, who=SMALL)
    def rename_column(self, number: int, who: int) -> None:
        """Rename a column."""
        name, target = self.pick(number, self.others()), self.new_name(0)
        if name is not None:
            self.by(who).alter_columns({"path": name, "name": target})
            self.model.rename_column(name, target)
            self.generation += 1

    @rule(number=SMALL, width=SMALL, who=SMALL)
    def cast_column(self, number: int, width: int, who: int) -> None:
        """Change the width of a numeric column that has no index."""
        indices = self.open(self.ours).describe_indices()
        indexed = {name for index in indices for name in index.field_names}
        free = [name for name in self.others() if name not in indexed]
        numbers = [name for name in free if pa.types.is_integer(self.model.types[name])]
        name, target = self.pick(number, numbers), self.pick(width, list(WIDTHS))
        if name is not None:
            self.by(who).alter_columns({"path": name, "data_type": target})
            self.model.types[name] = target
            self.generation += 1

    @rule(number=SMALL, who=SMALL)
    def drop_column(self, number: int, who: int) -> None:
        """Drop a column."""
        name = self.pick(number, self.others())
        if name is not None and len(self.model.types) > 2:
            self.by(who).drop_columns([name])
            self.model.drop_column(name)
            self.generation += 1

    @rule(number=SMALL, fragment_number=SMALL)
    def replace_column(self, number: int, fragment_number: int) -> None:
        """Replace a column of one fragment with a DataReplacement commit."""
        dataset = self.open(self.ours)
        name = self.pick(number, self.others())
        fragment = self.pick(fragment_number, dataset.get_fragments())
        if name is None or fragment is None:
            return
        ids = fragment.to_table(columns=[ID])[ID].to_pylist()
        if not ids:
            return
        rows = self.model.new_rows(ids, number, [ID, name])
        values = self.rows_table(rows).select([name])
        dataset.replace_columns({fragment.fragment_id: values})
        for row in rows:
            self.model.rows[row[ID]][name] = row[name]

    # --- upkeep -------------------------------------------------------------------------------

    @rule(who=SMALL, size=st.sampled_from([2, 7, 1000]), defer=st.booleans())
    def compact(self, who: int, size: int, defer: bool) -> None:
        """Compact small fragments and deleted rows."""
        self.by(who).optimize.compact_files(
            target_rows_per_fragment=size,
            defer_index_remap=defer and not self.stable,
        )

    @rule(who=SMALL, keep=st.integers(1, 4))
    def clean_up(self, who: int, keep: int) -> None:
        """Delete old versions without tags or branches."""
        self.by(who).cleanup_old_versions(retain_versions=keep, error_if_tagged_old_versions=False)
        left = {entry["version"] for entry in self.open(self.ours).versions()}
        for branch, version in list(self.past):
            if branch == self.branch and version not in left:
                assert (branch, version) not in self.tags.values()
                del self.past[branch, version]

    @rule(name=st.sampled_from("abc"), number=SMALL, who=SMALL)
    def tag(self, name: str, number: int, who: int) -> None:
        """Create, move or delete a tag."""
        dataset = self.by(who)
        target = self.pick(number, list(self.past))
        if name not in self.tags:
            dataset.tags.create(name, target)
            self.tags[name] = target
        elif number % 3:
            dataset.tags.update(name, target)
            self.tags[name] = target
        else:
            dataset.tags.delete(name)
            del self.tags[name]

    @rule(number=SMALL, who=SMALL)
    def restore(self, number: int, who: int) -> None:
        """Restore an old version, but not one from before the migration to stable row ids."""
        own = self.own_past()
        version = self.pick(number, [v for v, past in own.items() if past.stable == self.stable])
        if version is not None:
            self.open(self.implementation(who), version).restore()
            self.model = own[version].model.copy()
            self.generation += 1

    @rule(number=SMALL, who=SMALL)
    def branch_off(self, number: int, who: int) -> None:
        """Create a branch at the latest version, or switch to an existing branch."""
        branches: list[str | None] = [None, *dict.fromkeys(b for b, _ in self.past if b)]
        if len(branches) < 3 and number % 2:
            name = f"b{len(branches)}"
            self.by(who).create_branch(name)
            self.branch = name
            return
        self.branch = self.pick(number, branches)
        latest = max(version for branch, version in self.past if branch == self.branch)
        past = self.past[self.branch, latest]
        self.model, self.stable = past.model.copy(), past.stable
        self.generation = past.generation

    @rule(who=SMALL, key=st.sampled_from("xyz"), value=st.sampled_from(["1", "2", None]))
    def configure(self, who: int, key: str, value: str | None) -> None:
        """Change a setting."""
        found = self.by(who).update_config({key: value})
        assert value is None or found[key] == value

    @rule(number=SMALL, kind=st.sampled_from(INDEX_KINDS), who=SMALL)
    def create_index(self, number: int, kind: str, who: int) -> None:
        """Create or replace an index."""
        names = [n for n in (ID, "n", "s", "tags") if n in self.model.types]
        name = self.pick(number, names)
        if pa.types.is_list(self.model.types[name]):
            kind = "LABEL_LIST"
        self.by(who).create_scalar_index(name, kind)

    @rule(who=SMALL, merge=st.sampled_from([None, 0, 1, 10]))
    def optimize_indices(self, who: int, merge: int | None) -> None:
        """Index the unindexed rows."""
        options = {} if merge is None else {"num_indices_to_merge": merge}
        self.by(who).optimize.optimize_indices(**options)

    @rule(number=SMALL, who=SMALL)
    def drop_index(self, number: int, who: int) -> None:
        """Drop an index."""
        listed = self.open(self.ours).describe_indices()
        names = sorted({index.name for index in listed} - {FRAGMENT_REUSE})
        name = self.pick(number, names)
        if name is not None:
            self.by(who).drop_index(name)

    @precondition(lambda self: not self.stable and self.file_version != "0.1")
    @rule()
    def migrate_to_stable_row_ids(self) -> None:
        """Migrate to stable row ids, unless the remapping of indices is deferred."""
        dataset = self.open(self.ours)
        if all(index.name != FRAGMENT_REUSE for index in dataset.describe_indices()):
            dataset.migrate_to_stable_row_ids()
            self.stable = True
            self.generation += 1
