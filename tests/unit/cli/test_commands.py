"""Every command on small tables: what it prints, its JSON, and its exit codes."""

from __future__ import annotations

import base64
import csv
import json
import os
import pickle
import subprocess
import sys
import threading
import tomllib
from pathlib import Path

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lancelet
from lancelet.cli.convert import _metadata_number
from lancelet.cli.exit_codes import ExitCode
from lancelet.cli.main import COMMANDS, load_command, main
from lancelet.dataset.maintenance.maintain import TableOperations
from lancelet.errors import CommitConflictError
from lancelet.upkeep.compact import run as compact_run

ROOT = Path(__file__).resolve().parents[3]
ROWS = pa.table(
    {
        "id": [1, 2, 3, 4],
        "name": ["a", "b", None, "d"],
        "s": [{"x": 1.5}, None, {"x": 2.5}, {"x": 3}],
    }
)


@pytest.fixture
def table(tmp_path: Path) -> str:
    uri = str(tmp_path / "shop" / "t.lance")
    lancelet.write_dataset(ROWS, uri, max_rows_per_file=2, enable_stable_row_ids=True)
    return uri


@pytest.fixture
def call(capsys):
    """Return a function that runs a command and returns its exit code and what it printed."""

    def run(*words: str) -> tuple[int, str, str]:
        code = main(list(words))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def told(call):
    """Return a function that runs a command, which must do well, and returns its JSON."""

    def run(*words: str, code: int = ExitCode.DONE):
        found, out, err = call(*words, "--json")
        assert (found, err) == (code, "")
        return json.loads(out)

    return run


def test_every_command_is_a_module_with_both_functions() -> None:
    for name in COMMANDS:
        command = load_command(name)
        assert callable(command.add_arguments)
        assert callable(command.run)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_usage(name: str, capsys) -> None:
    with pytest.raises(SystemExit) as end:
        main([name, "--help"])
    assert end.value.code == 0
    assert f"lancelet {name}" in capsys.readouterr().out


def test_tables_of_a_folder_are_listed(table: str, told, call) -> None:
    folder = str(Path(table).parent)
    lancelet.write_dataset(ROWS, f"{folder}/deep/er.lance")
    rows = told("ls", folder)
    assert [(row["name"], row["rows"]) for row in rows] == [("deep/er.lance", 4), ("t.lance", 4)]
    assert told("ls", table)[0]["name"] == "."
    code, out, _ = call("ls", folder)
    assert code == 0
    assert out.splitlines()[0].split() == [
        "name",
        "version",
        "rows",
        "fragments",
        "bytes",
        "committed",
    ]
    assert call("ls", f"{folder}/nowhere")[0] == ExitCode.NOT_FOUND


def test_tables_in_other_stores_are_listed(told) -> None:
    for name in ("a.lance", "a.lance/tree/x", "b/c.lance"):
        lancelet.write_dataset(ROWS, f"memory://cli-ls/{name}")
    assert [row["name"] for row in told("ls", "memory://cli-ls")] == ["a.lance", "b/c.lance"]


def test_an_unreadable_table_is_listed_with_the_others(table: str, call) -> None:
    folder = Path(table).parent
    (folder / "broken.lance" / "_versions").mkdir(parents=True)
    (folder / "broken.lance" / "_versions" / "1.manifest").write_bytes(b"no manifest")
    code, out, err = call("ls", str(folder))
    assert code == ExitCode.FOUND
    assert "t.lance" in out
    assert "broken.lance" in err


def test_the_schema_has_paths_and_field_ids(table: str, told, call) -> None:
    rows = told("schema", table)
    assert [(row["id"], row["name"]) for row in rows] == [
        (0, "id"),
        (1, "name"),
        (2, "s"),
        (3, "s.x"),
    ]
    assert "double" in call("schema", table)[1]


def test_rows_are_shown_chosen_and_counted(table: str, told, call) -> None:
    assert told("head", table, "-n", "1") == [{"id": 1, "name": "a", "s": {"x": 1.5}}]
    chosen = told("head", table, "--columns", "name", "--filter", "id > 2", "--row-id")
    assert chosen == [{"name": None, "_rowid": 2}, {"name": "d", "_rowid": 3}]
    assert call("head", table, "--columns", "id,name", "--offset", "3")[1] == "id  name\n 4  d\n"
    assert told("count", table) == {"rows": 4}
    assert call("count", table, "--filter", "name IS NULL")[1] == "1\n"


def test_versions_are_found_by_number_tag_branch_and_time(table: str, told) -> None:
    told("tag", table, "create", "first")
    lancelet.dataset(table).delete("id = 1")
    told("branch", table, "create", "dev", "--at", "first")
    assert [row["operation"] for row in told("versions", table)] == ["Overwrite", "Delete"]
    assert told("versions", table)[0]["tags"] == ["first"]
    assert len(told("versions", table, "-n", "1")) == 1
    for version, rows in (("1", 4), ("2", 3), ("first", 4), ("dev:", 4), ("2100-01-01", 3)):
        assert told("count", table, "--at", version) == {"rows": rows}


def test_tags_and_branches_are_made_moved_listed_and_deleted(table: str, told, call) -> None:
    told("tag", table, "create", "first")
    lancelet.dataset(table).delete("id = 1")
    assert told("tag", table, "move", "first") == {"tag": "first", "done": "move", "version": 2}
    assert [(row["name"], row["version"]) for row in told("tag", table)] == [("first", 2)]
    assert call("tag", table, "create", "first")[0] == ExitCode.EXISTS
    told("tag", table, "delete", "first")
    assert call("tag", table)[1] == "no rows\n"
    assert call("tag", table, "delete", "first")[0] == ExitCode.NOT_FOUND
    told("branch", table, "create", "dev")
    lancelet.dataset(table, ("dev", None)).delete("id = 2")
    assert [row["name"] for row in told("branch", table)] == ["dev"]
    assert told("branch", table, "forward", "dev")["version"] == 3
    assert told("count", table) == {"rows": 2}
    told("branch", table, "delete", "dev")
    with pytest.raises(SystemExit) as end:
        main(["tag", table, "create"])
    assert end.value.code == ExitCode.USAGE


def test_a_version_and_its_files_and_pages_are_shown(table: str, told, call) -> None:
    lancelet.dataset(table).delete("id = 1")
    shown = told("show", table)
    assert (shown["rows"], shown["deleted_rows"], shown["fragments"]) == (3, 1, 2)
    assert "stable_row_ids" in shown["features"]
    assert "DataFile" in call("show", table, "--manifest")[1]
    kinds = [row["type"] for row in told("files", table)]
    assert sorted(kinds) == [
        "data file",
        "data file",
        "deletion file",
        "manifest",
        "transaction file",
    ]
    assert all(row["bytes"] for row in told("files", table))
    assert {row["type"] for row in told("files", table, "--others")} == {"not needed"}
    pages = told("pages", table, "--column", "s", "--fragment", "0")
    assert [(row["fragment"], row["column"], row["rows"]) for row in pages] == [(0, "s.x", 2)]
    path = next(row["path"] for row in told("files", table) if row["type"] == "data file")
    of_file = told("pages", f"{table}/{path}")
    assert {row["column"] for row in of_file} == {"id", "name", "s.x"}
    (only,) = told("pages", f"{table}/{path}", "--column", "s.")
    assert only["column"] == "s.x"
    assert "miniblock, " in call("pages", table)[1]


def test_differences_end_with_their_own_exit_code(table: str, told, call) -> None:
    lancelet.dataset(table).delete("id = 1")
    code, out, _ = call("diff", table, "1")
    assert code == ExitCode.FOUND
    assert "rows: 4 -> 3 (0 inserted, 0 updated, 1 deleted)" in out
    assert told("diff", table, "1", "2", code=ExitCode.FOUND)["rows"]["deleted"] == 1
    rows = told("diff", table, "1", "--rows", code=ExitCode.FOUND)
    assert [(row["kind"], row["before"]["id"]) for row in rows] == [("delete", 1)]
    assert told("diff", table, "1", "--rows", "--on", "id", code=ExitCode.FOUND) == rows
    assert call("diff", table, "2", "2")[0] == ExitCode.DONE
    assert call("diff", table, "2", "2", "--rows")[0] == ExitCode.DONE
    assert call("diff", table, "9")[0] == ExitCode.NOT_FOUND


def test_unverifiable_files_are_counted(tmp_path: Path, told, call) -> None:
    """Damage in the last file: of the reference, so without checksums, and not seen."""
    uri = str(tmp_path / "mixed.lance")
    rows = pa.table({"x": pa.array(range(1000), pa.int64())})
    lancelet.write_dataset(rows, uri)
    lance.write_dataset(rows, uri, mode="append")
    path = next(
        tmp_path / "mixed.lance" / "data" / fragment.files[0].path
        for fragment in lancelet.dataset(uri).snapshot.fragments[1:]
    )
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    counted = "1 of 2 files verified by their checksums; 1 of 2 files have no checksums"
    assert call("check", uri) == (ExitCode.DONE, f"OK: {counted}\n", "")
    code, out, _ = call("check", uri, "--require-checksums")
    assert (code, out) == (ExitCode.FOUND, f"errors were found: {counted}\n")
    found = told("check", uri, "--require-checksums", code=ExitCode.FOUND)
    assert (found["verified_files"], found["files_without_checksums"]) == (1, 1)
    shallow = call("check", uri, "--level", "footers")[1]
    assert shallow == "OK: 2 files; no bytes were verified at the level footers\n"
    assert call("check", uri, "--level", "footers", "--require-checksums")[0] == ExitCode.USAGE
    report = lancelet.dataset(uri).check("checksums", all_versions=True)
    assert report == []
    assert (report.coverage.files, report.coverage.verified_files) == (2, 1)
    assert not report.coverage.is_complete
    assert pickle.loads(pickle.dumps(report)).coverage == report.coverage


def test_damage_is_found_and_repaired(table: str, told, call) -> None:
    whole = "OK: 2 of 2 files verified by their checksums\n"
    assert call("check", table, "--level", "indices", "--require-checksums") == (
        ExitCode.DONE,
        whole,
        "",
    )
    assert told("check", table) == {
        "findings": [],
        "level": "decode",
        "files": 2,
        "verified_files": 2,
        "files_without_checksums": 0,
    }
    path = next(row["path"] for row in told("files", table) if row["type"] == "data file")
    (Path(table) / path).unlink()
    found = told("check", table, "--level", "present", code=ExitCode.FOUND)["findings"]
    assert (found[0]["severity"], found[0]["fragment_id"]) == ("error", 0)
    assert told("check", table, "--all-versions", code=ExitCode.FOUND)
    code, out, err = call("repair", table, "--drop-fragment", "0")
    assert (code, "--apply" in err) == (ExitCode.DONE, True)
    assert "rows_after" in out
    assert told("count", table) == {"rows": 4}
    assert told("repair", table, "--drop-fragment", "0", "--apply")["rows_after"] == 2
    assert told("check", table)["findings"] == []
    source = ("--restore-fragment", "0", "--source", "1")
    assert call("repair", table, *source)[0] != ExitCode.DONE


def test_compaction_and_cleanup_report_their_effect_first(table: str, told, call) -> None:
    planned = told("compact", table, "--dry-run")
    assert (planned["done"], planned["rows"]) == (False, 4)
    done = told("compact", table)
    assert (done["done"], done["fragments_removed"], done["fragments_added"]) == (True, 2, 1)
    assert told("compact", table)["tasks"] == 0
    planned = told("cleanup", table, "--older-than", "0s", "--dry-run")
    assert {row["type"] for row in planned} >= {"data", "manifest"}
    assert len(told("versions", table)) > 1
    assert told("cleanup", table, "--older-than", "0s", "--keep", "1")["data_files_removed"] == 2
    assert len(told("versions", table)) == 1
    assert told("count", table) == {"rows": 4}


def test_a_view_is_refreshed(tmp_path, told, call) -> None:
    rows = {"id": list(range(9)), "n": [1] * 9}
    source = lancelet.write_dataset(rows, tmp_path / "source", enable_stable_row_ids=True)
    view = str(tmp_path / "view")
    source.create_view(view, "SELECT id FROM source WHERE n < 5")
    source.update({"n": "7"}, where="id = 3")
    planned = told("refresh", view, "--dry-run")
    assert (planned["kind"], planned["updated"]) == ("incremental", 1)
    code, shown, _ = call("refresh", view)
    assert code == ExitCode.DONE
    assert "version 1 -> 2" in shown
    assert told("count", view) == {"rows": 8}
    assert told("refresh", view, "--full")["reason"] == "requested"
    assert told("refresh", view)["kind"] == "none"


def test_a_refresh_names_the_versions_of_joined_tables(tmp_path, told, call) -> None:
    sales = {"id": [1, 2, 3, 4], "product": [7, 8, 7, 8]}
    source = lancelet.write_dataset(sales, tmp_path / "sales", enable_stable_row_ids=True)
    products = {"id": [7, 8], "name": ["a", "b"]}
    joined = lancelet.write_dataset(products, tmp_path / "products", enable_stable_row_ids=True)
    view = str(tmp_path / "view")
    query = "SELECT s.id, name FROM source AS s JOIN products ON product = products.id"
    source.create_view(view, query, tables={"products": joined})
    joined.update({"name": "'c'"}, where="id = 7")
    assert told("refresh", view, "--dry-run")["tables"] == {"products": [1, 2]}
    code, shown, _ = call("refresh", view)
    assert code == ExitCode.DONE
    assert "products, version 1 -> 2" in shown


def test_maintenance_is_planned_and_done(table: str, told, call, monkeypatch) -> None:
    options = ("--min-fragments", "2", "--older-than", "0s")
    planned = told("maintain", table, *options, "--dry-run")
    assert (planned["dry_run"], [step["step"] for step in planned["steps"]]) == (True, ["compact"])
    assert len(told("versions", table)) == 1
    limited = told("maintain", table, *options, "--max-time", "0s")
    assert [step["outcome"] for step in limited["steps"]] == ["out of time"]
    code, shown, _ = call("maintain", table, *options, "--retain-versions", "2")
    assert code == ExitCode.DONE
    assert "2 fragments became 1" in shown
    kept = told("maintain", table, *options, "--keep-versions")
    assert kept["steps"] == []
    done = told("maintain", table, *options)
    assert [step["step"] for step in done["steps"]] == ["clean up"]
    assert (done["before"]["versions"], done["after"]["versions"]) == (2, 1)
    assert told("count", table) == {"rows": 4}
    lancelet.dataset(table).delete("id < 3")

    def conflict(self, options):
        raise CommitConflictError("another writer came first")

    monkeypatch.setattr(TableOperations, "compact", conflict)
    refused = told("maintain", table, "--keep-versions", code=ExitCode.CONFLICT)
    assert [step["outcome"] for step in refused["steps"]] == ["conflict"]


def test_parquet_becomes_a_table_and_the_reverse(tmp_path: Path, table: str, told, call) -> None:
    parquet, again = tmp_path / "t.parquet", str(tmp_path / "again.lance")
    assert told("convert", table, str(parquet))["rows"] == 4
    assert pq.read_table(parquet).to_pylist() == ROWS.to_pylist()
    assert call("convert", table, str(parquet))[0] == ExitCode.EXISTS
    chosen = ("--mode", "overwrite", "--columns", "id", "--filter", "id > 3")
    assert told("convert", table, str(parquet), *chosen)["rows"] == 1
    assert told("convert", str(parquet), again, "--stable-row-ids")["rows"] == 1
    assert told("convert", str(parquet), again, "--mode", "append")["rows"] == 1
    assert lancelet.dataset(again).to_table().to_pydict() == {"id": [4, 4]}
    folder = tmp_path / "parts"
    folder.mkdir()
    pq.write_table(ROWS, folder / "0.parquet")
    pq.write_table(ROWS, folder / "1.parquet")
    assert told("convert", str(folder), str(tmp_path / "both.lance"))["rows"] == 8
    assert call("convert", str(folder), again, "--filter", "id > 1")[0] == ExitCode.USAGE
    assert call("convert", table, str(parquet), "--mode", "append")[0] == ExitCode.USAGE
    assert sorted(each.name for each in tmp_path.glob("*.unfinished")) == []


def test_parquet_that_is_not_there_or_damaged_is_an_error_with_its_path(
    tmp_path: Path, table: str, call
) -> None:
    missing, damaged = str(tmp_path / "none.parquet"), tmp_path / "bad.parquet"
    damaged.write_bytes(b"PAR1 and nothing else")
    for words, expected in [
        ((missing, str(tmp_path / "a.lance")), ExitCode.NOT_FOUND),
        ((str(damaged), str(tmp_path / "a.lance")), ExitCode.CORRUPT),
        ((table, str(tmp_path / "none" / "t.parquet")), ExitCode.NOT_FOUND),
    ]:
        code, out, err = call("convert", *words)
        assert (code, out) == (expected, "")
        assert "parquet" in err


@pytest.mark.parametrize("words", [["count"], ["show"], ["count", "--help"], ["--help"]])
def test_a_reader_that_has_seen_enough_is_no_error(table: str, words: list[str]) -> None:
    """The pipe is closed before anything is read, so what waits in the buffer meets that."""
    command = [sys.executable, "-m", "lancelet", *words]
    if "--help" not in words:
        command.append(table)
    buffered = {key: text for key, text in os.environ.items() if key != "PYTHONUNBUFFERED"}
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        ended = subprocess.run(
            command, stdout=write_end, stderr=subprocess.PIPE, text=True, check=False, env=buffered
        )
    finally:
        os.close(write_end)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_bug_is_not_taken_for_something_found(monkeypatch, table: str, capsys) -> None:
    def broken(arguments, out):
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(load_command("count"), "run", broken)
    with pytest.raises(SystemExit) as end:
        main(["count", table])
    assert end.value.code == ExitCode.BUG
    assert "ZeroDivisionError: a bug" in capsys.readouterr().err


def test_statistics_of_columns_are_shown(table: str, told) -> None:
    rows = told("stats", table, "id", "name", "s.x", "--distinct")
    assert [
        (row["null_count"], row["minimum"], row["maximum"], row["distinct"]) for row in rows
    ] == [
        (0, 1, 4, 4),
        (1, "a", "d", 3),
        (1, 1.5, 3.0, 3),
    ]


def test_the_installation_is_described(told) -> None:
    found = told("doctor")
    assert found["lancelet"] == lancelet.__version__
    assert found["pyarrow"] == pa.__version__
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].keys() - {"all"}
    assert {name[6:] for name in found if name.startswith("extra ")} == extras
    page = (ROOT / "docs" / "install.md").read_text()
    assert [extra for extra in extras if f"`{extra}`" not in page] == []


def test_errors_go_to_the_other_stream_with_their_facts(tmp_path: Path, call) -> None:
    code, out, err = call("count", str(tmp_path / "nothing.lance"))
    assert (code, out) == (ExitCode.NOT_FOUND, "")
    assert err.startswith("lancelet: ")
    assert "nothing.lance" in err
    code, out, err = call("count", str(tmp_path / "nothing.lance"), "--json")
    assert json.loads(err)["error"] == "DatasetNotFoundError"
    assert call("count", str(tmp_path), "--storage-option", "region")[0] == ExitCode.USAGE


def test_a_filter_that_is_wrong_is_wrong_usage(table: str, call) -> None:
    code, _, err = call("count", table, "--filter", "id >")
    assert code == ExitCode.USAGE
    assert err


@pytest.mark.parametrize("words", [[], ["nonsense"], ["count"]])
def test_wrong_calls_end_with_usage(words: list[str], capsys) -> None:
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == ExitCode.USAGE
    assert "usage" in capsys.readouterr().err


def test_the_command_runs_as_a_process(table: str) -> None:
    program = "import sys; from lancelet.cli.main import main; sys.exit(main())"
    environment = {**os.environ, "PYTHONWARNINGS": "error"}
    done = subprocess.run(
        [sys.executable, "-c", program, "count", table],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    assert (done.stdout, done.stderr) == ("4\n", "")
    listing = subprocess.run(
        f"'{sys.executable}' -c '{program}' head '{table}' | true",
        shell=True,
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    assert listing.stderr == ""


def test_queries_name_tables_by_path_or_by_name(table: str, told, call) -> None:
    pytest.importorskip("duckdb")
    query = f"SELECT count(*) AS n FROM '{table}' JOIN other USING (id)"
    assert told("sql", query, "--table", f"other={table}") == [{"n": 4}]
    code, _, err = call("sql", "SELECT 1", "--table", "nothing")
    assert code == ExitCode.USAGE
    assert "NAME=URI" in err


def test_paths_in_queries_need_no_quotes_if_they_look_like_paths(table: str, told, call) -> None:
    pytest.importorskip("duckdb")
    for path in (table, f'"{table}"', f"'{table}'"):
        query = f"SELECT count(*) AS n, ' FROM x.lance' AS s FROM {path} -- JOIN y.lance\nAS t"
        assert told("sql", query) == [{"n": 4, "s": " FROM x.lance"}]
    assert told("sql", f"SELECT count(*) AS n FROM {table} a JOIN {table} b USING (id)")
    assert told("sql", "WITH t AS (SELECT 1 AS n) SELECT n FROM t") == [{"n": 1}]
    assert call("sql", "SELECT * FROM missing.lance")[0] == ExitCode.NOT_FOUND


def test_unknown_tables_of_queries_name_the_options_of_the_command(call) -> None:
    pytest.importorskip("duckdb")
    code, _, err = call("sql", "SELECT * FROM missing")
    assert code == ExitCode.USAGE
    assert "--table NAME=URI" in err
    assert "variables" not in err


@pytest.mark.parametrize("query", ["", " \n"])
def test_an_empty_query_is_a_usage_error(query: str, table: str, call) -> None:
    code, out, err = call("sql", table, query)
    assert (code, out) == (ExitCode.USAGE, "")
    assert "SELECT" in err


def test_old_versions_are_restored(table: str, told) -> None:
    lancelet.dataset(table).delete("id > 1")
    told("restore", table, "1", "--dry-run")
    assert told("count", table) == {"rows": 1}
    assert told("restore", table, "1") == {"done": True, "restored": 1, "version": 3}
    assert told("count", table) == {"rows": 4}


def test_indices_are_built_listed_and_dropped(table: str, told, call) -> None:
    told("index", table, "build", "--column", "id", "--type", "btree")
    assert told("index", table) == [
        {
            "name": "id_idx",
            "type": "BTree",
            "columns": ["id"],
            "indexed_rows": 4,
            "other_rows": 0,
            "segments": 1,
        }
    ]
    lancelet.dataset(table).insert(ROWS)
    assert told("index", table)[0]["other_rows"] == 4
    told("index", table, "optimize")
    assert told("index", table)[0]["other_rows"] == 0
    told("index", table, "drop", "id_idx")
    assert call("index", table)[1] == "no rows\n"
    with pytest.raises(SystemExit) as end:
        main(["index", table, "build"])
    assert end.value.code == ExitCode.USAGE


def test_rows_are_found_by_text_by_vector_and_by_a_row(tmp_path: Path, told, capsys) -> None:
    uri = str(tmp_path / "docs.lance")
    vectors = pa.array([[0.0, 0.0], [1.0, 0.0], [5.0, 5.0]], pa.list_(pa.float32(), 2))
    lancelet.write_dataset(pa.table({"text": ["a fox", "a dog", "a cat"], "v": vectors}), uri)
    near = told("search", uri, "--vector", "[0.9, 0]", "-k", "1", "--columns", "text")
    assert [row["text"] for row in near] == ["a dog"]
    (tmp_path / "q.json").write_text("[5, 5]")
    at_file = told("search", uri, "--vector", f"@{tmp_path}/q.json", "-k", "1")
    assert [row["text"] for row in at_file] == ["a cat"]
    by_row = told("search", uri, "--row", "0", "-k", "2", "--filter", "text <> 'a fox'")
    assert [row["text"] for row in by_row] == ["a dog", "a cat"]
    lancelet.dataset(uri).create_scalar_index("text", "INVERTED")
    assert [row["text"] for row in told("search", uri, "--text", "fox")] == ["a fox"]
    both = told("search", uri, "--text", "cat", "--vector", "[0, 0]", "-k", "3")
    assert {row["text"] for row in both} >= {"a cat", "a fox"}
    for words in ([], ["--vector", "no json"]):
        with pytest.raises(SystemExit) as end:
            main(["search", uri, *words])
        assert end.value.code == ExitCode.USAGE
    assert "lancelet search" in capsys.readouterr().err


@pytest.mark.parametrize("ending", [".parquet", ".csv", ".jsonl", ".arrow"])
def test_tables_become_files_and_files_tables(ending: str, tmp_path: Path, told) -> None:
    rows = pa.table({"id": [1, 2, 3], "name": ["a", None, "ü"]})
    uri, file, back = (str(tmp_path / name) for name in ("t.lance", f"out{ending}", "back.lance"))
    lancelet.write_dataset(rows, uri)
    assert told("convert", uri, file)["rows"] == 3
    assert told("convert", file, back)["rows"] == 3
    found = lancelet.dataset(back).to_table().to_pylist()
    wanted = [{**row, "name": row["name"] or ""} for row in rows.to_pylist()]
    assert found == (wanted if ending == ".csv" else rows.to_pylist())
    assert told("convert", uri, file, "--mode", "overwrite")["rows"] == 3


def test_delta_tables_are_converted_both_ways(tmp_path: Path, told) -> None:
    pytest.importorskip("deltalake")
    uri, delta, back = (str(tmp_path / name) for name in ("t.lance", "delta", "back.lance"))
    lancelet.write_dataset(pa.table({"id": [1, 2, 3]}), uri)
    told("convert", uri, delta, "--to", "delta")
    told("convert", uri, delta, "--mode", "append")
    assert told("convert", delta, back)["rows"] == 6


def test_iceberg_tables_are_converted_both_ways(tmp_path: Path, call, told) -> None:
    pytest.importorskip("pyiceberg")
    uri, iceberg, back = (str(tmp_path / name) for name in ("t.lance", "iceberg", "back.lance"))
    rows = pa.table({"id": [1, 2, 3], "v": pa.array([[1.0, 2.0]] * 3, pa.list_(pa.float32(), 2))})
    lancelet.write_dataset(rows, uri)
    assert told("convert", uri, iceberg, "--to", "iceberg")["rows"] == 3
    assert told("convert", iceberg, back)["rows"] == 3
    assert lancelet.dataset(back).to_table().to_pylist() == rows.to_pylist()
    code, _, errors = call("convert", uri, iceberg, "--mode", "overwrite")
    assert code == ExitCode.USAGE
    assert "convert to a new one" in errors
    lancelet.write_dataset(pa.table({"t": pa.array([1], pa.timestamp("ns"))}), uri + "2")
    code, _, errors = call("convert", uri + "2", str(tmp_path / "other"), "--to", "iceberg")
    assert code == ExitCode.UNSUPPORTED
    assert "timestamp[ns]" in errors


def test_the_newest_metadata_of_iceberg_is_read(tmp_path: Path) -> None:
    pytest.importorskip("pyiceberg")
    names = ["v9.metadata.json", "v10.metadata.json", "00002-b.metadata.json"]
    assert max(map(Path, names), key=_metadata_number).name == "v10.metadata.json"


def test_csv_has_nested_values_and_bytes_as_text(tmp_path: Path, call, told) -> None:
    uri, file = str(tmp_path / "t.lance"), tmp_path / "out.csv"
    lancelet.write_dataset(
        pa.table({"v": [[0.5, 1.0], None], "s": [{"x": 1}, {"x": None}], "b": [b"\xff", b"a"]}), uri
    )
    assert told("convert", uri, str(file))["rows"] == 2
    with file.open(newline="") as opened:
        found = list(csv.DictReader(opened))
    assert [json.loads(row["v"] or "null") for row in found] == [[0.5, 1.0], None]
    assert [json.loads(row["s"]) for row in found] == [{"x": 1}, {"x": None}]
    assert [base64.b64decode(row["b"]) for row in found] == [b"\xff", b"a"]


def test_moments_of_rows_keep_their_microseconds(tmp_path: Path, call) -> None:
    uri = str(tmp_path / "t.lance")
    moment = pa.array([1_700_000_000_000_001], pa.timestamp("us", "Europe/Berlin"))
    lancelet.write_dataset(pa.table({"t": moment}), uri)
    for form in ("table", "csv"):
        assert "2023-11-14 22:13:20.000001Z" in call("head", uri, "--format", form)[1]


def test_a_conversion_has_one_table_of_lance(table: str, tmp_path: Path, call) -> None:
    code, _, err = call("convert", table, str(tmp_path / "other.lance"))
    assert code == ExitCode.USAGE
    assert "one of source and target" in err
    assert call("convert", str(tmp_path / "a.csv"), str(tmp_path / "b.csv"))[0] == ExitCode.USAGE
    assert call("convert", str(tmp_path / "no.csv"), table)[0] == ExitCode.NOT_FOUND


def test_rows_are_printed_as_csv_and_as_arrow(table: str) -> None:
    def printed(*words: str) -> bytes:
        program = [sys.executable, "-m", "lancelet", *words]
        return subprocess.run(program, check=True, capture_output=True).stdout

    assert printed("head", table, "-n", "2", "--columns", "id,name", "--format", "csv") == (
        b"id,name\n1,a\n2,b\n"
    )
    found = pa.ipc.open_stream(printed("head", table, "--format", "arrow")).read_all()
    assert found.equals(ROWS)
    counted = pa.ipc.open_stream(printed("count", table, "--format", "arrow")).read_all()
    assert counted.to_pylist() == [{"rows": 4}]


def test_a_wrong_call_names_the_command(table: str, capsys) -> None:
    with pytest.raises(SystemExit):
        main(["tag", table, "create"])
    assert "usage: lancelet tag" in capsys.readouterr().err


def test_moments_are_shown_in_one_zone(table: str, call, told) -> None:
    told("tag", table, "create", "first")
    assert call("versions", table)[1].splitlines()[1].count("Z") == 1
    assert call("tag", table)[1].splitlines()[1].count("Z") >= 1
    assert told("versions", table)[0]["committed"].endswith("+00:00")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands_and_options(shell: str, call) -> None:
    script = call("completion", shell)[1]
    assert all(name in script for name in COMMANDS)
    assert "num-threads" in script
    if shell == "bash":
        line = f"{script}\nCOMP_WORDS=(lancelet ver) COMP_CWORD=1\n_lancelet lancelet ver\n"
        line += 'echo "${COMPREPLY[@]}"'
        done = subprocess.run(["bash", "-c", line], check=True, capture_output=True, text=True)
        assert done.stdout == "versions\n"


def test_compaction_runs_as_many_tasks_at_a_time_as_requested(tmp_path, told, monkeypatch) -> None:
    """Each of the first tasks ends only when as many run as were asked for, and never more do."""
    uri = str(tmp_path / "t.lance")
    lancelet.write_dataset(pa.table({"id": range(64)}), uri, max_rows_per_file=4)
    execute, changed, running, most = compact_run.execute_task, threading.Condition(), [], []

    def together(*given):
        with changed:
            running.append(given)
            most.append(len(running))
            changed.notify_all()
            assert changed.wait_for(lambda: max(most) >= 3, 60), "tasks run one after the other"
        try:
            return execute(*given)
        finally:
            with changed:
                running.remove(given)

    monkeypatch.setattr(compact_run, "execute_task", together)
    done = told("compact", uri, "--target-rows-per-fragment", "16", "--num-threads", "3")
    assert (done["tasks"], done["fragments_removed"], done["version"]) == (4, 16, 3)
    assert max(most) == 3


def test_counting_rows_loads_neither_datasets_nor_readers_of_files(tmp_path):
    """The first thing that one runs: it should print before a dataset could be imported."""
    lancelet.write_dataset({"id": range(10)}, tmp_path / "t.lance")
    program = """
import sys
from lancelet.cli.main import main
main(["count", sys.argv[1]])
heavy = {"pandas", "pyarrow.dataset", "lancelet.dataset.dataset", "lancelet.file.v2.reader"}
print(sorted(heavy & set(sys.modules)))
"""
    command = [sys.executable, "-c", program, str(tmp_path / "t.lance")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["10", "[]"]


@pytest.mark.parametrize(
    ("words", "stage"),
    [
        (["index", "build", "--column", "id", "--type", "BTREE"], "train_btree"),
        (["cleanup", "--older-than", "0s"], "delete files"),
    ],
)
def test_long_commands_show_how_far_they_are_to_a_terminal_only(
    words, stage, tmp_path, capsys, monkeypatch
):
    table = lancelet.write_dataset(ROWS, tmp_path / "t.lance")
    table.delete("id = 1")
    table.optimize.compact_files()
    command = [words[0], table.uri, *words[1:]]
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert main(command) == ExitCode.DONE
    assert stage in capsys.readouterr().err
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)
    assert main([*command, "--replace"] if words[0] == "index" else command) == ExitCode.DONE
    assert capsys.readouterr().err == ""


def test_arguments_are_accepted_in_the_usual_orders(table: str, call, told) -> None:
    assert call("index", "list", table) == call("index", table, "list") == call("index", table)
    assert told("head", table, "--limit", "1") == told("head", table, "-n", "1")
    pytest.importorskip("duckdb")
    rows = told("sql", table, "SELECT count(*) AS rows FROM dataset")
    assert rows == told("sql", f"SELECT count(*) AS rows FROM '{table}'")
    name = Path(table).stem
    assert rows == told("sql", table, f'SELECT count(*) AS rows FROM "{name}"')


def test_the_action_may_precede_the_table(table: str, call, told) -> None:
    told("tag", table, "create", "first")
    told("branch", "create", table, "side")
    for command in ("tag", "branch"):
        assert call(command, "list", table) == call(command, table, "list") == call(command, table)
    assert [each["name"] for each in told("tag", "list", table)] == ["first"]
    assert [each["name"] for each in told("branch", "list", table)] == ["side"]
    told("tag", "delete", table, "first")
    assert told("tag", table) == []


def test_actions_are_completed(call) -> None:
    lines = call("completion", "bash")[1].splitlines()
    words = {line.split(")")[0].strip(): line for line in lines if "words=" in line}
    assert " list build optimize drop'" in words["index"]
    assert " list create move delete'" in words["tag"]
    assert " list create delete forward'" in words["branch"]


def test_options_are_accepted_as_people_type_them(tmp_path: Path, table: str, call, told) -> None:
    assert told("count", table, "id > 2") == told("count", table, "--filter", "id > 2")
    assert told("count", table, "id > 2") == {"rows": 2}
    assert told("head", table, "--columns", "id, name") == told("head", table, "--columns=id,name")
    uri = str(tmp_path / "notes.lance")
    dataset = lancelet.write_dataset({"body": ["a fox", "two foxes", "a fox"]}, uri)
    dataset.create_scalar_index("body", "INVERTED")
    assert len(told("search", uri, "fox", "--limit", "2")) == 2
    with pytest.raises(SystemExit, match="2"):
        call("count", table, "id > 2", "--filter", "id > 3")


def test_vectors_and_binary_values_are_complete_only_on_request(tmp_path: Path, call, told) -> None:
    uri = str(tmp_path / "wide.lance")
    rows = {"image": [b"x" * 300], "vector": [[0.5] * 384], "text": ["fox"]}
    lancelet.write_dataset(rows, uri).create_scalar_index("text", "INVERTED")
    short = {"image": "<binary, 300 bytes>", "vector": [0.5, 0.5, 0.5, "... 384 values"]}
    for command in (["head", uri], ["search", uri, "fox"], ["sql", f"FROM {uri}"]):
        [row] = told(*command)
        assert {name: row[name] for name in short} == short
        [row] = told(*command, "--full")
        assert row["vector"] == [0.5] * 384
        assert base64.b64decode(row["image"]) == b"x" * 300
        assert "384 values" not in call(*command, "--full")[1]


def test_an_index_of_vectors_has_a_default_type(tmp_path: Path, call, told) -> None:
    uri = str(tmp_path / "vectors.lance")
    lancelet.write_dataset({"id": [1, 2], "v": [[0.5, 1.5], [2.5, 3.5]]}, uri)
    told("index", uri, "build", "--column", "v", "--metric", "cosine")
    assert [row["name"] for row in told("index", uri)] == ["v_idx"]
    code, _, err = call("index", uri, "build", "--column", "id")
    assert code == ExitCode.USAGE
    assert "create_scalar_index('id', 'BTREE')" in err


def test_an_unknown_action_of_indices_is_a_usage_error(table: str, call, capsys) -> None:
    with pytest.raises(SystemExit, match="2"):
        call("index", table, "rebuild")
    assert "list, build, optimize, drop" in capsys.readouterr().err


def test_text_may_follow_the_table_of_a_search(tmp_path: Path, call, told) -> None:
    uri = str(tmp_path / "notes.lance")
    dataset = lancelet.write_dataset({"body": ["a red fox", "two dogs"]}, uri)
    dataset.create_scalar_index("body", "INVERTED")
    assert [row["body"] for row in told("search", uri, "fox")] == ["a red fox"]
    with pytest.raises(SystemExit, match="2"):
        call("search", uri, "fox", "--text", "dogs")


def test_unknown_columns_have_one_exit_code(table: str, call) -> None:
    assert call("head", table, "--columns", "missing")[0] == ExitCode.USAGE
    assert call("head", table, "--filter", "missing = 1")[0] == ExitCode.USAGE


def test_json_has_null_for_numbers_that_it_cannot_represent(tmp_path: Path, call) -> None:
    uri = str(tmp_path / "floats.lance")
    lancelet.write_dataset({"x": [float("nan"), float("inf"), 0.5]}, uri)
    code, text, _ = call("head", uri, "--json")
    assert code == ExitCode.DONE
    rows = json.loads(text, parse_constant=pytest.fail)
    assert [row["x"] for row in rows] == [None, None, 0.5]


FAR = {
    "day": (pa.date32(), 2**31 - 1, "5881580-07-11"),
    "moment": (pa.timestamp("us"), 2**62, "148108-07-06T14:00:27.387904"),
    "utc": (pa.timestamp("ms", "UTC"), -(2**62), "-146136543-09-08T08:23:32.096Z"),
    "span": (pa.duration("s"), 2**62, "4611686018427387904 s"),
}


def test_dates_beyond_the_years_of_python_are_text(tmp_path: Path, call, told) -> None:
    columns = {
        name: pa.array([number, 0, None], pa.int32() if name == "day" else pa.int64()).cast(kind)
        for name, (kind, number, _) in FAR.items()
    }
    nested = pa.StructArray.from_arrays([columns["day"]], ["d"])
    listed = pa.ListArray.from_arrays([0, 1, 2, 3], columns["day"])
    uri, expected = str(tmp_path / "far.lance"), {name: each[2] for name, each in FAR.items()}
    lancelet.write_dataset(pa.table({**columns, "nested": nested, "listed": listed}), uri)
    first, second, last = told("head", uri)
    assert first == {**expected, "nested": {"d": FAR["day"][2]}, "listed": [FAR["day"][2]]}
    assert second["day"] == "1970-01-01"
    assert last == dict.fromkeys(FAR) | {"nested": {"d": None}, "listed": [None]}
    for form in ("table", "csv"):
        assert FAR["day"][2] in call("head", uri, "--format", form)[1]
    assert {each["maximum"] for each in told("stats", uri)} >= {expected["day"], expected["moment"]}
    for extension in ("csv", "json"):
        told("convert", uri, str(tmp_path / f"far.{extension}"))
        text = (tmp_path / f"far.{extension}").read_text()
        assert all(expected[name] in text for name in ("day", "moment", "utc"))


def test_json_files_have_null_for_numbers_that_json_lacks(tmp_path: Path, told) -> None:
    uri, target = str(tmp_path / "t.lance"), tmp_path / "t.json"
    lancelet.write_dataset({"x": [float("nan"), 0.5]}, uri)
    told("convert", uri, str(target))
    text = target.read_text()
    lines = [json.loads(line, parse_constant=pytest.fail) for line in text.splitlines()]
    assert [line["x"] for line in lines] == [None, 0.5]


def test_null_blobs_are_converted_to_parquet(tmp_path: Path, told) -> None:
    uri, target = str(tmp_path / "t.lance"), tmp_path / "t.parquet"
    schema = pa.schema([lancelet.blob_field("b")])
    lancelet.write_dataset(
        pa.table([lancelet.blob_array([b"x", None])], schema=schema),
        uri,
        data_storage_version="2.2",
    )
    told("convert", uri, str(target))
    assert [each is None for each in pq.read_table(target)["b"].to_pylist()] == [False, True]


def test_tables_show_sizes_of_binary_values_and_a_part_of_vectors(tmp_path: Path, call) -> None:
    uri = str(tmp_path / "wide.lance")
    lancelet.write_dataset({"image": [b"x" * 300], "vector": [[0.5] * 384]}, uri)
    _, text, _ = call("head", uri)
    assert "<binary, 300 bytes>" in text
    assert "[0.5, 0.5, 0.5, ... 384 values]" in text


def test_an_unknown_extension_of_a_conversion_names_the_known_ones(table: str, call) -> None:
    code, _, errors = call("convert", table, "out.xyz")
    assert code == ExitCode.USAGE
    assert ".xyz is not the extension of a file format; use .parquet" in errors


def test_a_conversion_into_a_missing_folder_names_the_folder(
    table: str, tmp_path: Path, call
) -> None:
    code, _, errors = call("convert", table, str(tmp_path / "missing" / "t.parquet"))
    assert code == ExitCode.NOT_FOUND
    assert "the folder of the target does not exist; create it" in errors
    assert str(tmp_path / "missing") in errors
