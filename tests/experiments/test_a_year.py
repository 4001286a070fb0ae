"""A year in monthly steps: months on disk, and what is told of rows; test_reproduce runs a short year."""

from __future__ import annotations

import json

from ndpp_experiments import a_year
from ndpp_experiments.a_year import ANEW, NEVER, UPDATED, Month


def test_months_are_read_as_they_were_written(tmp_path):
    months = a_year._synthetic(0)
    a_year.write_months(months, tmp_path / "months.npz")
    again = a_year.read_months(tmp_path / "months.npz")
    assert [(one.to_lists(), one.labels) for one in again] == [(one.to_lists(), one.labels) for one in months]


def row(month: int, model: str, likelihood: float, seconds: float) -> Month:
    return Month(
        month, model, 100, likelihood, 0.1, likelihood + 20.0, 0.01, -19.0 - likelihood, None, 0.3, 0.01, seconds
    )


def test_rows_are_summed_up_without_the_first_month_where_all_models_are_the_same(tmp_path):
    rows = [
        row(month, *rest)
        for month in (3, 4, 5)
        for rest in ((ANEW, -19.0, 30.0), (NEVER, -20.0, 0.0), (UPDATED, -19.2 - (month == 3), 5.0))
    ]
    path = tmp_path / "rows.json"
    path.write_text(json.dumps({"rows": [one._asdict() for one in rows]}))
    assert a_year.read_rows(path) == rows
    found = {one.what: one.ours for one in a_year.result(rows, {}).findings}
    assert found[f"{UPDATED}: log-likelihood behind a new fit"].startswith(
        "0.200 nats per order; 80% of what a new fit gains"
    )
    assert found[f"{ANEW}: hit rate@10, and seconds"] == "0.300, 30.0 s"
