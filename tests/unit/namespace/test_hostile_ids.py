"""No id and no location of a client leads out of the folder that is served, or deletes others."""

import lance_namespace as ln
import pyarrow as pa
import pytest

import lancelet
from lancelet.namespace import DirectoryNamespace, RestAdapter, RestNamespace
from lancelet.namespace.catalog import TABLE, Catalog, Entry


@pytest.fixture
def root(tmp_path):
    return tmp_path / "served"


@pytest.fixture(params=["folder", "server", "uri"])
def served(request, root, rows):
    """A namespace whose folder has a table beside it that no client may reach."""
    lancelet.write_dataset(pa.table({"secret": [42]}), str(root.parent / "private.lance"))
    root.mkdir()
    name = root.as_uri() if request.param == "uri" else str(root)
    if request.param == "server":
        with RestAdapter("dir", {"root": name}, port=0) as server:
            yield RestNamespace(**server.client_properties)
    else:
        yield DirectoryNamespace(root=name)


def is_refused(call):
    with pytest.raises(ln.InvalidInputError):
        call()


def check_untouched(root):
    private = lancelet.dataset(str(root.parent / "private.lance"))
    assert private.to_table().to_pydict() == {"secret": [42]}
    assert private.version == 1


HOSTILE = [
    ["ns$a/../../private"],
    ["ns", "a/../../private.lance"],
    ["../private"],
    ["a/../../private"],
    [".."],
    ["a\\..\\..\\private"],
    ["a\0b"],
]


@pytest.mark.parametrize("path", HOSTILE, ids=map(repr, HOSTILE))
def test_an_id_does_not_leave_the_folder(served, root, rows, path):
    served.create_namespace(ln.CreateNamespaceRequest(id=["ns"]))
    for call in (
        lambda: served.create_table(ln.CreateTableRequest(id=path), rows),
        lambda: served.create_table(ln.CreateTableRequest(id=path, mode="overwrite"), rows),
        lambda: served.declare_table(ln.DeclareTableRequest(id=path)),
        lambda: served.register_table(ln.RegisterTableRequest(id=path, location="t.lance")),
        lambda: served.describe_table(ln.DescribeTableRequest(id=path)),
        lambda: served.drop_table(ln.DropTableRequest(id=path)),
        lambda: served.insert_into_table(ln.InsertIntoTableRequest(id=path), rows),
    ):
        with pytest.raises((ln.InvalidInputError, ln.TableNotFoundError)):
            call()
    check_untouched(root)


LOCATIONS = [
    "",
    ".",
    "./",
    "a//b",
    "a/.",
    "%2e%2e/private.lance",
    "a/%2E%2E/%2e%2e/private.lance",
    "..%2fprivate.lance",
    "%2fetc",
    "..\\private.lance",
    "__manifest",
    "__manifest/data",
    "%5f_manifest",
    "a\nb",
]


@pytest.mark.parametrize("location", LOCATIONS)
def test_a_location_is_a_path_below_the_folder(served, root, location):
    is_refused(lambda: served.register_table(ln.RegisterTableRequest(id=["t"], location=location)))
    check_untouched(root)


@pytest.mark.parametrize("location", ["", "../private.lance", "%2e%2e/private.lance", None])
def test_a_location_that_others_recorded_is_not_trusted(root, rows, location):
    lancelet.write_dataset(pa.table({"secret": [42]}), str(root.parent / "private.lance"))
    root.mkdir()
    Catalog(str(root), {}).add(Entry(("t",), TABLE, location))
    namespace = DirectoryNamespace(root=str(root))
    is_refused(lambda: namespace.describe_table(ln.DescribeTableRequest(id=["t"])))
    is_refused(lambda: namespace.insert_into_table(ln.InsertIntoTableRequest(id=["t"]), rows))
    is_refused(lambda: namespace.drop_table(ln.DropTableRequest(id=["t"])))
    check_untouched(root)
    assert (root / "__manifest").exists()


def test_a_folder_of_other_tables_is_not_dropped_as_one(served, root, rows):
    served.create_table(ln.CreateTableRequest(id=["x"]), rows)
    lancelet.write_dataset(pa.table({"a": [1]}), str(root / "group" / "y.lance"))
    for name, location in (("all", "group"), ("part", "x.lance/data")):
        served.register_table(ln.RegisterTableRequest(id=[name], location=location))
        is_refused(lambda name=name: served.drop_table(ln.DropTableRequest(id=[name])))
    assert lancelet.dataset(str(root / "group" / "y.lance")).count_rows() == 1
    assert lancelet.dataset(str(root / "x.lance")).count_rows() == 3
    served.deregister_table(ln.DeregisterTableRequest(id=["all"]))


@pytest.mark.parametrize("name", ["100%", "%41", "größe", "a b", "50%25"])
def test_a_name_is_a_name_and_no_code(served, root, rows, name):
    served.create_table(ln.CreateTableRequest(id=[name]), rows)
    assert (root / f"{name}.lance" / "_versions").is_dir()
    told = served.describe_table(ln.DescribeTableRequest(id=[name]))
    assert lancelet.dataset(told.location).count_rows() == 3
    served.drop_table(ln.DropTableRequest(id=[name]))
    assert not (root / f"{name}.lance").exists()


def test_a_staged_manifest_is_one_of_the_table(served, root, rows):
    served.create_table(ln.CreateTableRequest(id=["x"]), rows)
    secret = next((root.parent / "private.lance" / "_versions").glob("*.manifest"))
    for staged in (f"../../private.lance/_versions/{secret.name}", str(secret), "data/x"):
        asked = {"id": ["x"], "version": 2, "manifest_path": staged, "naming_scheme": "V2"}
        is_refused(lambda asked=asked: served.create_table_version(asked))
    assert lancelet.dataset(str(root / "x.lance")).version == 1


@pytest.mark.parametrize(
    "name",
    ["manifest_store", "Manifest_Store", "MANIFEST_STORE", "local_sync", "fsspec", "aws_endpoint"],
)
def test_a_request_does_not_choose_where_a_table_is_stored(served, root, rows, name):
    asked = ln.CreateTableRequest(id=["x"], storage_options={name: f"sqlite:{root.parent}/new.db"})
    is_refused(lambda: served.create_table(asked, rows))
    assert not (root.parent / "new.db").exists()
    credentials = ln.CreateTableRequest(id=["x"], storage_options={"AWS_Session_Token": "t"})
    served.create_table(credentials, rows)
