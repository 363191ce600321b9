"""Any sequence of changes to columns leaves the rows and types that a plain model says.

The model is a list of dicts and the types of their entries; it knows nothing of files, fragments
or field ids. After every change both implementations read what it says, and in the end every
version still reads as it did when it was the latest.
"""

import copy
import tempfile

import lance
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lancelet

KINDS = [(version, stable) for version in ("0.1", "2.0", "2.1", "2.2") for stable in (False, True)]
KINDS.remove(("0.1", True))
WIDTHS = [pa.int16(), pa.int32(), pa.int64()]
CHANGES = st.sampled_from(
    [
        "add",
        "add_null",
        "add_rows",
        "add_nested",
        "join",
        "rename",
        "rename_nested",
        "cast",
        "cast_nested",
        "drop",
        "drop_nested",
        "delete",
        "append",
        "compact",
        "restore",
    ]
)
STEPS = st.lists(st.tuples(CHANGES, st.integers(0, 7)), min_size=3, max_size=9)


class Model:
    """The rows, and the type of each column; structs and items of lists as dicts of types."""

    def __init__(self, version):
        has_nulls = version in {"2.1", "2.2"}
        self.version = version
        self.next_name = 0
        self.types = {"id": pa.int64(), "s": {"x": pa.int64(), "y": pa.int64()}}
        self.rows = [
            {"id": i, "s": None if has_nulls and i % 4 == 1 else {"x": i, "y": 2 * i}}
            for i in range(7)
        ]
        if version != "0.1":
            self.types["l"] = {"x": pa.int64(), "y": pa.int64()}
            for i, row in enumerate(self.rows):
                items = [{"x": i, "y": j} for j in range(i % 3)]
                row["l"] = None if has_nulls and i == 5 else items

    def schema(self):
        def arrow(name, kind):
            if not isinstance(kind, dict):
                return kind
            struct = pa.struct(list(kind.items()))
            return pa.list_(struct) if name == self.list_name() else struct

        return pa.schema([(name, arrow(name, kind)) for name, kind in self.types.items()])

    def list_name(self):
        """Return what the column of lists is called now: the one with lists in it."""
        for name, kind in self.types.items():
            if isinstance(kind, dict) and any(isinstance(row[name], list) for row in self.rows):
                return name
        return None

    def table(self):
        return pa.Table.from_pylist(self.rows, self.schema())

    def new_name(self):
        self.next_name += 1
        return f"n{self.next_name}"

    def pick(self, number, names):
        return sorted(names)[number % len(names)] if names else None

    def others(self):
        return [name for name in self.types if name != "id"]

    def nested(self):
        return [name for name, kind in self.types.items() if isinstance(kind, dict)]

    def structs(self, name):
        """Yield every struct below a column."""
        for row in self.rows:
            value = row[name]
            yield from value if isinstance(value, list) else [value] if value is not None else []

    def path(self, column, name):
        return f"{column}.item.{name}" if column == self.list_name() else f"{column}.{name}"


def change(dataset, model, kind, number):
    """Do one change to both; what cannot be done now is left out."""
    column = model.pick(number, model.others())
    nested = model.pick(number, model.nested())
    name = model.new_name()
    match kind:
        case "add":
            dataset.add_columns({name: f"id + {number}"})
            model.types[name] = pa.int64()
            for row in model.rows:
                row[name] = row["id"] + number
        case "add_null" if model.version != "0.1":
            dataset.add_columns(pa.field(name, pa.int32()))
            model.types[name] = pa.int32()
            for row in model.rows:
                row[name] = None
        case "add_rows":
            values = [number * place for place in range(len(model.rows))]
            dataset.add_columns(pa.table({name: values}))
            model.types[name] = pa.int64()
            for row, value in zip(model.rows, values, strict=True):
                row[name] = value
        case "join":
            keys = sorted({row["id"] for row in model.rows})
            dataset.merge(pa.table({"id": keys, name: [key * 3 for key in keys]}), "id")
            model.types[name] = pa.int64()
            for row in model.rows:
                row[name] = row["id"] * 3
        case "add_nested" if model.version in {"2.1", "2.2"} and nested:
            part = model.pick(number, model.types[nested])
            path = model.path(nested, name)
            is_list = nested == model.list_name()
            source = part if is_list else f"{nested}.{part}"
            dataset.add_columns({path: f"cast({source} as bigint) + {number}"})
            model.types[nested][name] = pa.int64()
            for struct in model.structs(nested):
                struct[name] = None if struct[part] is None else struct[part] + number
        case "rename" if column:
            dataset.alter_columns({"path": column, "name": name})
            model.types = {name if key == column else key: k for key, k in model.types.items()}
            for row in model.rows:
                row[name] = row.pop(column)
        case "rename_nested" if nested:
            part = model.pick(number, model.types[nested])
            dataset.alter_columns({"path": model.path(nested, part), "name": name})
            kinds = model.types[nested]
            model.types[nested] = {name if key == part else key: k for key, k in kinds.items()}
            for struct in model.structs(nested):
                struct[name] = struct.pop(part)
        case "cast" if column and column not in model.nested():
            wanted = WIDTHS[number % 3]
            dataset.alter_columns({"path": column, "data_type": wanted})
            model.types[column] = wanted
        case "cast_nested" if nested:
            part, wanted = model.pick(number, model.types[nested]), WIDTHS[number % 3]
            dataset.alter_columns({"path": model.path(nested, part), "data_type": wanted})
            model.types[nested][part] = wanted
        case "drop" if column:
            dataset.drop_columns([column])
            del model.types[column]
            for row in model.rows:
                del row[column]
        case "drop_nested" if nested and len(model.types[nested]) > 1:
            part = model.pick(number, model.types[nested])
            dataset.drop_columns([model.path(nested, part)])
            del model.types[nested][part]
            for struct in model.structs(nested):
                del struct[part]
        case "delete" if any(row["id"] != number for row in model.rows):
            dataset.delete(f"id = {number}")
            model.rows = [row for row in model.rows if row["id"] != number]
        case "append":
            added = copy.deepcopy(model.rows[:2])
            dataset.insert(pa.Table.from_pylist(added, model.schema()))
            model.rows += added
        case "compact":
            dataset.optimize.compact_files()


def check(dataset, model):
    expected = model.table()
    found = dataset.to_table()
    assert found.schema.equals(expected.schema)
    assert found.to_pylist() == [{name: row[name] for name in model.types} for row in model.rows]
    reference = lance.dataset(dataset.uri)
    reference.validate()
    assert reference.to_table().equals(found)


def run(version, stable, steps):
    model = Model(version)
    with tempfile.TemporaryDirectory() as folder:
        dataset = lancelet.write_dataset(
            model.table(),
            folder,
            data_storage_version=version,
            enable_stable_row_ids=stable,
            max_rows_per_file=4,
        )
        past = {}
        for kind, number in steps:
            if kind == "restore" and past:
                back, states = model.pick(number, past), past
                dataset = lancelet.dataset(folder, version=back)
                dataset.restore()
                names = model.next_name
                model = copy.deepcopy(states[back])
                model.next_name = names
            else:
                change(dataset, model, kind, number)
            check(dataset, model)
            past[dataset.version] = copy.deepcopy(model)
        for number, state in past.items():
            assert lancelet.dataset(folder, version=number).to_table().to_pylist() == (
                state.table().to_pylist()
            )


@pytest.mark.parametrize(("version", "stable"), KINDS)
@settings(max_examples=8)
@given(steps=STEPS)
def test_column_changes_match_the_model(version, stable, steps):
    run(version, stable, steps)


@pytest.mark.slow
@pytest.mark.parametrize(("version", "stable"), KINDS)
@settings(max_examples=150)
@given(steps=STEPS)
def test_many_column_changes_match_the_model(version, stable, steps):
    run(version, stable, steps)
