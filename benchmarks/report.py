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

Both sides do the same work in one process, in turns; figures are medians. A ratio above 1 means
that lancelet is faster. Machines are shared and noisy, so ratios are worth more than times, and
CPU time (of all threads) more than wall time.
`make bench` measures anew and writes this page from `benchmarks/results`.
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
        f"{machine['python']}, at a load of {load:.1f} when it ended."
    )


def files(run: Run) -> Iterator[str]:
    """Yield the comparison with the reference, and the sizes."""
    yield "\n## Beside the reference\n"
    yield f"{machine_of(run)} Rows are {run['scale']:g} times those of the full benchmark."
    yield from table(["case", "ours, ms", "theirs, ms", "wall ratio", "CPU ratio"], _cases(run))
    yield "\n" + (FOLDER / "where_the_time_goes.md").read_text(encoding="utf-8").rstrip("\n")
    yield "\n## Size\n"
    yield "Bytes per value of a column in a file of its own."
    sizes = [
        [name, *(f"{found[key]:.2f}" for key in ("raw", "ours", "reference", "parquet"))]
        for name, found in run["bytes_per_value"].items()
    ]
    yield from table(["column", "in memory", "ours", "reference 2.2", "Parquet zstd"], sizes)


def tables(run: Run) -> Iterator[str]:
    """Yield the comparison of tables with the reference."""
    yield "\n## Tables\n"
    yield f"{machine_of(run)} Rows are {run['scale']:g} times those of the full benchmark."
    yield from table(["case", "ours, ms", "theirs, ms", "wall ratio", "CPU ratio"], _cases(run))


def writes(run: Run) -> Iterator[str]:
    """Yield the comparison of writes with the reference, and how small the files are."""
    yield "\n## Writes\n"
    yield (
        f"{machine_of(run)} Rows are {run['scale']:g} times those of the full benchmark. *File* is "
        "one data file, *table* a new table. `lineitem` is made by the rules of TPC-H's public "
        "specification (`benchmarks/lineitem.py`)."
    )
    yield from table(["case", "ours, ms", "theirs, ms", "wall ratio", "CPU ratio"], _cases(run))
    yield "\nHow many times smaller a file is than its values in memory:"
    sizes = [
        [name, *(f"{own[side]:.2f}" for side in ("ours", "theirs"))]
        for name, own in run["times_smaller"].items()
    ]
    yield from table(["values", "ours", "reference"], sizes)


def text_builds(run: Run) -> Iterator[str]:
    """Yield the comparison of builds of text indices with the reference, and their memory."""
    yield "\n## Builds of text indices\n"
    peaks = run["peak_mb"]
    yield (
        f"{machine_of(run)} {run['num_rows']:,} texts of 50 words, with positions, each side in a "
        f"process of its own, which takes {peaks['lancelet']:.0f} MB at most with lancelet and "
        f"{peaks['lance']:.0f} MB with the reference.{_yardstick(run)}"
    )
    yield from table(["case", "ours, ms", "theirs, ms", "wall ratio", "CPU ratio"], _cases(run))


def _yardstick(run: Run) -> str:
    found = run.get("tantivy_ms")
    return "" if found is None else f" Tantivy takes {found:,.0f} ms of CPU."


def texts(run: Run) -> Iterator[str]:
    """Yield the comparison of searches of texts with the reference."""
    yield "\n## Texts\n"
    yield (
        f"{machine_of(run)} The ten best of {run['num_rows']:,} texts, with one stored number of "
        "each. Tantivy is a library for texts alone, whose CPU time stands beside as a yardstick."
    )
    beside = run.get("tantivy_ms", {})
    rows = [[*case, f"{beside[case[0]]:.3f}" if case[0] in beside else ""] for case in _cases(run)]
    head = ["case", "ours, ms", "theirs, ms", "wall ratio", "CPU ratio", "tantivy, CPU ms"]
    yield from table(head, rows)


def vectors(run: Run) -> Iterator[str]:
    """Yield the comparison of searches of vectors with the reference."""
    yield f"\n## {run['rows']:,} vectors of {run['dimension']} elements\n"
    said = [machine_of(run), "A case is 20 searches of the ten nearest, one after the other."]
    yield " ".join([*said, *([run["note"]] if "note" in run else [])])
    yield from table(["case", "ours, ms", "theirs, ms", "wall ratio", "CPU ratio"], _cases(run))
    peaks = run.get("build_peak_mib")
    if peaks:
        yield "\nThe most memory that a process takes to build an index, mapped files included:"
        rows = [[kind, *(str(own[side]) for side in SIDES)] for kind, own in peaks.items()]
        yield from table(["index", "ours, MiB", "theirs, MiB"], rows)


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
        f"{machine_of(run)} CPU time. *First* is with a new reader, which verifies each block that "
        "it reads; *again* with a reader that has read the rows before; *from disk* is the wall "
        "time where the system has none of the file in memory, which is mostly the disk's; *used* "
        "adds up the values that were read. A scan of values that are "
        "not compressed does not touch them when the file is mapped, so there the cost of "
        "verification is that of looking at the bytes at all; see "
        "[what it is made of](adr/0007-checksums-per-block.md)."
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
    yield "\nThe size of a block decides what a scattered read has to hash:"
    yield from table(["block", "scan, GB/s", "1000 blocks, ms", "share of the file"], blocks)


def indices(run: Run) -> Iterator[str]:
    """Yield the comparison of scalar indices with the reference, and the memory of builds."""
    yield "\n## Scalar indices\n"
    yield (
        f"{machine_of(run)} A table of {run['num_rows']:,} rows, the same files for both sides. "
        "*To a scan of ours* is with an index beside without: below 1 the index did not pay."
    )
    yield from table(["case", "ours, ms", "theirs, ms", "wall ratio", "CPU ratio"], _cases(run))


def index_builds(run: Run) -> Iterator[str]:
    """Yield the comparison of builds of scalar indices with the reference, and their memory."""
    yield "\n## Builds of scalar indices\n"
    yield machine_of(run)
    yield from table(["case", "ours, ms", "theirs, ms", "wall ratio", "CPU ratio"], _cases(run))
    yield "\nHow much a process grows while it builds an index, and to how much:"
    peaks = [
        [name, *(f"{mb:.0f}" for side in ("lancelet", "lance") for mb in grown[side])]
        for name, grown in run["peak_mb"].items()
    ]
    yield from table(["index", "ours, MB", "to MB", "theirs, MB", "to MB"], peaks)


def spark(run: Run) -> Iterator[str]:
    """Yield the comparison of Spark on Lance with Spark on Parquet."""
    yield "\n## Spark beside Spark's own Parquet\n"
    yield (
        f"{machine_of(run)} Both in one session, in turns, medians of {run['rounds']}, with "
        f"{8_000_000 * run['scale']:,.0f} rows of 16 columns. Here a ratio **below** 1 means that "
        "Lance takes less time; see [what it depends on](guide/spark/speed.md)."
    )
    rows = [
        [
            case["name"],
            f"{case['lance_s']:.3f}",
            f"{case['parquet_s']:.3f}",
            f"{case['lance_s'] / case['parquet_s']:.2f}",
            f"{case['target']:.1f}",
        ]
        for case in run["spark_cases"]
    ]
    yield from table(["case", "Lance, s", "Parquet, s", "ratio", "wanted at most"], rows)


def training(run: Run) -> Iterator[str]:
    """Yield the comparison of loaders."""
    yield "\n## Training\n"
    yield (
        f"{machine_of(run)} Rows are {run['scale']:g} times those of the full benchmark. Each "
        f"loader ran {run['seconds']:g} seconds in its own process; samples a second are those "
        "after the first batch. A shuffle is of all rows, but for MDS of blocks of 262,144 rows, "
        "and for WebDataset of a buffer of 1,000. Memory is what a process grew by, without its "
        "workers, and with the pages of the files that it maps."
    )
    names = ("samples_per_second", "samples_per_cpu_second", "first_batch_ms", "grown_mb")
    rows = [
        [name, *(f"{found[each]:,.0f}" for each in names)] for name, found in run["loads"].items()
    ]
    head = ["rows, order, loader", "samples/s", "per CPU second", "first batch, ms", "memory, MB"]
    yield from table(head, rows)


SECTIONS = {
    "files": files,
    "writes": writes,
    "tables": tables,
    "indices": indices,
    "index_builds": index_builds,
    "text": texts,
    "text_builds": text_builds,
    "vectors": vectors,
    "verify": verification,
    "spark": spark,
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
            lines.append(f"![CPU ratio of each case, by a logarithmic scale]({_picture(name)})\n")
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
