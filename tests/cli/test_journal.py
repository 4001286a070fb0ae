"""A journal keeps what a run has made, whatever ends the run."""

from __future__ import annotations

import pytest

from ndpp import Baskets
from ndpp.cli.journal import Journal, journal_path, read_made_with
from ndpp.errors import InvalidInputError

MADE_WITH = {"seed": 3, "size": None, "given": [1, 2]}
FIRST, SECOND = Baskets.from_lists([[0, 12], []]), Baskets.from_lists([[3]])


@pytest.fixture
def target(tmp_path):
    with Journal(tmp_path / "out.csv", MADE_WITH) as journal:
        journal.append(FIRST)
    return tmp_path / "out.csv"


def test_it_goes_on_where_it_stopped(target):
    with Journal(target, MADE_WITH, resume=True) as journal:
        assert len(journal) == 2
        journal.append(SECOND)
        assert list(journal.baskets()) == [[0, 12], [], [3]]
        journal.remove()
    assert not journal_path(target).exists()


@pytest.mark.parametrize("piece", [b"7", b"7 1", b"\xff"])
def test_a_torn_line_is_cut_off(target, piece):
    with open(journal_path(target), "ab") as file:
        file.write(piece)
    with Journal(target, MADE_WITH, resume=True) as journal:
        assert len(journal) == 2
        journal.append(SECOND)
        assert list(journal.baskets()) == [[0, 12], [], [3]]


def test_cut_at_every_byte_it_still_goes_on(target):
    whole = journal_path(target).read_bytes()
    for end in range(len(whole) + 1):
        journal_path(target).write_bytes(whole[:end])
        with Journal(target, MADE_WITH, resume=True) as journal:
            rows = [[0, 12], []][: len(journal)]
            assert list(journal.baskets()) == rows
            journal.append(FIRST[len(rows) :])
        assert journal_path(target).read_bytes() == whole


def test_without_resume_nothing_is_overwritten(target):
    with pytest.raises(FileExistsError, match="interrupted run"):
        Journal(target, MADE_WITH)
    assert read_made_with(target) == MADE_WITH


def test_without_a_basket_there_is_nothing_to_keep(tmp_path):
    for seed in range(2):
        with Journal(tmp_path / "out.txt", {"seed": seed}):
            assert read_made_with(tmp_path / "out.txt") is None


def test_other_settings_do_not_continue_it(target):
    with pytest.raises(InvalidInputError, match=r"another size \(None, now 4\)"):
        Journal(target, {**MADE_WITH, "size": 4}, resume=True)


def test_a_strange_file_is_left_alone(tmp_path):
    path = journal_path(tmp_path / "out.txt")
    path.write_text("my notes\nare here\n")
    with pytest.raises(InvalidInputError, match="not a journal"):
        Journal(tmp_path / "out.txt", MADE_WITH, resume=True)
    assert path.read_text() == "my notes\nare here\n"
