"""Write docs/benchmarks.md from the results that the other files of this folder saved.

python benchmarks/report.py [--check]
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "results"
PAGE = FOLDER.parent / "docs" / "benchmarks.md"
Run = dict[str, Any]

HEAD = """# Benchmarks

Run the benchmarks on your machine:

```
make bench
```

This measures all cases and updates this page from `benchmarks/results`.

lancelet and the reference implementation (pylance) do the same work in one process, alternately.
Results are medians. A ratio above 1 means that lancelet is faster. The machines are shared and
noisy: ratios are more reliable than times, and CPU time (of all threads) is more reliable than wall
time.
"""


def table(head: list[str], rows: list[list[str]]) -> Iterator[str]:
    """Yield the lines of a table whose first column is text and whose others are numbers."""
    yield ""
    yield f"| {' | '.join(head)} |"
    yield f"| --- |{' ---: |' * (len(head) - 1)}"
    yield from (f"| {' | '.join(row)} |" for row in rows)


def machine_of(run: Run) -> str:
    machine = run["machine"]
    load = machine["load_average"][0]
    return (
        f"Measured on {machine['cpus']} processors ({machine['processor']}), Python "
        f"{machine['python']}, load average {load:.1f} at the end."
    )


def _scale(run: Run) -> str:
    factor = "" if run["scale"] == 1 else f"{run['scale']:g} times "
    return f"Row counts are {factor}those of the full benchmark."


def files(run: Run) -> Iterator[str]:
    """Yield the comparison with the reference, and the sizes."""
    yield "\n## Files\n"
    yield f"{machine_of(run)} {_scale(run)}"
    yield from table(
        ["case", "lancelet, ms", "pylance, ms", "wall ratio", "CPU ratio"], _cases(run)
    )
    yield "\n" + (FOLDER / "where_the_time_goes.md").read_text(encoding="utf-8").rstrip("\n")
    yield "\n## Size\n"
    yield "Bytes per value, with each column in a file of its own."
    sizes = [
        [name, *(f"{found[key]:.2f}" for key in ("raw", "ours", "reference", "parquet"))]
        for name, found in run["bytes_per_value"].items()
    ]
    yield from table(["column", "in memory", "lancelet", "pylance, 2.2", "Parquet zstd"], sizes)


def tables(run: Run) -> Iterator[str]:
    """Yield the comparison of tables with the reference."""
    yield "\n## Tables\n"
    yield f"{machine_of(run)} {_scale(run)}"
    yield from table(
        ["case", "lancelet, ms", "pylance, ms", "wall ratio", "CPU ratio"], _cases(run)
    )


def writes(run: Run) -> Iterator[str]:
    """Yield the comparison of writes with the reference, and how small the files are."""
    yield "\n## Writes\n"
    yield (
        f"{machine_of(run)} {_scale(run)} *File* is one data file, *table* a new table. `lineitem` "
        "follows the public specification of TPC-H (`benchmarks/lineitem.py`)."
    )
    yield from table(
        ["case", "lancelet, ms", "pylance, ms", "wall ratio", "CPU ratio"], _cases(run)
    )
    yield "\nRatio of the size of the values in memory to the size of the file:"
    sizes = [
        [name, *(f"{own[side]:.2f}" for side in ("ours", "theirs"))]
        for name, own in run["times_smaller"].items()
    ]
    yield from table(["values", "lancelet", "pylance"], sizes)


def text_builds(run: Run) -> Iterator[str]:
    """Yield the comparison of builds of text indices with the reference, and their memory."""
    yield "\n## Builds of text indices\n"
    peaks = run["peak_mb"]
    yield (
        f"{machine_of(run)} An index with positions of {run['num_rows']:,} texts of 50 words, each "
        f"library in its own process. The peak memory is {peaks['lancelet']:.0f} MB with lancelet "
        f"and {peaks['lance']:.0f} MB with pylance.{_yardstick(run)}"
    )
    yield from table(
        ["case", "lancelet, ms", "pylance, ms", "wall ratio", "CPU ratio"], _cases(run)
    )


def _yardstick(run: Run) -> str:
    found = run.get("tantivy_ms")
    return "" if found is None else f" Tantivy takes {found:,.0f} ms of CPU time."


def texts(run: Run) -> Iterator[str]:
    """Yield the comparison of searches of texts with the reference."""
    yield "\n## Texts\n"
    yield (
        f"{machine_of(run)} The ten best of {run['num_rows']:,} texts, with one stored number "
        "each. The CPU time of Tantivy, a library for full-text search, is given for comparison."
    )
    tantivy = run.get("tantivy_ms", {})
    rows = [
        [*case, f"{tantivy[case[0]]:.3f}" if case[0] in tantivy else ""] for case in _cases(run)
    ]
    head = ["case", "lancelet, ms", "pylance, ms", "wall ratio", "CPU ratio", "tantivy, CPU ms"]
    yield from table(head, rows)


def vectors(run: Run) -> Iterator[str]:
    """Yield the comparison of searches of vectors with the reference."""
    yield f"\n## {run['rows']:,} vectors of {run['dimension']} elements\n"
    sentences = [machine_of(run), "A case is 20 consecutive searches for the ten nearest vectors."]
    yield " ".join([*sentences, *([run["note"]] if "note" in run else [])])
    yield from table(
        ["case", "lancelet, ms", "pylance, ms", "wall ratio", "CPU ratio"], _cases(run)
    )
    peaks = run.get("build_peak_mib")
    if peaks:
        yield "\nPeak memory of a process that builds an index, including mapped files:"
        rows = [[kind, *(str(own[side]) for side in SIDES)] for kind, own in peaks.items()]
        yield from table(["index", "lancelet, MiB", "pylance, MiB"], rows)


SIDES = ("lancelet", "lance")


def _cases(run: Run) -> list[list[str]]:
    return [
        [
            case["name"],
            f"{case['ours']['wall_ms']:.2f}",
            f"{case['theirs']['wall_ms']:.2f}",
            f"{case['wall_ratio']:.2f}",
            f"{case['cpu_ratio']:.2f}",
        ]
        for case in run["cases"]
    ]


def verification(run: Run) -> Iterator[str]:
    """Yield the cost of verification and of the size of its blocks."""
    yield "\n## Verification\n"
    yield (
        f"{machine_of(run)} CPU time by verification mode. *First* uses a new reader, which "
        "verifies each block that it reads. *Again* uses a reader that has read the rows before. "
        "*From disk* is the wall time with an empty page cache, which is mostly the time of the "
        "disk. *Used* adds up the values. A scan of uncompressed values in a mapped file does not "
        "access the values, so that verification is most of its cost; see "
        "[ADR 7](adr/0007-checksums-per-block.md)."
    )
    rows = [
        [
            name,
            *(f"{taken[mode]:.3f}" for mode in ("off", "sample", "full")),
            f"{taken['full'] / taken['off'] - 1:+.0%}",
        ]
        for name, taken in run["cpu_ms"].items()
    ]
    yield from table(["case", "off, ms", "sample, ms", "full, ms", "full costs"], rows)
    blocks = [
        [
            name,
            f"{cost['scan_gb_per_s']:.1f}",
            f"{cost['take_1000_ms']:.2f}",
            f"{cost['share_of_file']:.4%}",
        ]
        for name, cost in run["blocks"].items()
    ]
    yield "\nThe block size determines how many bytes a scattered read hashes:"
    yield from table(["block", "scan, GB/s", "1000 blocks, ms", "share of the file"], blocks)


def indices(run: Run) -> Iterator[str]:
    """Yield the comparison of scalar indices with the reference, and the memory of builds."""
    yield "\n## Scalar indices\n"
    yield (
        f"{machine_of(run)} A table of {run['num_rows']:,} rows; both libraries read the same "
        "files. Rows *to a scan of ours* compare lancelet with the index (first time) and without "
        "it (second time): a ratio below 1 means that the index is slower than a scan."
    )
    yield from table(
        ["case", "lancelet, ms", "pylance, ms", "wall ratio", "CPU ratio"], _cases(run)
    )


def index_builds(run: Run) -> Iterator[str]:
    """Yield the comparison of builds of scalar indices with the reference, and their memory."""
    yield "\n## Builds of scalar indices\n"
    yield machine_of(run)
    yield from table(
        ["case", "lancelet, ms", "pylance, ms", "wall ratio", "CPU ratio"], _cases(run)
    )
    yield "\nMemory of a process that builds an index, as growth and as peak:"
    peaks = [
        [name, *(f"{mb:.0f}" for side in ("lancelet", "lance") for mb in grown[side])]
        for name, grown in run["peak_mb"].items()
    ]
    yield from table(
        ["index", "lancelet, growth in MB", "peak in MB", "pylance, growth in MB", "peak in MB"],
        peaks,
    )


def spark(run: Run) -> Iterator[str]:
    """Yield the comparison of Spark on Lance with Spark on Parquet."""
    yield "\n## Spark compared with Parquet in Spark\n"
    yield (
        f"{_spark_run(run)} {8_000_000 * run['scale']:,.0f} rows of 16 columns. Here a ratio "
        "**below** 1 means that Lance takes less time; see [Speed](guide/spark/speed.md). CPU time "
        "is that of all processes, JVM included. Delta on Spark is not measured: its package "
        "`delta-spark` on PyPI contains no JAR."
    )
    yield from _spark_cases(run)


def spark_tpch(run: Run) -> Iterator[str]:
    """Yield the queries of TPC-H."""
    yield "\n## TPC-H on Spark\n"
    yield (
        f"{_spark_run(run)} Scale {run['scale']:g}; [why not 10]"
        "(adr/0041-planning-of-short-queries-on-spark.md). Target for the geometric mean of CPU: "
        "0.85."
    )
    yield from _spark_cases(run)
    yield from _means(run)


def spark_tpcds(run: Run) -> Iterator[str]:
    """Yield the queries of TPC-DS."""
    yield "\n## TPC-DS on Spark\n"
    yield (
        f"{_spark_run(run)} {len(run['spark_cases'])} of the 99 queries of TPC-DS, which the tests "
        "compare with Parquet; rows of facts are "
        f"{run['scale']:g} times those of the tests. Target for the geometric mean of CPU: 1.0; "
        "[planning](adr/0041-planning-of-short-queries-on-spark.md) bounds short queries."
    )
    yield from _spark_cases(run)
    yield from _means(run)


def spark_planning(run: Run) -> Iterator[str]:
    """Yield plans of many fragments, and requests to object stores."""
    yield "\n## Planning and requests of Spark reads\n"
    yield (
        f"{machine_of(run)} Commit {run['commit']}. Plans of tables with synthetic fragments, by "
        "the process that Spark starts; memory is that of Python objects, tasks are pickled."
    )
    planned = [
        [
            f"{case['fragments']:,}",
            f"{case['seconds']:.2f}",
            f"{case['tasks']}",
            f"{case['peak_mb']:.0f}",
            f"{case['plan_mb']:.2f}",
        ]
        for case in run["planned"]
    ]
    yield from table(["fragments", "seconds", "tasks", "peak in MiB", "tasks in MiB"], planned)
    yield (
        "\nRequests to a simulated object store, which takes 50 ms per request and 10,000 requests "
        "per second, for tables of 8 fragments. Tasks run one after the other. Requests depend on "
        "fragments and on the bytes that are read, not on the number of rows."
    )
    counted = [
        [f"{case['name']}, {case['rows']:,} rows", f"{case['requests']}", f"{case['seconds']:.2f}"]
        for case in run["counted"]
    ]
    yield from table(["work", "requests", "seconds"], counted)


def _spark_run(run: Run) -> str:
    commits = ", ".join(sorted({case["commit"] for case in run["spark_cases"]}))
    rounds = min(case["rounds"] for case in run["spark_cases"])
    return (
        f"{machine_of(run)} Commits: {commits}. Medians of at least {rounds} alternating runs in "
        "one session."
    )


def _spark_cases(run: Run) -> Iterator[str]:
    rows = [
        [
            case["name"],
            *(f"{case[side][1]:.2f}" for side in ("lance", "parquet")),
            f"{_ratio(case, 1):.2f}",
            f"{case['target']:.2f}",
            f"{_ratio(case, 0):.2f}",
        ]
        for case in run["spark_cases"]
    ]
    head = ["case", "Lance, CPU s", "Parquet, CPU s", "ratio", "target", "ratio of wall time"]
    yield from table(head, rows)


def _means(run: Run) -> Iterator[str]:
    cpu, wall = (
        math.exp(
            math.fsum(math.log(_ratio(case, of)) for case in run["spark_cases"])
            / len(run["spark_cases"])
        )
        for of in (1, 0)
    )
    yield (
        f"\nGeometric means of {len(run['spark_cases'])} queries: CPU time {cpu:.2f}, wall time "
        f"{wall:.2f}."
    )


def _ratio(case: Run, of: int) -> float:
    return float(max(case["lance"][of], 0.001) / max(case["parquet"][of], 0.001))


def formats(run: Run) -> Iterator[str]:
    """Yield the comparison with other libraries and formats."""
    yield "\n## Compared with pylance, Vortex and DuckDB\n"
    yield (
        "Each library reads files that it wrote itself; DuckDB reads Parquet with zstd, which "
        "pyarrow wrote. All results are Arrow tables. Ratios are the wall time of the library over "
        "that of lancelet: above 1, lancelet is faster. `benchmarks/bench_formats.py` repeats the "
        "measurement."
    )
    others = ("pylance", "vortex", "duckdb")
    for group, own in run["groups"].items():
        yield f"\n### {group.capitalize()}\n"
        yield f"{machine_of(own)} Commit {own['commit']}. {_scale(own)}"
        rows = []
        ratios: dict[str, list[float]] = {each: [] for each in others}
        for name, case in own["cases"].items():
            wall = case["lancelet"]["wall_ms"]
            row = [name, f"{wall:.2f}", f"{case['lancelet']['cpu_ms']:.2f}"]
            for each in others:
                if each in case:
                    ratios[each].append(case[each]["wall_ms"] / wall)
                row.append(f"{ratios[each][-1]:.2f}" if each in case else "")
            rows.append(row)
        means = [f"{_mean(found):.2f}" if found else "" for found in ratios.values()]
        yield from table(
            ["case", "lancelet, ms", "CPU, ms", *others],
            [*rows, ["geometric mean", "", "", *means]],
        )


def _mean(ratios: list[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def training(run: Run) -> Iterator[str]:
    """Yield the comparison of loaders."""
    yield "\n## Training\n"
    yield (
        f"{machine_of(run)} Commit {run['commit']}. {_scale(run)} Each loader ran for "
        f"{run['seconds']:g} seconds in its own process; samples per second exclude the first "
        "batch. Every loader reads with the same number of workers; without workers, CPU time is "
        "more reliable than wall time. `lancelet` reads ahead by threads. All rows are shuffled, "
        "except with MDS (in blocks), WebDataset and Ray Data (a buffer of 1,000 rows); MDS, "
        "WebDataset and Grain read 50,000 rows at most. `lancelet 2.0` reads files of version 2.0, "
        "without compression. `make bench-training` repeats the measurement."
    )
    groups: dict[str, list[tuple[str, Run]]] = {}
    for name, found in run["loads"].items():
        group, loader = name.rsplit(", ", 1)
        groups.setdefault(group, []).append((loader, found))
    rows = []
    for group, loads in groups.items():
        measured = [(loader, found) for loader, found in loads if "error" not in found]
        unit = (
            "samples_per_second"
            if measured[0][1]["samples_per_cpu_second"] is None
            else ("samples_per_cpu_second")
        )
        ours = dict(measured)["lancelet"][unit]
        others = sorted(
            ((found[unit], loader) for loader, found in measured if loader != "lancelet"),
            reverse=True,
        )
        rows += [
            [
                group if loader == "lancelet" else "",
                loader,
                f"{speed:,.0f}",
                f"{ours / speed:.2f}",
                f"{dict(measured)[loader]['load']:.1f}",
            ]
            for speed, loader in [(ours, "lancelet"), *others]
        ]
    yield (
        "\nSamples per CPU second without workers, and per second with 2 workers. The ratio is that"
        " of lancelet to the loader; below 1, the other loader is faster."
    )
    yield from table(["rows, order, workers", "loader", "samples", "ratio", "load"], rows)


SECTIONS = {
    "formats": formats,
    "files": files,
    "writes": writes,
    "tables": tables,
    "indices": indices,
    "index_builds": index_builds,
    "text": texts,
    "text_builds": text_builds,
    "vectors": vectors,
    "verify": verification,
    "spark-table": spark,
    "spark-tpch": spark_tpch,
    "spark-tpcds": spark_tpcds,
    "spark-planning": spark_planning,
    "training": training,
}


PLOTTED = ("files", "writes", "tables", "indices", "text", "vectors")
LABEL, BARS, ROW = 330, 420, 16


def runs() -> Iterator[tuple[str, str, Run]]:
    """Yield what was saved: suite, name of the results, results."""
    for suite in SECTIONS:
        sizes = sorted(RESULTS.glob(f"{suite}-*x*.json"))
        for path in (RESULTS / f"{suite}.json", *sizes):
            if path.exists():
                yield suite, path.stem, json.loads(path.read_text(encoding="utf-8"))


def page() -> str:
    """Return the page, with a section for each suite that has results, or for each size of it."""
    lines = [HEAD.rstrip("\n")]
    for suite, name, run in runs():
        heading, *rest = SECTIONS[suite](run)
        lines.append(heading)
        if suite in PLOTTED and run["cases"]:
            lines.append(f"![CPU ratio of each case, on a logarithmic scale]({_picture(name)})\n")
        lines += rest
    return "\n".join(lines) + "\n"


def _picture(name: str) -> str:
    return f"pictures/benchmarks-{name}.svg"


def pictures() -> dict[Path, str]:
    """Return the plots of the page by where they are."""
    return {
        PAGE.parent / _picture(name): plot(run["cases"])
        for suite, name, run in runs()
        if suite in PLOTTED and run["cases"]
    }


def plot(cases: list[Run]) -> str:
    """Return bars of CPU ratios as SVG: to the right of 1 lancelet is faster, to the left slower.

    The scale is logarithmic, so that twice as fast is as far from 1 as half as fast.
    """
    logs = [math.log2(max(case["cpu_ratio"], 2**-10)) for case in cases]
    low, high = math.floor(min([0.0, *logs])), math.ceil(max([1.0, *logs]))
    scale = BARS / (high - low)
    height = ROW * (len(cases) + 2)
    style = 'font-family="sans-serif" font-size="11" fill="#808890"'
    size = f"0 0 {LABEL + BARS + 70} {height}"
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{size}" {style}>']
    for power in range(low, high + 1):
        x = LABEL + (power - low) * scale
        width = 1.5 if power == 0 else 0.4
        line = f'x1="{x:.1f}" x2="{x:.1f}" y1="{ROW}" y2="{height}"'
        parts.append(f'<line {line} stroke="#808890" stroke-width="{width}"/>')
        parts.append(f'<text x="{x:.1f}" y="11" text-anchor="middle">{2.0**power:g}</text>')
    for row, (case, log) in enumerate(zip(cases, logs, strict=True), 1):
        start, end = LABEL + (min(0.0, log) - low) * scale, LABEL + (max(0.0, log) - low) * scale
        colour = "#4078a8" if log >= 0 else "#c06030"
        y = ROW * row + 3
        bar = f'x="{start:.1f}" y="{y}" width="{end - start:.1f}" height="{ROW - 5}"'
        parts.append(f'<rect {bar} fill="{colour}"/>')
        name = f'x="{LABEL - 6}" y="{y + 9}" text-anchor="end"'
        parts.append(f"<text {name}>{escape(case['name'])}</text>")
        parts.append(f'<text x="{end + 4:.1f}" y="{y + 9}">{case["cpu_ratio"]:.2f}</text>')
    return "\n".join([*parts, "</svg>\n"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only say whether it is up to date")
    if parser.parse_args().check:
        found = {path: path.read_text(encoding="utf-8") for path in (PAGE, *pictures())}
        return int(found != {PAGE: page(), **pictures()})
    PAGE.write_text(page(), encoding="utf-8")
    for path, picture in pictures().items():
        path.write_text(picture, encoding="utf-8")
    print("wrote", PAGE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
