"""``ndpp items``: new, renamed and withdrawn products, through the command."""

from __future__ import annotations

import numpy as np
import pytest

import ndpp


@pytest.fixture
def shop(tmp_path, mixture):
    ndpp.save(ndpp.load(mixture), tmp_path / "shop", metadata={"made": "yesterday"})
    return tmp_path


def change(call, shop, **files):
    """Run the command with these files, and return what it did and the path that it should write."""
    words = []
    for option, text in files.items():
        (shop / f"{option}.csv").write_text(text)
        words += [f"--{option}", shop / f"{option}.csv"]
    output = shop / "new.safetensors"
    output.unlink(missing_ok=True)
    return call("items", shop / "shop", *words, "--keep", "sets", "-o", output, "--json"), output


def test_a_shop_changes(call, shop):
    old = ndpp.load(shop / "shop")
    first, second, third = old.labels[:3]
    add = f"item,like,weight,popularity\nnew one,{first},3,0.02\nnew one,{second},1,\n{third} XL,,,0.03\n"
    done, output = change(call, shop, add=add, remove=f"item\n{first}\n", rename=f"old,new\n{third},other {third}\n")
    assert done.code == 0, done.err
    law = ndpp.load(output)
    assert law.labels == (second, f"other {third}", *old.labels[3:], "new one", f"{third} XL")
    assert law.inclusion_probabilities()[-2:] == pytest.approx([0.02, 0.03], rel=1e-6)
    assert ndpp.load_metadata(output) == {"made": "yesterday"}
    assert done.json["items"] == law.n_items == old.n_items + 1
    assert [one["item"] for one in done.json["added"]] == ["new one", f"{third} XL"]
    sets, left = [[0], [0, 1]], old.remove([first])
    wanted = left.log_probs(sets) - left.log_prob([1])
    np.testing.assert_allclose(law.log_probs(sets) - law.log_prob([1]), wanted, rtol=1e-6, atol=1e-12)


def test_what_updates_remember_gets_new_names(call, shop):
    """How long an item has been sold, and how long it has not."""
    law = ndpp.load(shop / "shop")
    first, second, third = law.labels[:3]
    memory = {"orders": 100.0, "young": {first: 10.0, second: 20.0}, "unsold": {first: 1, third: 2}}
    ndpp.save(law, shop / "updated.safetensors", metadata={"memory": memory})
    (shop / "rename.csv").write_text(f"old,new\n{first},other\n")
    words = ["--rename", shop / "rename.csv", "-o", shop / "renamed.safetensors"]
    assert call("items", shop / "updated.safetensors", *words).code == 0
    wanted = memory | {"young": {"other": 10.0, second: 20.0}, "unsold": {"other": 1, third: 2}}
    assert ndpp.load_metadata(shop / "renamed.safetensors")["memory"] == wanted


def test_the_others_may_keep_their_shares(call, shop):
    old = ndpp.load(shop / "shop")
    (shop / "add.csv").write_text(f"item,like,popularity\nnew one,{old.labels[0]},0.3\n")
    gaps = {}
    for keep in ("sets", "shares"):
        done = call(
            "items", shop / "shop", "--add", shop / "add.csv", "--keep", keep, "-o", shop / "new.safetensors", "--json"
        )
        assert done.code == 0, done.err
        law = ndpp.load(shop / "new.safetensors").with_empty()
        gaps[keep] = np.abs(law.inclusion_probabilities()[:-1] / old.with_empty().inclusion_probabilities() - 1).max()
    assert gaps["shares"] < 1e-6
    assert gaps["sets"] > 1e-3


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({"add": "item,like\nnew,nobody\n"}, "unknown label 'nobody'"),
        ({"add": "name\nnew\n"}, "has no column 'item'"),
        ({"add": "item,like\n,bread\n"}, "line 2: expected an item"),
        ({"add": "item\n"}, "names no item to add"),
        ({"add": "item,popularity\nrye bread,10 %\n"}, "line 2: popularity should be a number; got '10 %'"),
        ({"add": "item,popularity\nrye bread,1.5\n"}, "popularity must be shares of baskets, above 0 and below 1"),
        ({"add": "item,popularity\nrye bread,0.1\nrye bread,0.2\n"}, "line 3: 'rye bread' has another popularity"),
        ({"add": "item,like\nnew,bread\nnew,bread\n"}, "line 3: 'new' is like 'bread' already"),
        ({"add": "item\nxyzzy\n"}, "no item is like 'xyzzy'"),
        ({"remove": "item\nnobody\n"}, "Leave such items out with --unknown skip"),
        ({"rename": "old,new\nnobody,x\n"}, "unknown label 'nobody'"),
        ({"rename": "old,new\nbread,\n"}, "line 2: expected an old and a new name"),
        ({"rename": "old\nbread\n"}, "has no column 'new'"),
    ],
)
def test_what_is_wrong_is_told_and_nothing_written(call, shop, files, told):
    done, output = change(call, shop, **files)
    assert done.code == 1
    assert told in done.err
    assert not output.exists()


def test_usage(call, shop):
    refused = call("items", shop / "shop", "-o", shop / "x")
    assert refused.code == 2
    assert "none is given" in " ".join(refused.err.replace("│", " ").split())
    assert call("items", shop / "shop", "--remove", "x").code == 2
    (shop / "gone").write_text("nobody\n")
    done = call("items", shop / "shop", "--remove", shop / "gone", "-o", shop / "x", "--unknown", "skip")
    assert done.code == 0
    assert "skipped 1 unknown item" in done.err


def test_a_table_of_names_stays_in_the_model(call, shop):
    """Attached, read by all commands, and kept when items get other codes, enter and leave."""
    first, second, third = ndpp.load(shop / "shop").labels[:3]
    table = f"item,name,price\n{first},Penne,1\n{second},Basmati,2\n{third},Udon,3\n"
    done, output = change(call, shop, table=table, rename=f"old,new\n{first},4710\n")
    assert done.code == 0, done.err
    named = call("items", output, "--table", shop / "table.csv", "-o", shop / "again.safetensors")
    assert named.code == 0
    assert "Penne" not in call("info", shop / "again.safetensors", "--top", 20).out  # 4710 is not in the table
    change(call, shop, table=table.replace(first, "4710"), rename=f"old,new\n{first},4710\n")
    (shop / "rename.csv").write_text("old,new\n4710,4711\n")
    (shop / "remove.txt").write_text(f"{second}\n")
    words = ["--rename", shop / "rename.csv", "--remove", shop / "remove.txt", "-o", shop / "last.safetensors"]
    assert call("items", output, *words).code == 0
    info = call("info", shop / "last.safetensors", "--top", 20)
    assert "Penne" in info.out
    assert "Basmati" not in info.out
    assert "item table" in info.out
    assert "table.csv: name, price" in info.out
    found = call("recommend", shop / "last.safetensors", "--given", "penne", "-n", 20)
    assert f"Udon ({third})" in found.out
    assert call("recommend", shop / "last.safetensors", "--given", 4711, "-n", 20).out == found.out
    data = call("recommend", shop / "last.safetensors", "-g", "penne", "-n", 20, "--json").json
    assert data["names"] == {third: "Udon"}
    csv = call("recommend", shop / "last.safetensors", "-g", "penne", "-n", 20, "-o", shop / "r.csv")
    assert csv.code == 0
    assert f",{third},Udon," in (shop / "r.csv").read_text()
    drawn = call(
        "sample", shop / "last.safetensors", "-n", 3, "--given", "Penne", "--limit", "name:Udon<=0", "--seed", 1
    )
    assert drawn.code == 0, drawn.err
    assert all(line.split("\t")[0] == "4711" or "4711" in line for line in drawn.out.splitlines())
    assert "goes with Penne" in call("related", shop / "last.safetensors", "Penne").out
    assert "unknown label 'Pene'; did you mean 'Penne'?" in call("related", shop / "last.safetensors", "Pene").err


def test_names_of_a_table_are_read_as_they_are_written(call, shop):
    first, second = ndpp.load(shop / "shop").labels[:2]
    (shop / "names.csv").write_text(
        f"item,name\n{first},Salt, pepper\n".replace("Salt, pepper", '"Salt, pepper"') + f"{second},Twin\n"
    )
    words = ["recommend", shop / "shop", "--table", shop / "names.csv", "-n", 3, "--json"]
    assert call(*words, "--given", "salt, pepper").json == call(*words, "--given", first).json
    (shop / "names.csv").write_text(f"item,name\n{first},Twin\n{second},Twin\n")
    told = call(*words, "--given", "twin")
    assert told.code == 1
    assert f"'twin' is the name of 2 items; say which by its label: {first}, {second}" in told.err
    (shop / "report.html").unlink(missing_ok=True)
    assert call("report", shop / "shop", "--table", shop / "names.csv", "-o", shop / "report.html").code == 0
    assert f'Twin <small class="code">{first}</small>' in (shop / "report.html").read_text()
