"""Ctrl-C, kill -9, a full disk, a reader that leaves: files are whole or not there, and what continues a run ends with the same bytes."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from functools import partial
from pathlib import Path

import pytest

import ndpp
import only_posix
from command import ENVIRONMENT, UNMEASURED, Done, Forked, end, has_epoch, launch, pausing, spawn
from ndpp.cli import guard
from ndpp.samplers import base
from patience import HANG_SECONDS, until

QUICK = ["-n", 800, "--seed", 7, "--size", 3]
SAMPLE = ["--seed", 7, "--size", 3, "--sampler", "walk", "--steps", 2]
ENDLESS = ["-n", 10**6]  # they are not all drawn before the test has its turn, however busy the machine is


def wait_for(condition, process: subprocess.Popen[bytes] | Forked) -> None:
    while not condition():
        assert process.poll() is None, end(process)
        time.sleep(0.01)


@only_posix.signals
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_file_that_is_appended_to_ends_with_the_same_bytes(call, plain, tmp_path, number):
    out = tmp_path / "out.txt"
    with out.open("wb") as file:
        process = spawn("sample", plain, *SAMPLE, *ENDLESS, cwd=tmp_path, stdout=file)
        wait_for(lambda: out.read_bytes().count(b"\n") > 50, process)
        process.send_signal(number)
        done = end(process)
    if number == signal.SIGINT:
        told = "\nndpp: interrupted; --seed 7 --first N continues after N baskets\n"
        assert (done.code, done.err) == (130, told)
    lines = out.read_bytes().splitlines(keepends=True)
    kept = b"".join(line for line in lines if line.endswith(b"\n"))
    n = kept.count(b"\n")
    rest = call("sample", plain, *SAMPLE, "-n", 30, "--first", n, "--jobs", 2)
    whole = call("sample", plain, *SAMPLE, "-n", n + 30)
    assert kept.decode() + rest.out == whole.out


@only_posix.signals
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_file_is_whole_or_not_there(call, plain, tmp_path, number):
    out = tmp_path / "out.csv"
    process = spawn("sample", plain, *SAMPLE, *ENDLESS, "-o", out, cwd=tmp_path)
    wait_for(lambda: list(tmp_path.iterdir()), process)
    process.send_signal(number)
    done = end(process)
    if number == signal.SIGINT:
        told = f"\nndpp: interrupted; {str(out)!r} was not written; --first draws it in parts\n"
        assert (done.code, done.out, done.err) == (130, "", told)
        assert not list(tmp_path.iterdir())
    assert not out.exists()
    assert call("sample", plain, *SAMPLE, "-n", 40, "-o", out).code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["out.csv"]


@pytest.mark.parametrize("first", [0, 3, 4, 8])
def test_completions_go_on_where_they_stopped(call, models, tmp_path, first):
    words = ["complete", models / "shelf.safetensors", "-", "--add", 1, "-n", 2, "--seed", 4]
    half = "tea\t\nbread\tjam\nrice\t\npesto\ttea\n"
    whole = call(*words, stdin=half).out.splitlines()
    assert call(*words, "--first", first, stdin=half).out.splitlines() == whole[first:]
    table, part = (call(*words, "--to", "csv", *more, stdin=half).out.splitlines() for more in ((), ("--first", first)))
    assert part[0] == table[0]
    assert set(part[1:]) <= set(table[1:])
    assert part[1:] == table[len(table) - len(part) + 1 :]


@only_posix.signals
def test_on_standard_output_baskets_come_as_they_are_drawn(plain, tmp_path):
    process = spawn("sample", plain, *SAMPLE, *ENDLESS, cwd=tmp_path)
    assert process.stdout is not None
    first = process.stdout.readline()
    process.send_signal(signal.SIGINT)
    done = end(process)
    assert (done.code, done.err) == (130, "\nndpp: interrupted; --seed 7 --first N continues after N baskets\n")
    assert len(first.split()) == 3
    assert all(len(line.split()) == 3 for line in done.out.splitlines())


@only_posix.signals
@pytest.mark.parametrize("model", ["mixture", "ndpp"])
def test_fit_interrupted_and_killed_ends_with_the_same_model(call, models, tmp_path, model):
    words = ["fit", models / "orders.csv", "--rank", 6, "--max-epochs", 4, "--patience", 100, "--seed", 3, "--jobs", 1]
    words += ["--model", model]
    assert call(*words, "-o", tmp_path / "whole.safetensors").code == 0
    out, part = tmp_path / "out.safetensors", tmp_path / "out.safetensors.ndpp-part"
    words += ["-o", out]
    env = pausing(tmp_path / "pausing", part.name)

    process = spawn(*words, cwd=tmp_path, env=env)
    wait_for(lambda: has_epoch(part), process)
    process.send_signal(signal.SIGINT)
    done = end(process)
    assert (done.code, done.out) == (130, "")
    assert f"ndpp: interrupted; training up to epoch 1 is saved in {str(part)!r}\n" in done.err
    assert part.exists()
    assert not out.exists()

    assert call("info", part, "--json").json["kind"] == "unfinished training"

    refused = call(*words)
    assert (refused.code, refused.err.count("\n")) == (1, 1)
    assert "Continue it with --resume, or delete it" in refused.err

    before = part.read_bytes()
    process = spawn(*words, "--resume", cwd=tmp_path, env=env)
    wait_for(lambda: part.read_bytes() != before, process)
    process.kill()
    end(process)
    assert not out.exists()

    assert call(*words, "--resume").code == 0
    assert out.read_bytes() == (tmp_path / "whole.safetensors").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.safetensors", "pausing", "whole.safetensors"]


@only_posix.signals
def test_several_fits_interrupted_in_the_second_end_with_the_same_model(call, models, tmp_path):
    words = ["fit", models / "orders.csv", "--rank", 2, "--max-epochs", 2, "--patience", 100, "--seed", 3, "--jobs", 1]
    words += ["--model", "mixture", "--missions", 2, "--fits", 3]
    assert call(*words, "-o", tmp_path / "whole.safetensors").code == 0
    out = tmp_path / "out.safetensors"
    first, second, third = (tmp_path / f"out.safetensors{k}.ndpp-part" for k in ("", ".2", ".3"))
    words += ["-o", out]

    process = spawn(*words, cwd=tmp_path, env=pausing(tmp_path / "pausing", second.name))
    wait_for(lambda: has_epoch(second), process)
    process.send_signal(signal.SIGINT)
    done = end(process)
    assert (done.code, done.out) == (130, "")
    assert f"ndpp: interrupted; training up to epoch 3 is saved in {str(first)!r}\n" in done.err
    assert "Traceback" not in done.err
    assert (first.exists(), second.exists(), third.exists(), out.exists()) == (True, True, False, False)

    continued = call(*words, "--resume")
    assert continued.code == 0
    epochs = [line.split(",")[0] for line in continued.err.splitlines() if line.startswith("epoch")]
    assert epochs == ["epoch 2 of 2", "epoch 1 of 2", "epoch 2 of 2"]  # of the second fit, and of the third
    assert out.read_bytes() == (tmp_path / "whole.safetensors").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.safetensors", "pausing", "whole.safetensors"]


@only_posix.limits
def test_a_full_disk_leaves_nothing(call, plain, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", disk], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("a small disk can only be made by root")
    whole, out = tmp_path / "whole.txt", disk / "out.txt"
    assert call("sample", plain, *QUICK, "-o", whole).code == 0
    try:
        done = end(spawn("sample", plain, *QUICK, "-o", out, cwd=tmp_path))
        assert (done.code, done.out) == (1, "")
        assert done.err == f"ndpp: error: {str(out)!r}: No space left on device, so nothing was written\n"
        assert not list(disk.iterdir())
        subprocess.run(["mount", "-o", "remount,size=1m", disk], check=True)
        assert call("sample", plain, *QUICK, "-o", out).code == 0
        assert out.read_bytes() == whole.read_bytes()
    finally:
        subprocess.run(["umount", disk], check=True)


@only_posix.limits
def test_a_file_that_may_not_grow_leaves_nothing(call, plain, tmp_path):
    import resource

    whole, out = tmp_path / "whole.txt", tmp_path / "out.txt"
    assert call("sample", plain, *QUICK, "-o", whole).code == 0

    limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (4096, 4096))
    done = end(spawn("sample", plain, *QUICK, "-o", out, cwd=tmp_path, env=UNMEASURED, preexec_fn=limit))
    assert (done.code, done.err) == (1, f"ndpp: error: {str(out)!r}: File too large, so nothing was written\n")
    assert [path.name for path in tmp_path.iterdir()] == ["whole.txt"]
    assert call("sample", plain, *QUICK, "-o", out).code == 0
    assert out.read_bytes() == whole.read_bytes()


@pytest.mark.parametrize("words", [["--help"], ["fit", "--help"]])
def test_a_reader_may_leave_a_page_of_help(tmp_path, words):
    reader, writer = os.pipe()
    os.close(reader)
    done = end(spawn(*words, cwd=tmp_path, stdout=writer))
    os.close(writer)
    assert (done.code, done.err) == (0, "")


@only_posix.limits
def test_a_folder_that_cannot_be_written_is_found_out_first(call, shelf, models, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", disk], capture_output=True, check=False).returncode:
        disk.chmod(0o555)
    try:
        if os.access(disk, os.W_OK):
            pytest.skip("no folder is read-only for this user")
        for words in (["sample", shelf], ["evaluate", shelf, models / "orders.csv"], ["fit", models / "orders.csv"]):
            done = call(*words, "-o", disk / "x.txt")
            assert done.code == 1
            assert done.err.startswith(f"ndpp: error: '{disk}/x.txt' cannot be written: its folder is read-only")
        with pytest.raises(OSError, match=r"disk/kernel'$"):
            ndpp.save(ndpp.load(shelf), disk / "kernel")
    finally:
        subprocess.run(["umount", disk], capture_output=True, check=False)
        disk.chmod(0o755)


@only_posix.limits
def test_training_that_may_not_be_kept_says_why(models, tmp_path):
    import resource

    limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (4096, 4096))
    words = ["fit", models / "orders.csv", "-o", "x.safetensors", "--max-epochs", 1, "--model", "ndpp"]
    done = end(spawn(*words, cwd=tmp_path, env=UNMEASURED, preexec_fn=limit))
    assert done.code == 1
    error = done.err.splitlines()[-1]  # after what is told about the training
    assert error.startswith(f"ndpp: error: could not write '{tmp_path}/x.safetensors.ndpp-part': ")
    assert "File too large" in error
    assert [path.name for path in tmp_path.iterdir()] == ["x.safetensors.ndpp-part"]  # of the beginning, which fits


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
@pytest.mark.parametrize("words", [["--help"], ["fit", "--help"]])
def test_help_that_cannot_be_written(tmp_path, words):
    with open("/dev/full", "wb") as full:
        done = end(spawn(*words, cwd=tmp_path, stdout=full))
    assert (done.code, done.err) == (1, "ndpp: error: could not write the output: No space left on device\n")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
@pytest.mark.parametrize("words", [["info"], ["sample", "--to", "parquet"]])
def test_standard_output_that_cannot_be_written(shelf, tmp_path, words):
    with open("/dev/full", "wb") as full:
        done = end(spawn(words[0], shelf, *words[1:], cwd=tmp_path, stdout=full))
    assert (done.code, done.err) == (1, "ndpp: error: could not write the output: No space left on device\n")


@pytest.mark.skipif(not os.path.isdir("/sys"), reason="there is no folder that not even root may write")
@pytest.mark.parametrize(
    ("command", "file", "out"),
    [("sample", "shelf.safetensors", "txt"), ("fit", "orders.csv", "safetensors"), ("info", "orders.csv", "txt")],
)
def test_a_folder_that_may_not_be_written(call, models, command, file, out):
    done = call(command, models / file, "-o", f"/sys/out.{out}")
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
    assert "Permission denied" in done.err


@only_posix.signals
def test_a_reader_that_leaves_is_no_failure(shelf, tmp_path):
    process = spawn("sample", shelf, "-n", 100_000, cwd=tmp_path)
    assert process.stdout is not None
    assert process.stdout.readline()
    process.stdout.close()
    process.stdout = None
    assert end(process) == (0, "", "")


def test_a_pipe_of_commands(shelf, tmp_path):
    reader, writer = os.pipe()
    first = spawn("sample", shelf, "-n", 20, cwd=tmp_path, stdout=writer)
    os.close(writer)
    second = spawn("evaluate", shelf, "-", cwd=tmp_path, stdin=reader)
    os.close(reader)
    assert end(first) == (0, "", "")
    done = end(second)
    assert (done.code, done.err) == (0, "")
    assert "20 baskets" in done.out
    assert "± is half the width of a 95% interval." in done.out


def test_the_installed_command_is_this_one(tmp_path):
    script = Path(sys.executable).with_name("ndpp")
    if not script.exists():
        pytest.skip("the package is not installed with its command")
    done = subprocess.run([script, "--version"], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert done.stdout.startswith("ndpp ")


def on_terminal(words, folder) -> tuple[Done, str]:
    """Return how a command ended whose standard error is a terminal, and what was seen there."""
    import pty

    leader, follower = pty.openpty()
    process = spawn(*words, cwd=folder, stderr=follower, env={**ENVIRONMENT, "TERM": "xterm"})
    os.close(follower)
    seen = b""
    with contextlib.suppress(OSError):  # the terminal closes with the process
        while piece := os.read(leader, 4096):
            seen += piece
    os.close(leader)
    return end(process), seen.decode()


@only_posix.terminal
def test_a_terminal_sees_progress_and_standard_output_does_not(plain, tmp_path):
    done, seen = on_terminal(["sample", plain, "-n", 200, "--seed", 1, "-o", "out.txt"], tmp_path)
    assert done[:2] == (0, "")
    assert "drawing" in seen
    assert "200 baskets in" in seen
    assert "seed 1, in 'out.txt'" in seen


@only_posix.terminal
def test_the_bars_of_a_diagnosis_say_what_is_drawn(plain, tmp_path):
    done, seen = on_terminal(["diagnose", plain, "--size", 3, "-n", 20, "--json"], tmp_path)
    assert done.json["size"] == 3
    for what in ("long chains", "independent chains", "exact samples"):
        assert what in seen
    assert "sampling" not in seen


SLOW = f"""
import os, time
os.write(2, b"importing")
for _ in range(int({HANG_SECONDS} * 100)):  # a signal just before a sleep is handled after it
    time.sleep(0.01)
"""


@only_posix.signals
@pytest.mark.parametrize("package", ["scipy", "typer"])  # the library's own, and the command's
def test_interrupted_while_it_is_imported_it_says_one_line(tmp_path, package):
    (tmp_path / f"{package}.py").write_text(SLOW)
    entry = [sys.executable, "-c", "from _ndpp_command import main; main()", "--version"]
    env = {**ENVIRONMENT, "PYTHONPATH": str(tmp_path)}
    process = subprocess.Popen(entry, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)
    assert process.stderr is not None
    assert process.stderr.read(9) == b"importing"
    process.send_signal(signal.SIGINT)
    assert end(process) == (130, "", "\nndpp: interrupted\n")


@only_posix.signals
def test_what_is_told_to_ignore_interrupts_ignores_them(tmp_path):
    entry = [sys.executable, "-c", "from _ndpp_command import main; main()", "info", "-"]
    process = subprocess.Popen(
        entry, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT, cwd=tmp_path,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )  # fmt: skip
    for _ in range(20):
        process.send_signal(signal.SIGINT)
        time.sleep(0.05)
    out, err = process.communicate(b"0 1\n1 2\n", timeout=HANG_SECONDS)
    assert (process.returncode, err) == (0, b"")
    assert b"baskets" in out


def in_a_finalizer() -> None:
    class Press:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    Press()


def in_a_callback_of_a_reference() -> None:
    class Referenced:
        pass

    there = Referenced()
    kept = weakref.ref(there, lambda _: signal.raise_signal(signal.SIGINT))
    del there
    assert kept() is None


def in_a_callback_of_the_collector() -> None:
    def press(*_: object) -> None:
        gc.callbacks.remove(press)
        signal.raise_signal(signal.SIGINT)

    gc.callbacks.append(press)
    gc.collect()


def in_a_callback_from_c() -> None:
    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    press = kind(lambda *_: signal.raise_signal(signal.SIGINT) or 0)
    ctypes.CDLL(None).qsort(ctypes.create_string_buffer(b"ba"), 2, 1, press)


def where_everything_is_caught() -> None:
    with contextlib.suppress(BaseException):
        signal.raise_signal(signal.SIGINT)


def twice() -> None:
    where_everything_is_caught()
    with contextlib.suppress(BaseException):
        time.sleep(HANG_SECONDS)


@pytest.fixture
def heeded():
    """SIGINT raises an exception, even where this process was told to ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeded")
@only_posix.signals
@pytest.mark.parametrize(
    "lose",
    [in_a_finalizer, in_a_callback_of_a_reference, in_a_callback_of_the_collector, in_a_callback_from_c,
     where_everything_is_caught, twice],
    ids=lambda lose: lose.__name__,
)  # fmt: skip
def test_an_interrupt_that_is_lost_comes_again(lose, capfd):
    went_on = []

    def command() -> None:
        lose()
        went_on.append(True)
        time.sleep(HANG_SECONDS)  # one long sleep, which only a signal ends
        went_on.append(True)

    handler, hook = signal.getsignal(signal.SIGINT), sys.unraisablehook
    with pytest.raises(SystemExit) as ended:
        guard.guarded(command)()
    assert (ended.value.code, went_on) == (130, [True])
    assert capfd.readouterr() == ("", "\nndpp: interrupted\n")  # and nothing about exceptions that were ignored
    assert (signal.getsignal(signal.SIGINT), sys.unraisablehook) == (handler, hook)


@pytest.mark.usefixtures("heeded")
@only_posix.signals
def test_after_a_command_nothing_is_sent(capfd):
    for _ in range(2):
        guard.guarded(where_everything_is_caught)()
    until(lambda: not [thread for thread in threading.enumerate() if thread.name == "ndpp-signals"])
    assert capfd.readouterr() == ("", "")


GARBLED = f"""
import os, time
try:
    os.write(2, b"importing")
    time.sleep({HANG_SECONDS})
except KeyboardInterrupt:
    raise TypeError("what some extension makes of it") from None
"""


@only_posix.signals
def test_interrupted_while_torch_is_loaded_it_says_so(models, tmp_path):
    (tmp_path / "torch.py").write_text(GARBLED)
    env = {**ENVIRONMENT, "PYTHONPATH": str(tmp_path)}
    process = launch("fit", models / "orders.csv", "-o", "out.safetensors", cwd=tmp_path, env=env)
    assert process.stderr is not None
    stages = [process.stderr.readline() for _ in range(2)]
    assert stages == [f"reading {models / 'orders.csv'}\n".encode(), b"loading torch\n"]
    assert process.stderr.read(9) == b"importing"
    process.send_signal(signal.SIGINT)
    done = end(process)
    assert (done.code, done.out) == (130, "")
    assert done.err.startswith("\nndpp: interrupted; nothing was learned yet; to start again: ndpp fit ")
    assert done.err.count("\n") == 2
    assert [path.name for path in tmp_path.iterdir() if path.suffix in (".ndpp-part", ".safetensors")] == []


@pytest.mark.usefixtures("heeded")
@only_posix.signals
def test_what_compiled_code_makes_of_an_interrupt_ends_as_one(call, plain, monkeypatch):
    def masked(*_):
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise SystemError("returned NULL without setting an exception") from None

    monkeypatch.setattr(base, "_draw_batch", masked)
    told = "\nndpp: interrupted; --seed 7 --first N continues after N baskets\n"
    assert call("sample", plain, *QUICK) == (130, "", told)


@only_posix.signals
def test_experiments_that_were_finished_are_kept(call, tmp_path, monkeypatch):
    words = ["reproduce", "table3", "map-init", "--quick", "-o", "out"]
    process = spawn(*words, cwd=tmp_path, env=pausing(tmp_path / "pausing", "report.md"))
    wait_for((tmp_path / "out" / "report.md").exists, process)
    process.send_signal(signal.SIGINT)
    done = end(process)
    assert (done.code, done.out) == (130, "")
    assert done.err == "\nndpp: interrupted; finished experiments are in 'out'; --resume continues\n"
    before = (tmp_path / "out" / "table3.json").stat().st_mtime_ns
    monkeypatch.chdir(tmp_path)
    assert call(*words, "--resume").code == 0
    assert (tmp_path / "out" / "table3.json").stat().st_mtime_ns == before
    assert (tmp_path / "out" / "map-init.json").exists()
