"""The laws of training: every row once, whoever reads it, and again from wherever a run stopped."""

import io
import itertools
import json
import subprocess
import sys
import threading

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lancelet
from lancelet import training
from lancelet.arrow import bfloat16_array
from lancelet.errors import FieldNotFoundError, InvalidInputError
from lancelet.training.loader import iter_steps
from lancelet.training.shuffle import ByClumps, ByRows, mixed_key, permuted

ROWS = 997


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    rows = pa.table(
        {
            "id": range(ROWS + 3),
            "group": [f"g{i % 7}" for i in range(ROWS + 3)],
            "x": np.arange(ROWS + 3, dtype=np.float32),
            "v": pa.array([[i, i + 0.5] for i in range(ROWS + 3)], pa.list_(pa.float32(), 2)),
            "tokens": [list(range(i, i + i % 5)) for i in range(ROWS + 3)],
            "blob": [str(i).encode() for i in range(ROWS + 3)],
        }
    )
    uri = str(tmp_path_factory.mktemp("training") / "t.lance")
    table = lancelet.write_dataset(rows, uri, max_rows_per_file=150, enable_stable_row_ids=True)
    table.delete("id in (5, 400, 999)")
    return table


def ids(loader):
    return [batch["id"].to_pylist() for batch in loader]


def flat(batches):
    return list(itertools.chain.from_iterable(batches))


@given(st.integers(1, 5000), st.integers(0, 2**63))
def test_a_computed_order_is_a_permutation(count, key):
    assert sorted(permuted(np.arange(count), count, key).tolist()) == list(range(count))


def test_the_order_is_the_same_in_every_release():
    assert ByRows(10, seed=1).at(np.arange(10), epoch=2).tolist() == [9, 1, 0, 8, 7, 2, 5, 6, 3, 4]


def test_places_lead_where_they_do_one_by_one_on_both_sides_of_a_block():
    order = ByRows(20_000, seed=3)
    for positions in (np.arange(8150, 8250), np.arange(8192, 8300), np.arange(19_900, 20_000)):
        one_by_one = [order.at(np.array([place]), epoch=1)[0] for place in positions]
        assert order.at(positions, epoch=1).tolist() == one_by_one
        assert permuted(positions, 20_000, mixed_key(3, 1)).tolist() == one_by_one


@given(st.lists(st.integers(1, 9), min_size=1, max_size=30), st.integers(0, 99))
def test_clumps_stay_together_and_every_row_comes_once(sizes, seed):
    starts = np.concatenate(([0], np.cumsum(sizes)))
    rows = ByClumps(starts, seed).at(np.arange(starts[-1]), epoch=0)
    assert sorted(rows.tolist()) == list(range(starts[-1]))
    breaks = np.count_nonzero(np.diff(rows) != 1)
    assert breaks <= len(sizes) - 1


@given(
    st.integers(1, 400),
    st.integers(1, 40),
    st.integers(1, 7),
    st.sampled_from(["pad", "cut"]),
)
def test_ranks_have_equal_steps_and_all_places_between_them(length, batch, world, uneven):
    slices = [list(iter_steps(length, 0, batch, rank, world, uneven)) for rank in range(world)]
    shapes = [[len(step.positions) for step in steps] for steps in slices]
    assert all(shape == shapes[0] for shape in shapes)
    seen = np.concatenate([step.positions for steps in slices for step in steps] or [[]])
    if uneven == "cut":
        assert len(np.unique(seen)) == len(seen)
        assert length - len(seen) < world
    else:
        assert set(seen.tolist()) == set(range(length))
        assert len(seen) - length < world


@settings(max_examples=25, deadline=None)
@given(
    shuffle=st.sampled_from(["rows", "clumps", "fragments", "none"]),
    condition=st.sampled_from([None, "id % 3 = 0", "x > 900"]),
    world=st.integers(1, 4),
    batch=st.integers(1, 200),
    stops=st.lists(st.tuples(st.integers(0, 6), st.integers(1, 4), st.integers(1, 99)), max_size=3),
)
def test_a_run_continues_with_other_ranks_and_batches(
    table, shuffle, condition, world, batch, stops
):
    size = {"clump_size": 16} if shuffle == "clumps" else {}
    plan = training.plan(table, columns=["id"], filter=condition, shuffle=shuffle, seed=3, **size)
    whole = flat(ids(plan.loader(64)))
    wanted = table.to_table(columns=["id"], filter=condition)["id"].to_pylist()
    assert sorted(whole) == wanted
    seen, state = [], None
    for steps, new_world, new_batch in [*stops, (10**9, world, batch)]:
        loaders = [
            plan.loader(new_batch, rank=rank, world_size=new_world) for rank in range(new_world)
        ]
        if state is not None:
            for loader in loaders:
                loader.load_state_dict(json.loads(json.dumps(state)))
            if state["epoch"]:
                break
        for parts in itertools.islice(zip(*loaders, strict=True), steps):
            seen += flat(part["id"].to_pylist() for part in parts)
            (state,) = {json.dumps(loader.state_dict()) for loader in loaders}
            state = json.loads(state)
            if state["position"] == len(plan):
                break
        if state is not None and state["position"] == len(plan):
            break
    assert seen[: len(whole)] == whole
    assert seen[len(whole) :] == whole[: len(seen) - len(whole)]  # padding only


def test_epochs_differ_and_are_the_same_again(table):
    loader = training.plan(table, columns=["id"], seed=1).loader(100)
    first, second = flat(ids(loader)), flat(ids(loader))
    assert loader.epoch == 2
    assert first != second
    assert sorted(first) == sorted(second)
    loader.set_epoch(0)
    assert flat(ids(loader)) == first
    other = training.plan(table, columns=["id"], seed=2).loader(100)
    assert flat(ids(other)) != first


def test_saying_the_epoch_does_not_begin_a_resumed_one_again(table):
    plan = training.plan(table, columns=["id"], seed=1)
    whole = flat(ids(plan.loader(10)))
    begun = plan.loader(10)
    first = flat(batch["id"].to_pylist() for batch in itertools.islice(begun, 3))
    resumed = plan.loader(10)
    resumed.load_state_dict(begun.state_dict())
    resumed.set_epoch(0)
    assert first + flat(ids(resumed)) == whole
    assert resumed.epoch == 1


def test_order_does_not_depend_on_threads_or_budget(table):
    plan = training.plan(table, columns=["id", "x"])
    wanted = ids(plan.loader(10))
    for threads, budget in ((1, 0), (8, 1), (4, 10**9)):
        assert ids(plan.loader(10, num_threads=threads, prefetch_bytes=budget)) == wanted


def test_read_ahead_fits_the_budget(table):
    lock, under_way, most = threading.Lock(), [0], [0]

    class Counted:
        version, seed, name = 1, 0, ""

        def __len__(self):
            return 100

        def read(self, _places, _epoch):
            with lock:
                under_way[0] += 1
                most[0] = max(most[0], under_way[0])
            return {"x": np.zeros(1000, np.uint8)}

    for _ in training.Loader(Counted(), 1, prefetch_bytes=3000, num_threads=4):
        with lock:
            under_way[0] -= 1
    assert most[0] <= 4


def test_decoded_read_ahead_fits_the_budget():
    lock, under_way, most = threading.Lock(), [0], [0]

    class Counted:
        version, seed, name = 1, 0, ""

        def __len__(self):
            return 60

        def read(self, _places, _epoch):
            with lock:
                under_way[0] += 1
                most[0] = max(most[0], under_way[0])
            return pa.table({"x": [b"small"]})

    grow = {"x": lambda _: [np.zeros(500), np.zeros(500)]}
    loader = training.Loader(
        Counted(), 1, to="numpy", decode=grow, prefetch_bytes=24_000, num_threads=4
    )
    for _ in loader:
        with lock:
            under_way[0] -= 1
    assert most[0] <= 4


def test_splits_are_disjoint_whole_and_stay_as_rows_are_appended(tmp_path):
    uri = str(tmp_path / "t.lance")
    rows = pa.table(
        {"id": range(2000), "key": [i // 3 for i in range(2000)], "c": [i % 2 for i in range(2000)]}
    )
    table = lancelet.write_dataset(rows, uri, enable_stable_row_ids=True)
    parts = {"train": 0.9, "valid": 0.1}
    ways = ({}, {"split_key": "key"}, {"stratify_by": "c"})

    def division(at, way):
        made = {
            name: set(
                flat(
                    ids(
                        training.plan(at, columns=["id"], splits=parts, split=name, **way).loader(
                            500
                        )
                    )
                )
            )
            for name in parts
        }
        assert not made["train"] & made["valid"]
        assert made["train"] | made["valid"] == set(range(at.count_rows()))
        return made["valid"]

    before = [division(table, way) for way in ways]
    assert all(120 < len(valid) < 280 for valid in before)
    assert len({i // 3 for i in before[1]} & {i // 3 for i in set(range(2000)) - before[1]}) == 0
    odd = sum(i % 2 for i in before[2])
    assert abs(odd - 100) <= 1
    assert abs(len(before[2]) - odd - 100) <= 1
    more = pa.table({"id": range(2000, 3000), "key": range(10_000, 11_000), "c": [0] * 1000})
    table.insert(more)
    table.optimize.compact_files()
    for way, valid in zip(ways, before, strict=True):
        assert {i for i in division(table, way) if i < 2000} == valid


def test_strata_are_divided_before_a_filter_and_whatever_order_rows_lie_in(tmp_path):
    rows = {"id": range(300), "c": [i % 2 for i in range(300)], "x": [0] * 300}
    table = lancelet.write_dataset(rows, str(tmp_path / "t.lance"), enable_stable_row_ids=True)

    def part(name, condition=None):
        plan = training.plan(
            table,
            columns=["id"],
            filter=condition,
            splits={"train": 0.7, "valid": 0.3},
            split=name,
            stratify_by="c",
        )
        return set(flat(ids(plan.loader(100))))

    whole = part("valid")
    assert part("valid", "id > 1 AND id <> 40") == whole - {0, 1, 40}
    assert not part("train", "id % 5 < 3") & whole
    table.update({"x": "1"}, where="id < 50")  # moves rows to the end
    table = lancelet.dataset(table.uri)
    assert part("valid") == whole


def test_weights_and_classes_are_drawn_as_requested(table):
    balanced = training.plan(table, columns=["id", "group"], balance_by="group", samples=7000)
    groups = flat(batch["group"].to_pylist() for batch in balanced.loader(500))
    counts = np.unique(groups, return_counts=True)[1]
    assert len(counts) == 7
    assert np.abs(counts - 1000).max() < 150
    weighted = training.plan(
        table, columns=["id"], filter="id < 3", weights=[0.0, 1.0, 3.0], samples=4000
    )
    drawn = np.bincount(flat(ids(weighted.loader(500))), minlength=3)
    assert drawn[0] == 0
    assert abs(drawn[2] / drawn[1] - 3) < 0.4
    again = training.plan(table, columns=["id"], replacement=True, samples=5000)
    assert len(flat(ids(again.loader(700)))) == 5000


def test_rows_are_chosen_by_id(table):
    wanted = table.to_table(filter="id in (7, 100, 900)", columns=["id"], with_row_id=True)
    plan = training.plan(table, columns=["id"], row_ids=wanted["_rowid"].to_pylist())
    assert sorted(flat(ids(plan.loader(2)))) == [7, 100, 900]


def test_mixtures_follow_weights_and_resume(table):
    low = training.plan(table, columns=["id"], filter="id < 100")
    high = training.plan(table, columns=["id"], filter="id >= 900")
    mixture = training.mix([low, high], [3, 1], samples=400, seed=5)
    loader = mixture.loader(50)
    first, second = flat(ids(loader)), flat(ids(loader))
    assert 60 < sum(i >= 900 for i in first) < 140
    lows = [i for i in first + second if i < 100]
    assert sorted(lows[:99]) == sorted(set(lows[:99]))  # no row again before all others came
    resumed = mixture.loader(25)
    stopped = mixture.loader(50)
    seen = [next(steps := iter(stopped))["id"].to_pylist(), next(steps)["id"].to_pylist()]
    resumed.load_state_dict(stopped.state_dict())
    assert flat(seen) + flat(ids(resumed)) == first


def test_packed_sequences_and_windows_are_mixed_too(tmp_path):
    low, high = (
        lancelet.write_dataset(
            {"tokens": [[at + row] * (row % 4) for row in range(100)], "x": range(at, at + 100)},
            str(tmp_path / f"{at}.lance"),
        )
        for at in (0, 1000)
    )
    packed = [training.pack(training.plan(each), "tokens", 8) for each in (low, high)]
    mixture = training.mix(packed, [1, 3], samples=60, seed=2)
    whole = np.concatenate([batch["tokens"] for batch in mixture.loader(7, to="numpy")])
    assert whole.shape == (60, 8)
    assert 30 < (whole[:, 0] >= 1000).sum() < 56
    begun = mixture.loader(7, to="numpy")
    first = [batch["tokens"] for batch in itertools.islice(begun, 3)]
    rest = mixture.loader(10, to="numpy")
    rest.load_state_dict(begun.state_dict())
    resumed = np.concatenate([*first, *(batch["tokens"] for batch in rest)])
    assert (resumed == whole).all()
    with pytest.raises(InvalidInputError, match="same columns"):
        training.mix([packed[0], training.pack(training.plan(high), "tokens", 9)])
    with pytest.raises(InvalidInputError, match="same columns"):
        training.mix([training.plan(low), training.plan(high, columns=["x"])])
    seen = training.windows(training.plan(low, columns=["x"], shuffle="none"), 3)
    both = training.mix([seen, training.windows(training.plan(high, columns=["x"]), 3)], samples=9)
    for batch in both.loader(4, to="numpy"):
        assert (np.diff(batch["x"]) == 1).all()


def test_sequences_are_packed_without_losing_a_token(table):
    plan = training.plan(table, columns=["tokens"], seed=4)
    packed = training.pack(plan, "tokens", 16)
    batches = list(packed.loader(9, to="numpy"))
    found = np.concatenate([batch["tokens"] for batch in batches])
    assert found.shape == (len(packed), 16)
    wanted = np.concatenate(
        [row for row in plan.read(np.arange(len(plan)), 0)["tokens"].to_pylist() if row]
    )
    assert found.ravel().tolist() == wanted[: found.size].astype(int).tolist()
    segment = np.concatenate([batch["segment"] for batch in batches])
    borders = np.flatnonzero(np.diff(segment, axis=1).ravel())
    assert len(borders)
    assert (segment[:, 0] == 0).all()
    assert (np.diff(segment, axis=1) >= 0).all()


def test_windows_are_rows_that_follow_each_other(table):
    plan = training.plan(table, columns=["id", "x", "v"], shuffle="none")
    every = training.windows(plan, 4, step=3)
    batches = list(every.loader(10, to="numpy"))
    found = np.concatenate([batch["id"] for batch in batches])
    live = table.to_table(columns=["id"])["id"].to_numpy()
    assert found.tolist() == [live[at : at + 4].tolist() for at in range(0, len(live) - 3, 3)]
    assert batches[0]["v"].shape == (10, 4, 2)
    grouped = lancelet.write_dataset({"g": [1, 1, 1, 2, 2, 3], "t": range(6)}, "memory://windows")
    only = training.windows(training.plan(grouped, columns=["t"], shuffle="none"), 2, group_by="g")
    assert np.concatenate([b["t"] for b in only.loader(9, to="numpy")]).tolist() == [
        [0, 1],
        [1, 2],
        [3, 4],
    ]


def test_batches_come_in_the_form_requested(table):
    plan = training.plan(table, columns=["id", "v", "blob", "group"], shuffle="none")
    (batch, *_) = plan.loader(5, to="numpy", decode={"blob": lambda value: len(bytes(value))})
    assert batch["v"].tolist() == [[i, i + 0.5] for i in range(5)]
    assert batch["blob"] == [1] * 5
    assert batch["group"][:2] == ["g0", "g1"]
    (count, *_) = plan.loader(5, collate=lambda rows: rows.num_rows)
    assert count == 5
    images = plan.loader(3, to="numpy", decode={"blob": lambda _: np.zeros((2, 2), np.uint8)})
    assert next(iter(images))["blob"].shape == (3, 2, 2)


@pytest.fixture
def videos(tmp_path):
    schema = pa.schema(
        [
            pa.field("id", pa.int64()),
            pa.field("begin", pa.int64()),
            pa.field("length", pa.int64()),
            pa.field("video", pa.large_binary(), metadata={"lance-encoding:blob": "true"}),
        ]
    )
    frames = [bytes([row]) * 100_000 + b"frame%02d" % row + bytes(100_000) for row in range(40)]
    frames[7] = None
    rows = pa.table([range(40), [100_000] * 39 + [None], [7] * 40, frames], schema=schema)
    return lancelet.write_dataset(rows, str(tmp_path / "t.lance"), max_rows_per_file=15), frames


def test_blobs_come_as_bytes_in_any_order_windows_and_mixtures(videos):
    table, frames = videos
    plan = training.plan(table, columns=["video", "id"], seed=3)
    for batch in plan.loader(8):
        assert batch.schema.names == ["video", "id"]
        assert batch["video"].to_pylist() == [frames[row] for row in batch["id"].to_pylist()]
    sizes = plan.loader(8, to="numpy", decode={"video": lambda data: np.int64(len(bytes(data)))})
    assert sum(size or 0 for batch in sizes for size in batch["video"]) == 39 * 200_007
    only = training.plan(table, columns=["video"], shuffle="none").loader(40)
    assert next(iter(only))["video"].to_pylist() == frames
    pairs = training.windows(training.plan(table, columns=["id", "video"], shuffle="none"), 2)
    (batch, *_) = pairs.loader(3, to="numpy")
    assert batch["video"] == [frames[row : row + 2] for row in range(3)]


def test_windows_of_videos_read_their_bytes_and_no_more(videos):
    table, frames = videos
    plan = training.plan(table, columns=["id", "video"], blob_ranges={"video": ("begin", "length")})
    whole = sum(len(frame or b"") for frame in frames)
    table.io_stats_incremental()
    found = [row for batch in plan.loader(40) for row in batch.to_pylist()]
    assert table.io_stats_incremental().read_bytes < whole / 20
    for row in found:
        assert set(row) == {"id", "video"}
        without = row["id"] in (7, 39)
        assert row["video"] == (None if without else b"frame%02d" % row["id"])
    for wrong in (
        {"id": ("begin", "length")},
        {"video": ("begin", "video")},
        {"video": ("begin",)},
    ):
        with pytest.raises(InvalidInputError, match="blob"):
            training.plan(table, blob_ranges=wrong)


def test_decoders_have_names_and_packages_bring_more(table, tmp_path, monkeypatch):
    image_of = pytest.importorskip("PIL.Image")
    file = io.BytesIO()
    image_of.new("L", (3, 2), 7).save(file, "png")
    pictures = lancelet.write_dataset({"p": [file.getvalue()] * 4}, "memory://pictures")
    (batch,) = training.plan(pictures).loader(4, to="numpy", decode={"p": "image"})
    assert batch["p"].shape == (4, 2, 3, 3)
    assert (batch["p"] == 7).all()
    (tmp_path / "reversing.py").write_text("def run(data): return bytes(data)[::-1]\n")
    (tmp_path / "reversing-1.dist-info").mkdir()
    (tmp_path / "reversing-1.dist-info" / "METADATA").write_text("Name: reversing\nVersion: 1\n")
    (tmp_path / "reversing-1.dist-info" / "entry_points.txt").write_text(
        "[lancelet.decoders]\nreversed = reversing:run\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    plan = training.plan(table, columns=["blob"], filter="id in (12, 34)", shuffle="none")
    (batch,) = plan.loader(2, to="numpy", decode={"blob": "reversed"})
    assert batch["blob"] == [b"21", b"43"]
    with pytest.raises(InvalidInputError, match="unknown decoder") as caught:
        plan.loader(2, to="numpy", decode={"blob": "backwards"})
    assert caught.value.facts["expected"] == ["image", "reversed", "video"]


def test_a_plan_stays_at_its_version(tmp_path):
    table = lancelet.write_dataset({"id": range(10)}, str(tmp_path / "t.lance"))
    plan = training.plan(table, columns=["id"])
    lancelet.dataset(table.uri).delete("id > 4")
    assert sorted(flat(ids(plan.loader(3)))) == list(range(10))
    table = lancelet.dataset(table.uri)
    table.insert({"id": range(20, 30)})
    state = plan.loader(3).state_dict()
    with pytest.raises(InvalidInputError, match="different plan"):
        training.plan(table, columns=["id"]).loader(3).load_state_dict(state)


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.delete("id > 4"),
        lambda table: table.update({"id": "id + 100"}),
        lambda table: table.insert({"id": range(20, 30)}),
        lambda table: table.optimize.compact_files(target_rows_per_fragment=1000),
    ],
    ids=["delete", "update", "insert", "compact"],
)
def test_a_plan_stays_at_its_version_when_the_dataset_object_moves(tmp_path, change):
    table = lancelet.write_dataset(
        {"id": range(10)}, str(tmp_path / "t.lance"), max_rows_per_file=4
    )
    plans = [training.plan(table, columns=["id"], filter=where) for where in (None, "id < 8")]
    sources = [*plans, training.mix(plans), training.windows(plans[0], 2)]
    versions, states = ([getattr(each, name) for each in sources] for name in ("version", "table"))
    wanted = [flat(ids(plan.loader(3))) for plan in plans]
    change(table)
    assert table.version > plans[0].version
    assert [flat(ids(plan.loader(3))) for plan in plans] == wanted
    assert [each.version for each in sources] == versions
    assert [each.table for each in sources] == states


def test_a_state_is_of_one_table(tmp_path):
    rows = {"id": range(10)}
    one, other = (
        training.plan(lancelet.write_dataset(rows, str(tmp_path / name))) for name in ("a", "b")
    )
    for make in (
        lambda plan: plan,
        lambda plan: training.mix([plan]),
        lambda plan: training.windows(plan, 2),
    ):
        state = json.loads(json.dumps(make(one).loader(3).state_dict()))
        make(training.plan(lancelet.dataset(one.dataset.uri))).loader(3).load_state_dict(state)
        with pytest.raises(InvalidInputError, match="different plan") as caught:
            make(other).loader(3).load_state_dict(state)
        assert caught.value.facts["differs"] == "table"
        # States of earlier releases do not name the table.
        del state["table"]
        make(other).loader(3).load_state_dict(state)


def test_a_run_continues_only_with_the_same_rows_and_weights(table):
    for name, first, other in (
        ("row_ids", [1, 2], [1, 3]),
        ("weights", [2.0, 1.0, *[1.0] * 995], [0.0, 2.0, *[1.0] * 995]),
    ):
        state = training.plan(table, **{name: first}).loader(3).state_dict()
        training.plan(table, **{name: np.array(first)}).loader(3).load_state_dict(state)
        with pytest.raises(InvalidInputError, match="different plan"):
            training.plan(table, **{name: other}).loader(3).load_state_dict(state)


@pytest.mark.parametrize(
    "wrong",
    [
        {"shuffle": "chaos"},
        {"shuffle": "clumps"},
        {"clump_size": 3},
        {"split": "train"},
        {"splits": {"a": 1.0}, "split": "b"},
        {"splits": {"a": 0.5, "b": 0.4}, "split": "b"},
        {"split_key": "id"},
        {"samples": 5},
        {"weights": "x", "balance_by": "group"},
        {"weights": [1.0]},
        {"weights": "x", "shuffle": "none"},
        {"filter": "id > 5000"},
        {"split_seed": 3},
    ],
)
def test_wrong_options_are_rejected(table, wrong):
    with pytest.raises(InvalidInputError):
        training.plan(table, **wrong)
    with pytest.raises(FieldNotFoundError):
        training.plan(table, columns=["id", "no such"])


@pytest.mark.parametrize(
    "wrong",
    [
        {"rank": 2, "world_size": 2},
        {"batch_size": 0},
        {"uneven": "wobble"},
        {"to": "tensorflow"},
        {"to": "numpy", "pin_memory": True},
        {"decode": {"x": len}},
        {"num_threads": 0},
        {"prefetch_bytes": -1},
        {"epoch": -1},
        {"full_batches": "no"},
        {"to": "torch", "pin_memory": "no"},
    ],
)
def test_wrong_options_of_loaders_are_rejected(table, wrong):
    with pytest.raises(InvalidInputError):
        training.plan(table).loader(**{"batch_size": 1, **wrong})
    with pytest.raises(TypeError):
        training.plan(table).loader(1, shuffle=True)


def test_a_loader_knows_its_length(table):
    for batch, world, uneven, full in itertools.product(
        (7, 100), (1, 3), ("pad", "cut"), (True, False)
    ):
        loader = training.plan(table, columns=["id"]).loader(
            batch, world_size=world, uneven=uneven, full_batches=full
        )
        assert len(loader) == len(list(loader))


def test_numbers_in_order_are_loaded_without_pandas(tmp_path):
    rows = {"id": range(10), "v": np.zeros((10, 2), np.float32), "flag": [True, False] * 5}
    table = lancelet.write_dataset(rows, str(tmp_path / "t.lance"))
    program = (
        "import sys, lancelet; from lancelet import training; "
        "plan = training.plan(lancelet.dataset(sys.argv[1]), shuffle='none'); "
        "(batch,) = plan.loader(10, to='numpy'); "
        "assert batch['v'].shape == (10, 2) and batch['flag'].sum() == 5; "
        "assert not batch['id'].flags.writeable; "
        "assert 'pandas' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program, table.uri], check=True)


@pytest.mark.parametrize(
    "options",
    [
        {"seed": "x"},
        {"seed": None},
        {"seed": 1.5},
        {"split_seed": "x", "splits": {"a": 0.5, "b": 0.5}, "split": "a"},
        {"samples": 2.5, "replacement": True},
        {"clump_size": 2.5, "shuffle": "clumps"},
        {"columns": []},
        {"replacement": "yes"},
        {"row_ids": [-1, 2]},
        {"row_ids": [1.5]},
        {"row_ids": ["1"]},
    ],
    ids=str,
)
def test_arguments_of_plans_with_wrong_types_are_rejected(options):
    dataset = lancelet.write_dataset({"id": range(10)}, "memory://training-types", mode="overwrite")
    with pytest.raises(InvalidInputError):
        training.plan(dataset, **options)


@pytest.mark.parametrize(
    ("name", "value"),
    [("position", -1), ("position", 11), ("position", 1.5), ("epoch", -3), ("epoch", "x")],
)
def test_impossible_states_are_rejected(name, value):
    dataset = lancelet.write_dataset({"id": range(10)}, "memory://training-state", mode="overwrite")
    loader = training.plan(dataset).loader(2)
    with pytest.raises(InvalidInputError, match=name):
        loader.load_state_dict({**loader.state_dict(), name: value})


@pytest.mark.parametrize("state", [{}, None, {"epoch": 1}, "state"])
def test_values_that_are_not_states_are_rejected(table, state):
    with pytest.raises(InvalidInputError, match="not the state of a loader"):
        training.plan(table).loader(3).load_state_dict(state)


def test_the_state_of_a_numpy_seed_is_json():
    dataset = lancelet.write_dataset({"id": range(10)}, "memory://training-seed", mode="overwrite")
    state = training.plan(dataset, seed=np.int64(3)).loader(2).state_dict()
    assert json.loads(json.dumps(state))["seed"] == 3


def test_the_length_of_a_loader_is_its_number_of_batches():
    dataset = lancelet.write_dataset({"id": range(40)}, "memory://training-len", mode="overwrite")
    for rows in range(1, 40, 3):
        plan = training.plan(dataset, filter=f"id < {rows}", shuffle="none")
        for world_size in (1, 2, 3):
            for uneven in ("pad", "cut"):
                for full_batches in (True, False):
                    options = {"uneven": uneven, "full_batches": full_batches}
                    loader = plan.loader(5, rank=world_size - 1, world_size=world_size, **options)
                    assert len(loader) == len(list(loader)), (rows, world_size, options)


def test_windows_contain_consecutive_rows_unless_gaps_are_allowed():
    dataset = lancelet.write_dataset({"id": range(20)}, "memory://training-gaps", mode="overwrite")
    plan = training.plan(dataset, filter="id != 7 AND id != 8", shuffle="none")
    (batch,) = training.windows(plan, 3).loader(100, to="numpy")
    assert (np.diff(batch["id"], axis=1) == 1).all()
    assert len(batch["id"]) == 5 + 9
    with_gaps = training.windows(plan, 3, allow_gaps=True)
    assert len(with_gaps) == 16
    with pytest.raises(InvalidInputError, match="allow_gaps"):
        training.windows(plan, 12)


def fails_for(*wrong):
    def decode(value):
        if value in wrong:
            raise ValueError(f"no number: {value}")
        return value * 10

    return decode


def test_values_that_cannot_be_decoded_raise_with_row_and_column(table):
    plan = training.plan(table, columns=["id"], filter="id > 10", shuffle="rows", seed=2)
    loader = plan.loader(50, to="numpy", decode={"id": fails_for(500)})
    row = table.to_table(columns=["id"])["id"].to_pylist().index(500)
    with pytest.raises(
        InvalidInputError, match=rf"no number: 500.*undecodable.*column='id'.*row={row}"
    ):
        list(loader)
    mixed = training.mix([plan, plan], [0, 1])
    with pytest.raises(InvalidInputError, match=rf"plan=1.*row={row}"):
        list(mixed.loader(50, to="numpy", decode={"id": fails_for(500)}))


def test_samples_that_cannot_be_decoded_are_skipped_and_ranks_stay_in_step():
    table = lancelet.write_dataset(
        {"id": range(100), "x": range(100)}, "memory://training-undecodable", mode="overwrite"
    )
    plan = training.plan(table, seed=1)
    wrong = [3, 50, 51, 99]
    options = {"world_size": 3, "to": "numpy", "decode": {"id": fails_for(*wrong)}}
    ranks = [plan.loader(10, rank=rank, undecodable="skip", **options) for rank in range(3)]
    steps = [list(loader) for loader in ranks]
    assert [len(each) for each in steps] == [4, 4, 4]
    found = [
        (i, x)
        for each in steps
        for batch in each
        for i, x in zip(batch["id"], batch["x"], strict=True)
    ]
    assert {i // 10 for i, _ in found} == set(range(100)) - set(wrong)
    assert all(i == x * 10 for i, x in found)
    assert sum(loader.skipped for loader in ranks) == len(wrong)
    whole = {**options, "world_size": 1}
    replaced = plan.loader(10, undecodable={"id": -1}, **whole)
    assert sum(batch["id"].count(-1) for batch in replaced) == len(wrong)
    assert replaced.skipped == 0
    with pytest.raises(InvalidInputError, match="no sample of a batch"):
        list(plan.loader(10, undecodable="skip", to="numpy", decode={"id": fails_for(*range(100))}))
    for policy in ("ignore", {"x": 0}):
        with pytest.raises(InvalidInputError, match=r"undecodable|decoded"):
            plan.loader(10, undecodable=policy, to="numpy", decode={"id": int})


def test_skipped_samples_leave_windows_and_binary_columns_too(videos):
    table, frames = videos
    plan = training.plan(table, columns=["id", "video"], shuffle="none")
    loader = plan.loader(8, to="numpy", decode={"id": fails_for(2)}, undecodable="skip")
    first = next(iter(loader))
    assert first["id"] == [0, 10, 30, 40, 50, 60, 70]
    assert [each if each is None else bytes(each) for each in first["video"]] == [
        frames[i] for i in (0, 1, 3, 4, 5, 6, 7)
    ]
    frames_of = training.windows(training.plan(table, columns=["id"], shuffle="none"), 2)
    decode = {"id": lambda ids: fails_for(5)(int(ids[0]))}
    ids_of = list(frames_of.loader(10, to="numpy", decode=decode, undecodable="skip"))
    assert ids_of[0]["id"] == [0, 10, 20, 30, 40, 60, 70, 80, 90]


def test_ragged_columns_are_values_and_offsets(table):
    plan = training.plan(table, columns=["id", "tokens", "blob", "group"], seed=1)
    rows = list(plan.loader(64))
    loader = plan.loader(64, to="numpy", ragged=["tokens", "blob", "group"])
    for batch, expected in zip(loader, rows, strict=True):
        values, offsets = batch["tokens"]
        assert np.split(values, offsets[1:-1])[-1].tolist() == expected["tokens"][-1].as_py()
        assert (
            offsets.tolist() == np.cumsum([0, *map(len, expected["tokens"].to_pylist())]).tolist()
        )
        assert bytes(batch["blob"].values) == b"".join(expected["blob"].to_pylist())
        assert bytes(batch["group"].values).decode() == "".join(expected["group"].to_pylist())
    with pytest.raises(InvalidInputError, match="column='id'"):
        list(plan.loader(64, to="numpy", ragged=["id"]))
    with pytest.raises(InvalidInputError, match="not read"):
        list(plan.loader(64, to="numpy", ragged=["other"]))
    for options in ({}, {"to": "numpy", "decode": {"tokens": len}}):
        with pytest.raises(InvalidInputError, match="ragged"):
            plan.loader(64, ragged=["tokens"], **options)


def test_mixtures_have_exact_shares_and_start_anywhere():
    tables = [
        lancelet.write_dataset(
            {"id": range(at, at + 50)}, f"memory://mixture-{at}", mode="overwrite"
        )
        for at in (0, 100)
    ]
    plans = [training.plan(table, seed=3) for table in tables]
    both = training.mix(plans, {0: [3, 1], 1000: [1, 1], 70_000: [0, 1]}, samples=200_000, seed=5)
    positions = np.arange(200_000)
    plan_of, position_of = both._assign(positions, 0)
    for plan in (0, 1):  # each plan is read in order, without gaps
        assert position_of[plan_of == plan].tolist() == list(range((plan_of == plan).sum()))
    assert abs((plan_of[:1000] == 0).mean() - 0.75) < 0.05
    assert abs((plan_of[1000:70_000] == 0).mean() - 0.5) < 0.01
    assert (plan_of[70_000:] == 1).all()
    # A later epoch continues where earlier ones end, and needs none of them.
    far = training.mix(plans, [3, 1], samples=1000)
    later, _ = far._assign(np.arange(10), 10**9)
    assert len(later) == 10
    _, before = far._assign(np.array([999]), 0)
    _, after = far._assign(np.arange(20), 1)
    assert after.min() <= before[0] + 20
    whole_blocks, _ = training.mix(plans, [3, 1], samples=1 << 16)._assign(np.arange(1 << 16), 7)
    assert np.bincount(whole_blocks).tolist() == [3 << 14, 1 << 14]
    with pytest.raises(InvalidInputError, match="start at sample 0"):
        training.mix(plans, {5: [1, 1]})
    with pytest.raises(InvalidInputError, match="weights"):
        training.mix(plans, [1, float("nan")])


def test_packing_reads_lengths_from_a_column(monkeypatch):
    tokens = [[i] * (i % 6) for i in range(100)]
    rows = {"tokens": tokens, "n": [len(each) for each in tokens], "wrong": [3] * 100}
    table = lancelet.write_dataset(
        pa.table(
            rows,
            schema=pa.schema({"tokens": pa.list_(pa.int32()), "n": pa.int64(), "wrong": pa.int8()}),
        ),
        "memory://packing-lengths",
        mode="overwrite",
    )
    plan = training.plan(table, filter="n <> 4", seed=1)
    scanned = training.pack(plan, "tokens", 16)
    read = []
    to_batches = type(table).to_batches
    monkeypatch.setattr(
        type(table),
        "to_batches",
        lambda self, **options: read.append(options) or to_batches(self, **options),
    )
    given = training.pack(plan, "tokens", 16, lengths="n")
    assert [options["columns"] for options in read] == [["n"]]
    found, wanted = (
        [b["tokens"].tolist() for b in each.loader(3, to="numpy")] for each in (given, scanned)
    )
    assert found == wanted
    with pytest.raises(InvalidInputError, match=r"does not have the length.*row=.*expected=3"):
        list(training.pack(plan, "tokens", 16, lengths="wrong").loader(3))
    with pytest.raises(InvalidInputError, match="column of integers"):
        training.pack(plan, "tokens", 16, lengths="tokens")


@pytest.mark.parametrize(
    "options", [{}, {"full_batches": True}, {"world_size": 3, "uneven": "cut"}]
)
def test_callers_that_count_batches_get_every_epoch(table, options):
    plan = training.plan(table, columns=["id"], seed=1)
    loader = plan.loader(50, **options)
    for epoch in range(3):
        found = list(itertools.islice(loader, len(loader)))
        assert loader.epoch == epoch + 1
        assert ids(found) == ids(plan.loader(50, epoch=epoch, **options))
    state = loader.state_dict()
    assert (state["epoch"], state["position"]) == (3, 0)
    steps = iter(loader)
    for _ in range(len(loader)):
        next(steps)
    loader.set_epoch(7)  # before the iteration ends
    assert list(steps) == []
    assert loader.epoch == 7


@pytest.mark.parametrize(
    "create",
    [
        lambda plan: training.mix([plan], samples=2.5),
        lambda plan: training.mix([plan], samples="3"),
        lambda plan: training.mix([plan], ["x"]),
        lambda plan: training.mix([plan], 3),
        lambda plan: training.mix([plan.dataset]),
        lambda plan: training.pack(plan, "tokens", 2.5),
        lambda plan: training.pack(plan, "words", 2),
        lambda plan: training.pack(training.plan(plan.dataset, columns=["id"]), "tokens", 2),
        lambda plan: training.windows(plan, 2.5),
        lambda plan: training.windows(plan, 2, step=True),
    ],
    ids=range(10),
)
def test_arguments_of_mixtures_packs_and_windows_are_checked(create):
    rows = {"id": range(10), "tokens": [[1, 2]] * 10, "words": [["a", "b"]] * 10}
    dataset = lancelet.write_dataset(rows, "memory://training-sources", mode="overwrite")
    with pytest.raises(InvalidInputError):
        create(training.plan(dataset, shuffle="none"))


def test_tokens_of_packs_are_not_null():
    rows = {"tokens": [[1, 2], [3, None], [4, 5]]}
    dataset = lancelet.write_dataset(rows, "memory://training-null-tokens", mode="overwrite")
    packed = training.pack(training.plan(dataset, shuffle="none"), "tokens", 2)
    with pytest.raises(InvalidInputError, match="contains null"):
        list(packed.loader(1, to="numpy"))


def test_large_strings_are_ragged_and_bfloat16_is_not():
    text = pa.array(["a", "", "bcd"], pa.large_string())
    lists = pa.ListArray.from_arrays([0, 1, 1, 3], bfloat16_array([1.0, 2.0, 3.0]))
    rows = pa.table({"text": text, "numbers": lists})
    dataset = lancelet.write_dataset(rows, "memory://training-ragged-types", mode="overwrite")
    plan = training.plan(dataset, shuffle="none")
    (batch,) = plan.loader(3, to="numpy", ragged=["text"])
    assert bytes(batch["text"].values) == b"abcd"
    assert batch["text"].offsets.tolist() == [0, 1, 1, 4]
    with pytest.raises(InvalidInputError, match="ragged column"):
        list(plan.loader(3, to="numpy", ragged=["numbers"]))


def test_one_iteration_of_a_loader_at_a_time():
    dataset = lancelet.write_dataset({"id": range(9)}, "memory://training-twice", mode="overwrite")
    loader = training.plan(dataset, shuffle="none").loader(2)
    first, second = iter(loader), iter(loader)
    assert next(first)["id"].to_pylist() == [0, 1]
    assert flat(ids(second)) == list(range(2, 9))
    with pytest.raises(InvalidInputError, match="another iteration"):
        next(first)
    assert (loader.epoch, loader.position) == (1, 0)


def test_a_loader_that_is_moved_during_an_iteration_continues_there():
    dataset = lancelet.write_dataset({"id": range(9)}, "memory://training-moved", mode="overwrite")
    loader = training.plan(dataset, shuffle="none").loader(2)
    state = loader.state_dict()
    for moved in (lambda: loader.set_epoch(5), lambda: loader.load_state_dict(state)):
        steps = iter(loader)
        next(steps)
        moved()
        before = loader.epoch
        assert len(list(steps)) == 4
        assert (loader.epoch, loader.position) == (before, 0)
        assert flat(ids(loader)) == list(range(9))
