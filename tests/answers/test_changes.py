"""What has changed since another version of a model: items by label, missions where they are the same."""

from __future__ import annotations

import io

import numpy as np
import pytest

import ndpp
from ndpp import answers
from ndpp.answers import ItemTable
from ndpp.datasets import make_kernel, shelf_kernel
from ndpp.errors import InvalidInputError
from servers import trips


def weighed(law: ndpp.Mixture, *weights: float) -> ndpp.Mixture:
    return law.framed(law.frame._replace(weights=np.array(weights)))


def test_items_that_both_have_and_those_that_one_has():
    old = shelf_kernel()
    new = old.remove(["jam", "bread"]).add_items({"honey": ["tea"], "ale": ["rice"]}, 0.1).tilt({"honey": 3.0})
    found = answers.changes(new, old, n=100)
    p, q = (dict(zip(law.labels, law.popularity)) for law in (new, old))
    assert {one.item: (one.before, one.now) for one in found.items} == {
        name: pytest.approx((q[name], p[name])) for name in p.keys() & q.keys()
    }
    moved = [abs(one.now**0.5 - one.before**0.5) for one in found.items]
    assert moved == sorted(moved, reverse=True)
    assert [(one.item, one.probability) for one in found.entered] == [("honey", p["honey"]), ("ale", p["ale"])]
    assert [(one.item, one.probability) for one in found.left] == [("bread", q["bread"]), ("jam", q["jam"])]
    assert found.missions == ()
    few = answers.changes(new, old, n=1)
    assert (few.items, few.entered, few.left) == (found.items[:1], found.entered[:1], found.left[:1])
    assert (few.n_entered, few.n_left) == (2, 2)


def test_nothing_has_changed():
    law = trips()
    found = answers.changes(law, law)
    assert all(one.before == one.now for one in (*found.items, *found.missions))
    assert len(found.missions) == 2
    assert (found.entered, found.left, found.n_entered, found.n_left) == ((), (), 0, 0)


def test_missions_are_compared_if_they_are_the_same_also_where_items_are_others():
    old = trips()
    new = weighed(old.remove(["jam"]), 0.7, 0.3).add_items({"honey": ["tea"]}, 0.1)
    found = answers.changes(new, old)
    assert {one.name: one.before for one in found.missions} == {"breakfast": 0.4, "<b>dinner</b>": 0.6}
    shares = {one.name: one.share for one in answers.missions(new)}
    assert {one.name: one.now for one in found.missions} == shares


@pytest.mark.parametrize(
    "old",
    [
        ndpp.Mixture(trips().components[::-1], [0.6, 0.4]),  # of another fit, which has found the same in another order
        ndpp.Mixture([*trips().components, shelf_kernel()], [0.4, 0.4, 0.2]),
        shelf_kernel(),
    ],
)
def test_missions_of_another_fit_are_not_compared(old):
    assert answers.changes(trips(), old).missions == ()


def test_items_without_labels_go_by_their_ids():
    old, new = make_kernel(20, 4, rng=0), make_kernel(22, 4, rng=1)
    found = answers.changes(new, old, n=30)
    assert {one.item: one.before for one in found.items} == dict(enumerate(old.popularity.tolist()))
    assert ({one.item for one in found.entered}, found.left) == ({20, 21}, ())


def test_names_of_the_table_of_either_model():
    old = shelf_kernel()
    new = old.remove(["jam"])
    table = "item,name\njam,Strawberry jam\nbread,Rye bread\n"
    both = [answers.Prepared(law, ItemTable.read(io.StringIO(table), law)) for law in (new, old)]
    found = answers.changes(*both)
    assert '"names": {"bread": "Rye bread", "jam": "Strawberry jam"}' in found.to_json()


def test_models_of_different_shops_are_refused():
    with pytest.raises(InvalidInputError, match=r"old must be .* it has 'pasta', 'rice', …, the model 0, 1, …"):
        answers.changes(make_kernel(20, 4, rng=0), shelf_kernel())
