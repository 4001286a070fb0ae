"""What is asked wrongly is refused with exit code 2, what fails with 1 and one clear line; help is there for all."""

from __future__ import annotations

import io
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import ndpp
from command import ENVIRONMENT, end, spawn
from ndpp.answers import ItemTable
from ndpp.cli.app import commands, help_of, run
from ndpp.cli.guard import message_of
from ndpp.cli.output import cell

COMMANDS = {name: command for panel in commands().values() for name, command in panel.items()}
NAMES = list(COMMANDS)
STAGE = re.compile(r"^(reading .*|loading torch)\n", re.MULTILINE)
"""Stages of `ndpp fit` that are named before something fails."""


def test_all_commands_are_there():
    wanted = "demo try fit update items sample complete recommend map evaluate diagnose reproduce bench info related report prepare serve"
    of_customers = [f"customers {name}" for name in ("fit", "update", "forget", "info")]
    assert sorted(NAMES) == sorted([*wanted.split(), *of_customers])


@pytest.mark.parametrize("name", NAMES)
def test_help_explains_and_shows_examples(call, name):
    done = call(*name.split(), "--help")
    assert done.code == 0
    assert f"ndpp {name}" in done.out.split("Examples:")[1]
    assert call(*name.split(), "-h").out == done.out


@pytest.mark.parametrize("name", NAMES)
def test_examples_use_options_that_exist(call, name):
    examples = help_of(COMMANDS[name]).split("Examples:")[1]
    known = call(*name.split(), "--help").out.split("Arguments")[-1]
    own = [line for line in re.split(r"[|\n]", examples) if line.strip().startswith(f"ndpp {name} ")]
    assert own
    for option in re.findall(r" (--?[a-z][a-z-]*)", " ".join(own)):
        assert re.search(rf"{option}\b", known), option


def test_version(call):
    assert call("--version").out == f"ndpp {ndpp.__version__}\n"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["smaple"], "No such command"),
        (["sample"], "Usage"),
        (["sample", "SHELF", "-n", "many"], "number"),
        (["sample", "SHELF", "-n", "-3"], "number"),
        (["sample", "SHELF", "--sampler", "gibbs"], "'gibbs' is not one of exact, walk, rejection-walk"),
        (["sample", "SHELF", "--sampler", "naive"], "'naive' is not one of"),
        (["diagnose", "SHELF", "--walk", "clock"], "'clock' is not one of walk, rejection-walk"),
        (["sample", "SHELF", "--resume"], "with the same --seed, --first N continues"),
        (["sample", "SHELF", "--json", "--to", "csv"], "use either --json or --to"),
        (["sample", "SHELF", "--sampler", "walk", "-g", "tea", "-k", "3"], "--given needs --sampler exact"),
        (["sample", "SHELF", "--sampler", "cholesky", "-k", "3"], "any size"),
        (["sample", "SHELF", "--steps", "3"], "--steps and --start are for walks"),
        (["sample", "SHELF", "--sampler", "clock", "--device", "cuda"], "others run on the CPU"),
        (["sample", "SHELF", "--sampler", "walk", "--size", "2", "--device", "cuda"], "others run on the CPU"),
        (["complete", "SHELF", "-g", "tea", "--size", "4", "--add", "1"], "use either --size"),
        (["complete", "SHELF", "FILE", "-g", "tea"], "not from both"),
        (["map", "SHELF"], "--size"),
        (["sample", "SHELF", "--mission", "1"], "--mission is for mixtures"),
        (["sample", "MIXTURE", "--sampler", "walk", "-k", "2"], "mixtures are drawn by --sampler exact"),
        (["fit", "FILE", "-o", "x.safetensors", "--test", "300"], "must leave baskets to fit on, of 300; got 300"),
        (["fit", "FILE", "-o", "x.safetensors", "--max-epochs", "0"], "--max-epochs"),
        (["fit", "FILE"], "--output"),
        (
            ["fit", "FILE", "-o", "x.safetensors", "--model", "symmetric", "--gamma", "1"],
            "not an option of --model symmetric",
        ),
        (
            ["fit", "FILE", "-o", "x.safetensors", "--model", "ndpp", "--missions", "3"],
            "--missions is not an option of --model ndpp",
        ),
        (["fit", "FILE", "-o", "x.safetensors", "--noise", "1"], "--noise is not an option of --model mixture"),
        (
            ["evaluate", "SHELF", "FILE", "-o", "result.xlsx"],
            "cannot write .xlsx files; use a name that ends in .txt, .csv, .parquet, .json",
        ),
        (["sample", "SHELF", "-o", "drawn.xlsx"], "ends in .txt, .csv, .tsv, .parquet, .json"),
        (["info", "FILE", "-o", "told.xlsx"], "cannot write .xlsx files"),
        (["sample", "SHELF", "--jobs", "0"], "-1 for all cores; got 0"),
        (["reproduce", "--quick"], "--list"),
        (["reproduce", "fig9"], "there is no experiment 'fig9'"),
        (["sample", "SHELF", "--no-such-option"], "--no-such-option"),
    ],
)
def test_wrong_usage(call, shelf, models, words, told):
    places = {"SHELF": str(shelf), "FILE": str(models / "orders.txt"), "MIXTURE": str(models / "trips.safetensors")}
    done = call(*(places.get(word, word) for word in words))
    assert done.code == 2
    assert told in " ".join((done.out + done.err).replace("│", " ").split())


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["sample", "nowhere.safetensors"], "no model file at 'nowhere.safetensors'"),
        (["sample", "MODELS/orders.csv"], "is text, not a model"),
        (["sample", "MODELS/orders.parquet"], "cannot be read as an ndpp model"),
        (["sample", "MODELS"], "cannot be read as an ndpp model"),
        (["diagnose", "MODELS/mixture.safetensors"], "holds a mixture; its samples are exact"),
        (["bench", "MODELS/trips.safetensors"], "holds a mixture; the samplers that are compared need a single kernel"),
        (
            ["sample", "MODELS/trips.safetensors", "--mission", "lunch"],
            "there is no mission 'lunch'; ndpp info lists all 3",
        ),
        (["sample", "MODELS/trips.safetensors", "--mission", "4"], "there is no mission '4'"),
        (["info", "nowhere.txt"], "'nowhere.txt': No such file or directory"),
        (["evaluate", "SHELF", "MODELS/plain.safetensors"], "holds a model, not baskets"),
        (["evaluate", "SHELF", "SHELF", "--from", "parquet"], "holds a model, not baskets"),
        (["evaluate", "SHELF", "-"], "standard input is empty"),
        (["fit", "SHELF", "-o", "OUT/x.safetensors"], "`ndpp fit BASKETS -o MODEL` makes one"),
        (["fit", "MODELS/orders.csv", "-o", "OUT/x.safetensors", "--item", "sku"], "--basket … and --item …"),
        (["fit", "MODELS/orders.csv", "-o", "OUT"], "expected a regular file"),
        (["sample", "SHELF", "--given", "bred"], "did you mean 'bread'?"),
        (["sample", "SHELF", "--given", "3"], "Ids need --ids."),
        (["sample", "MODELS/trips.safetensors", "--mission", "²"], "there is no mission '²'"),
        (["sample", "PLAIN", "--given", "bread"], "'bread' is not an item id"),
        (["sample", "PLAIN", "--given", "²"], "'²' is not an item id"),
        (["sample", "PLAIN", "--given", "99"], "unknown item id 99"),
        (["sample", "SHELF", "--size", "40"], "no set is larger than the rank"),
        (
            ["sample", "PLAIN", "--size", "9"],
            "Larger sets need a kernel of a larger rank, or a mixture; see `ndpp fit --help`.",
        ),
        (["sample", "SHELF", "-g", "tea", "-x", "tea"], "'tea' is both given and excluded; it can be one of them"),
        (["map", "SHELF", "-k", "3", "-g", "3", "-x", "3", "--ids"], "'tomato sauce' is both given and excluded"),
        (["complete", "SHELF", "MODELS/orders.csv", "--add", "8"], "would have 13 items; no basket of this model has"),
        (["complete", "SHELF", "MODELS/orders.csv", "--size", "1"], "it cannot be completed to 1"),
        (["map", "SHELF", "MODELS/orders.csv", "--size", "1"], "it cannot be completed to 1"),
        (["evaluate", "SHELF", "MODELS/none.csv"], "none.csv holds no basket"),
        (["info", "MODELS/orders.txt", "--item", "sku"], "is read as text, one basket per line"),
        (["info", "MODELS/orders.txt", "--item", "sku"], "If it is a table, name its format with --from csv"),
        (["recommend", "SHELF", "MODELS/orders.csv", "--item", "sku"], "has no column 'sku'"),
        (["sample", "SHELF", "-o", "OUT/no/such/folder.txt"], "create it first"),
        (["fit", "MODELS/orders.csv", "-o", "OUT/no/such/model.safetensors"], "create it first"),
        (["sample", "MODELS/junk"], "cannot be read as an ndpp model"),
        (["fit", "MODELS/orders.csv", "-o", "OUT/x.safetensors", "--device", "cuda:9"], "Use --device cpu"),
        (
            ["fit", "MODELS/orders.csv", "-o", "OUT/x.safetensors", "--device", "gpu"],
            "must be 'cpu', 'cuda' or 'cuda:1'",
        ),
        (
            ["fit", "MODELS/orders.csv", "-o", "OUT/x.safetensors", "--validation", "MODELS/strange.csv"],
            "strange.csv: unknown label 'ale'",
        ),
        (["bench", "SHELF", "--size", "40", "--seconds", "0"], "no set is larger than the rank"),
        (["demo", "-o", "MODELS/orders.csv"], "expected a folder for the results"),
        (["reproduce", "fig1", "--quick", "-o", "MODELS/orders.csv"], "expected a folder for the results"),
        (["info", "MODELS/drawn.json"], "is JSON; baskets are read from text, CSV or Parquet"),
        (["sample", "SHELF", "-o", "OUT"], "is a folder"),
        (["evaluate", "SHELF", "MODELS/orders.txt", "-o", "OUT/no/such/folder.txt"], "create it first"),
    ],
)
def test_failures_are_one_clear_line(call, models, tmp_path, words, told):
    places = {
        "MODELS": models,
        "OUT": tmp_path,
        "SHELF": models / "shelf.safetensors",
        "PLAIN": models / "plain.safetensors",
    }
    named = ["/".join(str(places.get(part, part)) for part in word.split("/")) for word in words]
    done = call(*named)
    assert done.code == 1
    assert done.out == ""
    error = re.sub(STAGE, "", done.err)
    assert error.startswith("ndpp: error: ")
    assert error.count("\n") == 1
    assert told in error
    assert not list(tmp_path.iterdir())


@pytest.fixture
def awkward(tmp_path) -> Path:
    """A folder with what the advice of messages is about."""
    (tmp_path / "numbers.txt").write_text("1 2\n")
    (tmp_path / "names.txt").write_text("2\n1\n0\n")
    (tmp_path / "codes.txt").write_text("0 4300000000\n")
    (tmp_path / "long-codes.txt").write_text(f"0 {10**30}\n")
    (tmp_path / "binary.txt").write_bytes(b"tea\0milk\n")
    (tmp_path / "latin.txt").write_bytes("café\n".encode("latin-1"))
    nul = ndpp.LowRankKernel([[1.0], [1.0]], [[1.0]], labels=["green\0tea", "milk"])
    ndpp.save(nul, tmp_path / "nul.safetensors")
    (tmp_path / "damaged.safetensors.ndpp-part").write_bytes(b"of something else")
    return tmp_path


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["info", "MODELS/orders.csv", "--item", "sku"], "Name the right ones with --basket … and --item …"),
        (["fit", "numbers.txt", "-o", "x", "--items", "names.txt"], "may be ids or labels. Choose with --ids or --labels."),
        (["sample", "nul.safetensors", "-o", "x.csv"], "Write text or Parquet, or ids with --ids."),
        (["info", "latin.txt"], "Name its encoding, for example --encoding cp1252, or its format with --from …"),
        (["info", "latin.txt", "--encoding", "klingon"], "--encoding must name a text encoding; got 'klingon'"),
        (["info", "MODELS/orders.txt", "--item", "sku"], "If it is a table, name its format with --from csv"),
        (["info", "binary.txt"], "must be text; it holds binary data. Name its format with --from …"),
        (["fit", "codes.txt", "-o", "x", "--ids"], "Product codes are labels: pass them as strings, or read them with --labels."),
        (["fit", "long-codes.txt", "-o", "x", "--ids"], "Product codes are labels: pass them as strings, or read them with --labels."),
        (["fit", "MODELS/orders.csv", "-o", "x", "--device", "cuda:9"], "Use --device cpu."),
        (["fit", "MODELS/orders.csv", "-o", "damaged.safetensors"], "Continue it with --resume, or delete it"),
        (["fit", "MODELS/orders.csv", "-o", "damaged.safetensors", "--resume"], "Delete it and train again."),
        (["evaluate", "MODELS/plain.safetensors", "wrong.txt"], "unknown item id 99. Is this the catalogue of the model?"),
        (["fit", "MODELS/orders.csv", "-o", "x", "--learning-rate", "0"], "--learning-rate must be a number, above 0; got 0.0"),
        (["fit", "MODELS/orders.csv", "-o", "x", "--model", "ndpp", "--rank", "1"], "--rank must be at least 3; got 1"),
        (["fit", "MODELS/orders.csv", "-o", "x", "--rank", "5"], "--rank must be even, since ties are pairs of columns; got 5"),
        (["fit", "MODELS/orders.csv", "-o", "x", "--device", "tpu9"], "--device must be 'cpu', 'cuda' or 'cuda:1'; got 'tpu9'"),
        (["sample", "MODELS/shelf.safetensors", "-g", "99", "--ids"], "unknown item id 99"),
        (["sample", "MODELS/shelf.safetensors", "-g", "12"], "such as 'pasta'. Ids need --ids."),
    ],
)  # fmt: skip
def test_advice_speaks_of_options(call, models, awkward, monkeypatch, words, told):
    monkeypatch.chdir(awkward)
    (awkward / "wrong.txt").write_text("1 99\n")
    done = call(*(word.replace("MODELS", str(models)) for word in words))
    assert done.code == 1
    assert told in done.err
    assert not re.search(r"\b[a-z_]+=", done.err)  # no argument of a function


def test_training_of_other_settings_is_not_continued(call, models, tmp_path):
    part = tmp_path / "x.safetensors.ndpp-part"
    ndpp.NDPP(rank=6, max_epochs=1, random_state=0, checkpoint=part).fit(ndpp.Baskets.read(models / "orders.csv"))
    done = call(
        "fit", models / "orders.csv", "-o", tmp_path / "x.safetensors", "--model", "ndpp", "--rank", 7, "--resume"
    )
    assert done.code == 1
    assert re.sub(STAGE, "", done.err) == (
        f"ndpp: error: {str(part)!r} was made with another rank (6, now 7). "
        "Resume with the same data and settings, or delete it to begin anew\n"
    )


@pytest.mark.parametrize(
    ("words", "lost"),
    [
        (["fit", "orders.csv", "-o", "orders.csv"], "orders.csv"),
        (["fit", "shop.train.csv", "-o", "shop.safetensors", "--test", "9"], "shop.train.csv"),
        (
            ["fit", "orders.csv", "-o", "shop.safetensors", "--test", "9", "--validation", "shop.test.csv"],
            "shop.test.csv",
        ),
        (["evaluate", "model", "orders.csv", "-o", "orders.csv"], "orders.csv"),
        (["evaluate", "model", "orders.csv", "--train", "shop.train.csv", "-o", "shop.train.csv"], "shop.train.csv"),
        (["recommend", "model", "orders.csv", "-o", "link.csv"], "link.csv"),
        (["complete", "model", "orders.csv", "--add", "1", "-o", "orders.csv"], "orders.csv"),
        (["map", "model", "orders.csv", "-k", "6", "-o", "orders.csv"], "orders.csv"),
        (["sample", "model", "-o", "model"], "model"),
        (["info", "orders.csv", "-o", "orders.csv"], "orders.csv"),
    ],
)
def test_what_is_read_is_never_overwritten(call, models, tmp_path, monkeypatch, words, lost):
    monkeypatch.chdir(tmp_path)
    for name in ("orders.csv", "shop.train.csv", "shop.test.csv"):
        shutil.copy(models / "orders.csv", name)
    shutil.copy(models / "shelf.safetensors", "model")
    os.symlink("orders.csv", "link.csv")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    done = call(*words)
    assert (done.code, done.out) == (1, "")
    assert done.err == f"ndpp: error: '{lost}' is also an input and would be overwritten; write to another file\n"
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_file_of_text_beside_one_with_columns(call, shelf, models, tmp_path):
    ndpp.Baskets.read(models / "orders.csv").write(tmp_path / "orders.csv", basket="order", item="product")
    words = ["--train", models / "orders.txt", "--basket", "order", "--item", "product", "--bootstrap", 0]
    assert call("evaluate", shelf, tmp_path / "orders.csv", *words).code == 0


def test_names_are_shown_as_they_are(call, tmp_path):
    (tmp_path / "o[red].csv").write_text("basket,item\n0,:cat:\n0,[bold]tea\n0,milk\\[1]\n0,[/x]\n")
    shown = call("info", tmp_path / "o[red].csv").out
    assert "o[red].csv" in shown
    assert all(name in shown for name in (":cat: (", "[bold]tea (", "milk\\[1] (", "[/x] ("))
    kernel = ndpp.LowRankKernel([[1.0], [1.0], [2.0]], [[1.0]], labels=[":cat:", "milk\\[1]", "[/x]"])
    ndpp.save(kernel, tmp_path / "model.safetensors")
    shown = call("recommend", tmp_path / "model.safetensors").out
    assert [line.split()[0] for line in shown.splitlines()[2:-1]] == ["[/x]", ":cat:", "milk\\[1]"]


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_what_is_piped_is_utf8(shelf, tmp_path, encoding):
    kernel = ndpp.LowRankKernel([[1.0], [1.0]], [[1.0]], labels=["café ☕", "tea"])
    ndpp.save(kernel, tmp_path / "model.safetensors")
    environment = {**ENVIRONMENT, "PYTHONIOENCODING": encoding}
    for words in (["sample", "model.safetensors", "-g", "café ☕", "-k", 1], ["recommend", "model.safetensors"]):
        done = end(spawn(*words, cwd=tmp_path, env=environment))
        assert (done.code, done.err) == (0, "")
        assert "café ☕" in done.out


def test_ids_in_a_file_of_a_labelled_model(call, shelf):
    done = call("evaluate", shelf, "-", stdin="0 3\n1 2\n")
    assert done.code == 1
    assert done.err.endswith("If the baskets hold ids, use --ids.\n")
    assert call("evaluate", shelf, "-", "--ids", "--bootstrap", 0, stdin="0 3\n1 2\n").code == 0


@pytest.mark.parametrize("place", [0, 1, 3])
def test_debug_shows_where(call, shelf, place):
    words = ["sample", shelf, "--given", "bred"]
    quiet = call(*words)
    words.insert(place if place < 3 else len(words), "--debug")
    done = call(*words)
    assert done.code == quiet.code == 1
    assert "Traceback" not in quiet.err
    assert "Traceback" in done.err
    assert done.err.endswith(quiet.err)


def test_what_was_not_foreseen_is_one_line_too(call, shelf, monkeypatch):
    monkeypatch.setattr("ndpp.cli.files.fingerprint", lambda path: 1 / 0)
    done = call("sample", shelf)
    assert (done.code, done.err) == (
        1,
        "ndpp: error: ZeroDivisionError: division by zero (unexpected; --debug shows the traceback)\n",
    )


def test_words_of_failures():
    assert message_of(OSError(28, "No space left on device", "out.txt")) == "'out.txt': No space left on device"
    assert message_of(OSError(28, "No space left on device")) == "could not write the output: No space left on device"
    assert "memory" in message_of(MemoryError())
    assert message_of(ndpp.errors.NDPPError("two\nlines")) == "two lines"


def test_cells():
    assert [cell(value) for value in (None, 3, 12345, 0.5, 1234.5, 1e9, "a[b]")] == [
        "–",
        "3",
        "12,345",
        "0.5",
        "1,234",
        "1e+09",
        "a[b]",
    ]


def test_the_shell_completes_commands_options_and_labels(capsys, monkeypatch, shelf):
    def complete(*words: str) -> list[str]:
        monkeypatch.setenv("_NDPP_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", " ".join(["ndpp", *words]))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        with pytest.raises(SystemExit):
            run([])
        return capsys.readouterr().out.strip().splitlines()

    assert complete("rec") == ["recommend"]
    assert complete("sample", "--exc") == ["--exclude", "--exclude-file"]
    assert complete("sample", str(shelf), "--given", "b") == ["bread", "butter"]
    assert complete("sample", str(shelf), "--given", "tea,b") == ["tea,bread", "tea,butter"]
    assert complete("sample", "nowhere", "--given", "b") == []
    assert complete("sample", str(shelf), "--given", "tom") == [r"tomato\ sauce"]  # bash inserts it as it is
    assert complete("sample", str(shelf), "--given", r"tomato\ s") == [r"tomato\ sauce"]
    assert complete("sample", str(shelf), "--given", "tea,tom") == [r"tea,tomato\ sauce"]
    assert complete("sample", str(shelf), "--given", '"tomato s') == ["tomato sauce"]
    assert complete("related", str(shelf), "tom") == [r"tomato\ sauce"]
    assert complete("sample", str(shelf), "--sampler", "reject") == ["rejection-walk", "rejection"]
    assert complete("diagnose", str(shelf), "--walk", "w") == ["walk"]
    assert complete("reproduce", "tab") == ["table1", "table2", "table3"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_completes_codes_and_names(capsys, monkeypatch, tmp_path, shell):
    """Codes that start like the word, with their names as help, and names that do; a name of two items is no answer, their codes are."""
    names = {
        "4711": "Rye bread",
        "4712": "Rye crackers",
        "4799": "Milk, skimmed",
        "0815": "Milk",
        "0816": "Milk",
        "a\nb": "Salt",
    }
    law = ndpp.LowRankKernel(np.eye(6), np.eye(6), labels=list(names))
    table = "item,name\n" + "".join(f'"{label}","{name}"\n' for label, name in names.items())
    folder = tmp_path / "my models"
    folder.mkdir()
    ndpp.save(law, folder / "coded.safetensors", metadata=ItemTable.read(io.StringIO(table), law).attach())

    def complete(word: str) -> str:
        words = ["ndpp", "sample", f"'{folder / 'coded.safetensors'}'", "--given", word]
        monkeypatch.setenv("_NDPP_COMPLETE", f"complete_{shell}")
        if shell == "bash":
            monkeypatch.setenv("COMP_WORDS", "\n".join(words))
            monkeypatch.setenv("COMP_CWORD", "4")
        else:
            monkeypatch.setenv("_TYPER_COMPLETE_ARGS", " ".join(words))
            monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
        with pytest.raises(SystemExit):
            run([])
        return capsys.readouterr().out.strip()

    form = {
        "bash": lambda word, help: word.replace(" ", "\\ "),
        "zsh": lambda word, help: f'"{word}":"{help}"',
        "fish": lambda word, help: f"{word}\t{help}",
    }[shell]

    def offers(*found: tuple[str, str]) -> str:
        text = "\n".join(form(*one) for one in found)
        return f"_arguments '*: :(({text}))'" if shell == "zsh" else text

    assert complete("471") == offers(("4711", "Rye bread"), ("4712", "Rye crackers"))
    assert complete("rye") == offers(("Rye bread", "4711"), ("Rye crackers", "4712"))
    assert complete("Mil") == offers(("Milk, skimmed", "4799"), ("0815", "Milk"), ("0816", "Milk"))
    assert complete("4711,Mil") == offers(("4711,0815", "Milk"), ("4711,0816", "Milk"))  # names with commas go alone
    assert complete("'Milk,") == offers(("Milk, skimmed", "4799")).replace("\\", "")
    assert complete("Salt") == ("_files" if shell == "zsh" else "")  # a line for each offer
