"""A journal keeps what a run has made, whatever ends the run."""

from __future__ import annotations

import subprocess
import sys

import pytest

import only_posix
from ndpp import Baskets
from ndpp._atomic import one_writer, part_path
from ndpp.cli.journal import Journal, read_made_with
from ndpp.errors import BusyFileError, InvalidInputError

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
    assert not part_path(target).exists()


@pytest.mark.parametrize("piece", [b"7", b"7 1", b"\xff"])
def test_a_torn_line_is_cut_off(target, piece):
    with open(part_path(target), "ab") as file:
        file.write(piece)
    with Journal(target, MADE_WITH, resume=True) as journal:
        assert len(journal) == 2
        journal.append(SECOND)
        assert list(journal.baskets()) == [[0, 12], [], [3]]


def test_cut_at_every_byte_it_still_goes_on(target):
    whole = part_path(target).read_bytes()
    for end in range(len(whole) + 1):
        part_path(target).write_bytes(whole[:end])
        with Journal(target, MADE_WITH, resume=True) as journal:
            rows = [[0, 12], []][: len(journal)]
            assert list(journal.baskets()) == rows
            journal.append(FIRST[len(rows) :])
        assert part_path(target).read_bytes() == whole


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
    with pytest.raises(InvalidInputError, match=r"another given \(\[1, 2\], now None\)"):
        Journal(target, {"seed": 3, "size": None}, resume=True)


@pytest.mark.parametrize(
    "content", ["my notes\nare here\n", "one line", "[1]\n2\n", '{"seed": 3}\n1 2\n', '{"ndpp_journal": 2}\n1\n', "{"]
)
@pytest.mark.parametrize("resume", [True, False])
def test_a_foreign_file_is_left_alone(tmp_path, content, resume):
    path = part_path(tmp_path / "out.txt")
    path.write_text(content)
    if content == "{":  # what a run killed at its first byte leaves
        Journal(tmp_path / "out.txt", MADE_WITH, resume=resume).remove()
        return
    with pytest.raises(InvalidInputError, match="not a journal of baskets"):
        Journal(tmp_path / "out.txt", MADE_WITH, resume=resume)
    assert path.read_text() == content


@pytest.mark.parametrize("line", [b"1 \0\n", b"-1\n", b"1  2\n", b"x\n", b"1,2\n"])
def test_a_damaged_line_is_an_error(target, line):
    with open(part_path(target), "ab") as file:
        file.write(line)
    with pytest.raises(InvalidInputError, match=r"line 4 of .* is damaged"):
        Journal(target, MADE_WITH, resume=True)


def test_a_file_has_one_writer_at_a_time(tmp_path):
    target = tmp_path / "out.txt"
    for _ in range(2):
        with one_writer(target):
            with pytest.raises(BusyFileError, match="another process is writing"), one_writer(target):
                pytest.fail("two writers")
            with one_writer(tmp_path / "other.txt"):
                pass
        assert list(tmp_path.iterdir()) == []


@only_posix.signals
def test_a_killed_process_is_no_writer(tmp_path):
    code = (
        f"from ndpp._atomic import one_writer\nwith one_writer({str(tmp_path / 'x')!r}): print(1, flush=True), input()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"1\n"
        with pytest.raises(BusyFileError), one_writer(tmp_path / "x"):
            pytest.fail("two writers")
        process.kill()
        process.wait()
    with one_writer(tmp_path / "x"):
        pass
