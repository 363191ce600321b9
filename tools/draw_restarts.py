"""Draw `docs/guide/restarts.svg`: a run that is interrupted 50 times, with other ranks each time.

    upper part    the position in the run of every checkpoint, by session; a color per epoch
    lower part    the number of ranks and the samples per step of each session

The run is the one of `tests/unit/training/test_restarts.py`. All numbers follow from a seed.
"""

from __future__ import annotations

import json
import random
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import lancelet
from lancelet import training

PICTURE = Path(__file__).resolve().parent.parent / "docs/guide/restarts.svg"
ROWS, EPOCHS, INTERRUPTIONS = 1000, 3, 50
WIDTH, HEIGHT, LEFT, TOP = 640, 200, 56, 24
RANKS_TOP, RANKS_HEIGHT = TOP + HEIGHT + 34, 60
_COLORS = ("#08519c", "#3182bd", "#6baed6")


class Session(NamedTuple):
    """A part of the run between two interruptions.

    Positions count the samples of all epochs. Samples between `stop` and `lost` were read after the
    last checkpoint, and the next session reads them again.
    """

    ranks: int
    step: int
    start: int
    stop: int
    lost: int


def run(seed: int = 4) -> tuple[list[Session], list[int], list[int]]:
    """Return the sessions, the rows read before checkpoints, and those of an uninterrupted run."""
    table = lancelet.write_dataset(
        {"id": range(ROWS)}, "memory://drawn-restarts", mode="overwrite", max_rows_per_file=90
    )
    plan = training.plan(table, shuffle="rows", seed=seed)
    expected = [
        row
        for epoch in range(EPOCHS)
        for batch in plan.loader(64, epoch=epoch)
        for row in batch["id"].to_pylist()
    ]
    chance = random.Random(seed)
    sessions: list[Session] = []
    rows: list[int] = []
    state: dict[str, int] = {"epoch": 0, "position": 0}
    saved: str | None = None
    while state["epoch"] < EPOCHS:
        ranks, batch_size = chance.randint(1, 6), chance.randint(2, 16)
        loaders = [plan.loader(batch_size, rank=n, world_size=ranks) for n in range(ranks)]
        for loader in loaders:
            if saved is not None:
                loader.load_state_dict(json.loads(saved))
        start = len(rows)
        steps = 10**6 if len(sessions) >= INTERRUPTIONS else chance.randint(1, 3)
        running = zip(*loaders, strict=True)
        for batches in islice(running, steps):
            rows += [row for batch in batches for row in batch["id"].to_pylist()]
        end_of_epoch = (start // ROWS + 1) * ROWS
        del rows[end_of_epoch:]  # ranks with an uneven last step repeat some rows
        saved = json.dumps(loaders[0].state_dict())
        state = json.loads(saved)
        read_again = sum(len(batch) for part in islice(running, 2) for batch in part)
        lost = min(len(rows) + read_again, end_of_epoch)
        sessions.append(Session(ranks, ranks * batch_size, start, len(rows), lost))
    return sessions, rows, expected


def draw(sessions: list[Session]) -> str:
    """Return the picture."""
    total = ROWS * EPOCHS
    width = (WIDTH - LEFT - 10) / len(sessions)
    box = f'viewBox="0 0 {WIDTH} {RANKS_TOP + RANKS_HEIGHT + 30}"'
    style = 'font-family="sans-serif" font-size="11" fill="#606870"'
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" {box} {style}>']

    def y_of(position: int) -> float:
        return TOP + HEIGHT * (1 - position / total)

    for epoch in range(EPOCHS + 1):
        y = y_of(epoch * ROWS)
        parts.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - 10}" stroke="#d0d4d8"/>')
        parts.append(
            f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{epoch * ROWS:,}</text>'
        )
    for number, each in enumerate(sessions):
        x = LEFT + number * width
        color = _COLORS[each.start // ROWS % len(_COLORS)]
        top, height = y_of(each.stop), y_of(each.start) - y_of(each.stop)
        size = f'width="{width - 1:.1f}" height="{max(height, 1):.1f}"'
        parts.append(f'<rect x="{x:.1f}" y="{top:.1f}" {size} fill="{color}"/>')
        if each.lost > each.stop:
            lost = f'y="{y_of(each.lost):.1f}" height="{top - y_of(each.lost):.1f}"'
            parts.append(f'<rect x="{x:.1f}" {lost} width="{width - 1:.1f}" fill="#f0a0a0"/>')
        bar = RANKS_HEIGHT * each.ranks / 6
        y = RANKS_TOP + RANKS_HEIGHT - bar
        size = f'width="{width - 1:.1f}" height="{bar:.1f}"'
        parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" {size} fill="#808890"/>')
    below = RANKS_TOP + RANKS_HEIGHT
    parts += [
        f'<text x="{LEFT}" y="14">samples consumed; red: read after the last checkpoint</text>',
        f'<text x="{LEFT}" y="{RANKS_TOP - 8}">number of ranks, 1 to 6</text>',
        f'<text x="{LEFT}" y="{below + 18}">session 1</text>',
        f'<text x="{WIDTH - 10}" y="{below + 18}" text-anchor="end">session {len(sessions)}</text>',
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def main() -> None:
    sessions, rows, expected = run()
    assert rows == expected, "the interrupted run read other rows"
    PICTURE.write_text(draw(sessions))
    print(f"{len(sessions)} sessions, {len(rows)} rows in the order of one session: {PICTURE}")


if __name__ == "__main__":
    main()
