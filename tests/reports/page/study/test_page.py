"""What a study's page says without its script."""

from __future__ import annotations

import html
import re
from pathlib import Path

from reports.page import render
from reports.page.study.page import page
from reports.study.frame import best_first, goals_of, knee, pareto, study_frame
from reports.study.rows import about_of
from reports.terminal import text
from tests.reports.page.study.synthetic import ABOUT, write_study


def without_scripts(folder: Path) -> str:
    """The page's words, a table's rows on lines of their own."""
    whole = render.html(page(study_frame(folder), about_of(folder), folder))
    seen = re.sub(r"<(script|style)\b.*?</\1>", "", whole, flags=re.DOTALL)
    lines = re.sub(r"</tr>|</p>|</li>|</h\d>", "\n", seen.replace("\n", ""))
    return "\n".join(" ".join(html.unescape(re.sub("<[^>]+>", " ", line)).split()) for line in lines.split("\n"))


def test_the_named_points_and_the_best_stand_there(tmp_path: Path) -> None:
    folder = write_study(tmp_path / "wide", 200)
    frame, about = study_frame(folder), about_of(folder)
    goals = goals_of(frame, about)
    best = best_first(frame, goals[0])
    front = pareto(frame[frame["status"] == "done"], goals)
    bend = knee(front, goals)
    words = without_scripts(folder)
    assert f"point #{best['index'].iloc[0]} #{bend['index'].iloc[0]} #0\n" in words
    rates = [text.number(row["samples_per_s"].iloc[0]) for row in (best, bend, frame)]
    assert f"samples/s {' '.join(rates)}\n" in words
    assert f"The best 10 of {len(best)} points by samples/s; {len(front)} are on the front" in words
    listed = [line.split()[0] for line in words.split("\n") if re.match(r"#\d+ \d", line)]
    assert listed == [f"#{index}" for index in best["index"].head(10)]
    assert "scenario error 3 #5 wide.toml: rank 3 needs 45 GiB of 40" in words
    assert "twinstep predict criteo_dlrm_2x4 --set run.steps=6 --set cluster.hosts=" in words


def test_the_description_comes_first_heads_are_whole_keys_and_the_uncertainty_has_a_column(tmp_path: Path) -> None:
    folder = write_study(tmp_path / "wide", 20)
    (folder / "study.toml").write_text('description = "Which network pays off?"\n')
    words = without_scripts(folder)
    assert words.index("Which network pays off?") < words.index("20 points")
    heads = next(line for line in words.split("\n") if "samples/s $ per 10^9 step ±" in line)
    assert heads.replace(". ", ".").replace("_ ", "_").startswith(" ".join(ABOUT["keys"]))
    assert re.search(r"^±(?: 12.5 %)+$", words, re.MULTILINE)


def test_a_study_of_which_nothing_came_out_says_so(tmp_path: Path) -> None:
    folder = write_study(tmp_path / "wide", 6)
    frame = study_frame(folder)
    failed = frame[(frame["status"] != "done").to_numpy(bool)]
    assert len(failed) == 1
    for of, tables in ((failed, 1), (frame.head(0), 0)):
        whole = render.html(page(of, ABOUT, folder))
        assert "No point completed." in whole
        assert (whole.count('data-view="table"'), whole.count('data-view="parallel"')) == (tables, 0)
