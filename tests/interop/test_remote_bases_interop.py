"""Goal: a table on this machine with bases in buckets, each with credentials of its own."""

import lance
import pyarrow as pa
import pytest

import lancelet
from tests.kit.s3_server import S3Server

pytestmark = pytest.mark.interop

ROWS = pa.table({"a": list(range(6))})


@pytest.fixture(scope="module")
def server():
    with S3Server("hot", "cold") as found:
        yield found


def write(library, uri, server, **options):
    """Write two files, one to each bucket; the server's options are given by base."""
    bases = [library.DatasetBasePath(f"s3://{name}/t", name=name) for name in ("hot", "cold")]
    return library.write_dataset(
        ROWS,
        uri,
        initial_bases=bases,
        target_bases=["hot", "cold"],
        max_rows_per_file=3,
        base_store_params={f"s3://{name}/t": server.storage_options for name in ("hot", "cold")},
        **options,
    )


@pytest.mark.parametrize(("one", "other"), [(lancelet, lance), (lance, lancelet)])
def test_files_in_buckets_are_read_with_options_of_their_base(tmp_path, server, one, other):
    uri = str(tmp_path / "t")
    write(one, uri, server)
    params = {f"s3://{name}/t": server.storage_options for name in ("hot", "cold")}
    assert one.dataset(uri, base_store_params=params).to_table() == ROWS
    seen = other.dataset(uri, base_store_params=params)
    assert seen.to_table(filter="a > 1")["a"].to_pylist() == [2, 3, 4, 5]
    by_number = {
        f"base_{number}.{key}": value
        for number in (1, 2)
        for key, value in server.storage_options.items()
    }
    assert other.dataset(uri, storage_options=by_number).count_rows("a > 1") == 4
    assert not list((tmp_path / "t").rglob("*.lance"))


def test_a_clone_of_a_bucket_lives_on_this_machine(tmp_path, server):
    source = "s3://hot/source"
    options = server.storage_options
    ds = lancelet.write_dataset(ROWS, source, storage_options=options)
    clone = ds.shallow_clone(str(tmp_path / "clone"), 1)
    clone.insert(ROWS)
    assert clone.count_rows("a > 1") == 8
    again = lancelet.dataset(str(tmp_path / "clone"), base_store_params={source: options})
    assert again.to_table()["a"].to_pylist() == [*range(6), *range(6)]
    assert lance.dataset(str(tmp_path / "clone"), storage_options=options).count_rows() == 12
