"""Mission weights given context: planted ones are found, noise is dropped, and the estimators and ``ndpp.fit`` take columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ndpp
from ndpp import Baskets, Mixture
from ndpp._stop import stopping
from ndpp.baskets.orders import Orders, in_context
from ndpp.errors import InvalidInputError
from ndpp.laws.gate import Gain
from ndpp.learning import NDPP, MixtureNDPP
from ndpp.learning import context as learned
from ndpp.learning.run import OutOfTime

C, N_ITEMS = 3, 12
ODDS = np.where(np.arange(N_ITEMS) // 4 == np.arange(C)[:, None], 0.7, 0.15)
WEIGHTS = np.array([0.5, 0.3, 0.2])
STORES = np.array([[0.8, -0.9, 0.0], [-0.8, 0.9, 0.0], [0.0, 0.0, 0.8], [0.0, 0.0, -0.9]])
SHARES = [0.4, 0.3, 0.25, 0.05]


@pytest.fixture(scope="module")
def law() -> Mixture:
    return Mixture.tied(ODDS, np.zeros((N_ITEMS, 1)), np.zeros((1, 1)), WEIGHTS).without_empty()


def baskets_in_context(law: Mixture, n: int, seed: int = 0) -> Orders:
    """Baskets of a law without ties, drawn without the library; the store matters, and noise does not."""
    rng = np.random.default_rng(seed)
    store, noise = rng.choice(4, n, p=SHARES), rng.integers(0, 10, n)
    weights = law.weights * np.exp(STORES[store])
    component = (np.cumsum(weights, axis=1) / weights.sum(axis=1, keepdims=True) < rng.random((n, 1))).sum(axis=1)
    p = (ODDS / (1 + ODDS))[component]
    found = rng.random(p.shape) < p
    while (empty := ~found.any(axis=1)).any():
        found[empty] = rng.random((empty.sum(), N_ITEMS)) < p[empty]
    sets = Baskets.from_csr(found.astype(int))
    words = {"noise": noise.astype(str), "store": np.array(["1", "2", "10", "x"])[store]}
    made = Orders(sets, context=words)
    return made


@pytest.fixture(scope="module")
def found(law: Mixture) -> tuple[Orders, Orders, Mixture, tuple[Gain, ...]]:
    every = baskets_in_context(law, 4500)
    training, held_out = every[:3000], every[3000:]
    gate, gains = learned.learn_context(law, training, held_out)
    assert gate is not None
    return training, held_out, law.with_context(gate.levels, gate.shifts), gains


def test_a_planted_context_is_found_and_noise_is_dropped(law, found):
    _, held_out, fitted, (store, noise) = found
    assert (store.column, store.n_values, store.kept) == ("store", 4, True)
    assert (noise.column, noise.n_values, noise.kept) == ("noise", 10, False)
    assert store.gain > 5 * store.error
    assert fitted.context == {"store": ("1", "10", "2", "x")}
    gained = fitted.log_probs(held_out, context=held_out.context) - law.log_probs(held_out)
    assert np.mean(gained) == pytest.approx(store.gain, abs=1e-5)
    assert np.std(gained) / np.sqrt(len(gained)) == pytest.approx(store.error, rel=1e-3)
    truth = law.with_context({"store": ("1", "2", "10", "x")}, STORES)
    best = truth.log_probs(held_out, context=held_out.context) - law.log_probs(held_out)
    assert np.mean(gained) == pytest.approx(np.mean(best), abs=0.02)  # of about 0.15
    for word, shift in zip(("1", "2", "10"), STORES):
        expected = law.weights * np.exp(shift)
        assert fitted.at(store=word).weights == pytest.approx(expected / expected.sum(), abs=0.06)


def test_the_penalised_likelihood_is_largest(law, found):
    """Against the likelihood as the law computes it, in all directions that leave the mean of β as it is."""
    training, _, fitted, (store, _) = found
    shares = np.array([np.mean(training.context["store"] == word) for word in fitted.context["store"]])
    shifts, rng = fitted.gate.shifts, np.random.default_rng(0)

    def value(change: np.ndarray) -> float:
        law = fitted.with_context(fitted.context, shifts + change)
        penalty = store.strength / 2 * np.sum((shifts + change) ** 2)
        return float(law.log_probs(training, context=training.context).sum() - penalty)

    assert shares @ shifts == pytest.approx(np.zeros(C), abs=1e-9)
    now = value(np.zeros_like(shifts))
    for _ in range(10):
        step = rng.normal(0, 0.03, shifts.shape)
        step -= shares @ step
        assert value(step) < now
        assert value(-step) < now


def test_weights_are_repetitions(law):
    every = baskets_in_context(law, 900, seed=1)
    counts = np.random.default_rng(2).integers(1, 4, 600).astype(float)
    weighted = Orders(every[:600], context=every[:600].context, weights=counts)
    repeated = every[np.repeat(np.arange(600), counts.astype(int))]
    one, two = (learned.learn_context(law, training, every[600:])[0] for training in (weighted, repeated))
    assert one.shifts == pytest.approx(two.shifts, abs=2e-3)


def test_few_baskets_say_little_and_new_values_nothing(law, found):
    *_, fitted, _ = found
    strong = learned._Table.of(law, found[0], {"store": ("1", "2")})
    shifts = learned._fitted(strong, {"store": np.zeros((2, C))}, {"store": 1e6})["store"]
    assert np.abs(shifts).max() < 0.01
    assert fitted.at(store="new", unknown="skip").weights == pytest.approx(law.weights)


def test_noise_is_seldom_kept(law):
    """At most one column of eight, each of them judged on baskets of its own."""
    kept = 0
    for seed in range(8):
        every = baskets_in_context(law, 450, seed=10 + seed)
        noise = Orders(every, context={"noise": every.context["noise"]})
        kept += learned.learn_context(law, noise[:300], noise[300:])[0] is not None
    assert kept <= 1


def test_columns_that_say_nothing(law):
    every = baskets_in_context(law, 300)
    words = {"same": np.full(150, "a"), "nothing": np.full(150, "")}
    parts = (Orders(part, context=words) for part in (every[:150], every[150:]))
    gate, gains = learned.learn_context(law, *parts)
    assert gate is None
    assert [(one.column, one.n_values, one.gain, one.kept) for one in gains] == [
        ("same", 1, 0.0, False),
        ("nothing", 0, 0.0, False),
    ]


def test_without_time_columns_are_dropped(law):
    def stop() -> None:
        raise OutOfTime

    every = baskets_in_context(law, 300)
    with stopping(stop):
        gate, gains = learned.learn_context(law, every[:200], every[200:])
    assert gate is None
    assert [str(one) for one in gains] == [
        f"{name} dropped: there was no time to judge it" for name in ("noise", "store")
    ]


def test_many_baskets_are_sampled(law, monkeypatch):
    monkeypatch.setattr(learned, "MAX_ENTRIES", 300 * C)
    every = baskets_in_context(law, 900)
    tables, of = [], learned._Table.of.__func__
    monkeypatch.setattr(learned._Table, "of", classmethod(lambda *a: tables.append(of(*a)) or tables[-1]))
    learned.learn_context(law, every[:600], every[600:])
    assert [len(table.likelihoods) for table in tables] == [300, 300]


# ---- estimators, ndpp.fit -------------------------------------------------------------------------------------------

SETTINGS: dict[str, Any] = {"n_missions": 2, "max_epochs": 2, "families": None, "random_state": 0}


def shop(n: int = 300) -> tuple[list[list[str]], list[str], list[str]]:
    """Breakfast on weekends, and tea on other days."""
    rng = np.random.default_rng(0)
    days = [np.datetime64("2026-03-02") + int(i) for i in rng.integers(0, 70, n)]  # a Monday
    weekend = np.array([int((day - np.datetime64("2026-03-02")).astype(int)) % 7 >= 5 for day in days])
    breakfast = rng.random(n) < np.where(weekend, 0.9, 0.1)
    goods = {True: ["bread", "butter", "jam"], False: ["tea", "milk", "sugar"]}
    baskets = [list(rng.permutation(goods[bool(one)])[: rng.integers(2, 4)]) for one in breakfast]
    return baskets, list(map(str, days)), rng.integers(0, 5, n).astype(str).tolist()


@pytest.fixture(scope="module")
def frame() -> Any:
    pd = pytest.importorskip("pandas")
    rows = [(i, item, day, till) for i, (basket, day, till) in enumerate(zip(*shop())) for item in basket]
    return pd.DataFrame(rows, columns=["basket", "item", "when", "till"])


def is_breakfast_on_sundays(law: Any) -> bool:
    sunday, monday = (
        law.at(weekday=day).inclusion_probabilities()[law.ids(["bread", "tea"])] for day in ("Sunday", "Monday")
    )
    return bool(sunday[0] > 2 * monday[0] and monday[1] > 2 * sunday[1])


def test_fit_takes_columns_of_a_table(frame, tmp_path, short_epochs):
    model = ndpp.fit(frame, context=["till", "weekday"], time="when", **SETTINGS)
    assert [(one.column, one.kept) for one in model.context_] == [("weekday", True), ("till", False)]
    assert set(model.law_.context["weekday"]) == {
        "Monday",
        "Tuesday",
        "Wednesday",
        "Thursday",
        "Friday",
        "Saturday",
        "Sunday",
    }
    assert is_breakfast_on_sundays(model.law_)
    ndpp.save(model, tmp_path / "m.safetensors")
    assert is_breakfast_on_sundays(ndpp.load(tmp_path / "m.safetensors"))
    told = ndpp.load_metadata(tmp_path / "m.safetensors")["context"]
    assert [Gain(**one) for one in told] == list(model.context_)
    orders = Orders.read(frame, time="when")
    later = orders.times >= np.datetime64("2026-04-25")
    split = ndpp.fit(orders[~later], context=["weekday"], validation=orders[later], **SETTINGS)
    assert split.context_[0].kept
    with pytest.raises(
        InvalidInputError, match="context names 'till', but these orders have weekday, month, season, hour"
    ):
        ndpp.fit(orders, context=["till"], **SETTINGS)


@pytest.mark.parametrize("package", ["pandas", "polars", "pyarrow"])
def test_context_may_be_a_data_frame(package):
    package = pytest.importorskip(package)
    sets, columns = (
        Baskets.from_lists([["tea"], ["rye"], ["tea"]]),
        {"store": [3, 1, None], "day": ["Mon", "Tue", "Mon"]},
    )
    frame = getattr(package, "table" if package.__name__ == "pyarrow" else "DataFrame")(columns)
    words = in_context(sets, frame, "context").context
    assert {name: own.tolist() for name, own in words.items()} == {
        "store": ["3", "1", ""],
        "day": ["Mon", "Tue", "Mon"],
    }


def test_estimators_take_a_mapping(short_epochs):
    baskets, days, tills = shop()
    sets = Baskets.from_lists(baskets)
    week = {"weekend": [np.is_busday(day) for day in days], "till": tills}
    model = MixtureNDPP(**SETTINGS).fit(sets[:220], context={k: v[:220] for k, v in week.items()}, validation=sets[220:],
                                        validation_context={k: v[220:] for k, v in week.items()})  # fmt: skip
    assert [(one.column, one.kept) for one in model.context_] == [("weekend", True), ("till", False)]
    assert model.law_.context == {"weekend": ("False", "True")}
    plain = MixtureNDPP(**SETTINGS).fit(sets[:220], validation=sets[220:])
    np.testing.assert_array_equal(plain.law_.odds, model.law_.odds)  # context comes after all else
    assert plain.context_ == ()
    assert "context" not in plain.about()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda sets, n: NDPP(rank=2).fit(sets, context={"a": ["1"] * n}), "context is for mixtures.*NDPP has none"),
        (lambda sets, n: MixtureNDPP().fit(sets, context={"a": ["1"]}), "context must have 40 values of 'a', one per basket; got 1"),
        (lambda sets, n: MixtureNDPP().fit(sets, context=["a"]), "must be a mapping from columns"),
        (lambda sets, n: MixtureNDPP(validation_fraction=0.0).fit(sets, context={"a": ["1"] * n}), "judged by validation baskets"),
        (lambda sets, n: MixtureNDPP().fit(sets, context={"a": ["1"] * n}, validation=sets), "must have the columns a; it has none"),
        (lambda sets, n: ndpp.fit(sets, context=["a"]), "context names 'a', but these orders have no columns. Give a mapping"),
        (lambda sets, n: ndpp.fit(sets, context="a"), r"must be a list of columns, such as \['a'\]"),
    ],
)  # fmt: skip
def test_bad_context_is_refused(make, message: str):
    sets = Baskets.from_lists([["bread", "butter"], ["tea"]] * 20)
    with pytest.raises(InvalidInputError, match=message):
        make(sets, len(sets))


def test_too_many_values_are_refused(monkeypatch):
    monkeypatch.setattr(learned, "MAX_LEVELS", 30)
    sets = Baskets.from_lists([["bread", "butter"], ["tea"]] * 20)
    with pytest.raises(InvalidInputError, match="40 different values of 'time', such as '0'; at most 30"):
        MixtureNDPP().fit(sets, context={"time": range(40)})


# -- an update -----------------------------------------------------------------------------------------------------------------------


def moved(baskets: Orders, **names: str) -> Orders:
    """Return the baskets with other names of their stores."""
    store = np.array([names.get(f"s{word}", word) for word in baskets.context["store"]])
    made = Orders(baskets, context={**baskets.context, "store": store})
    return made


def test_an_update_learns_what_changes_and_new_values(law):
    """Stores 1 and 2 have changed places, and x is now called 9; "noise" is not of the law. The rest of the gate stays."""
    levels = {"store": ("1", "2", "10", "x"), "till": ("a", "b")}
    tills = np.array([[0.2, -0.1, 0.0], [-0.2, 0.1, 0.0]])
    before = law.with_context(levels, np.vstack([STORES, tills]))
    every = moved(baskets_in_context(law, 4500, seed=5), s1="2", s2="1", sx="9")
    training, held_out = every[:3000], every[3000:]
    gate, gain = learned.relearn_context(before, training, held_out)
    assert (gain.column, gain.n_values, gain.kept) == ("store", 5, True)
    after = law.with_context(gate.levels, gate.shifts)
    assert after.context == {"store": ("1", "2", "10", "x", "9"), "till": ("a", "b")}
    assert gate.shifts[5:] == pytest.approx(tills)
    assert gate.shifts[3] == pytest.approx(STORES[3], abs=0.01)  # nothing was heard of x
    gained = after.log_probs(held_out, context=held_out.context) - before.log_probs(held_out, context=held_out.context)
    assert np.mean(gained) == pytest.approx(gain.gain, abs=1e-5)
    assert gain.gain > 5 * gain.error
    for word, shift in zip(("2", "1", "10"), STORES):
        expected = law.weights * np.exp(shift)
        assert after.at(store=word).weights == pytest.approx(expected / expected.sum(), abs=0.15)  # the mean stays
    base, shares = (
        np.vstack([STORES, np.zeros(C)]),
        np.array([np.mean(training.context["store"] == w) for w in after.context["store"]]),
    )
    assert shares @ (gate.shifts[:5] - base) == pytest.approx(np.zeros(C), abs=1e-9)

    def value(shifts: np.ndarray) -> float:
        own = law.with_context({"store": gate.levels["store"]}, shifts)
        return float(
            own.log_probs(training, context=training.context).sum() - gain.strength / 2 * np.sum((shifts - base) ** 2)
        )

    now, rng = value(gate.shifts[:5]), np.random.default_rng(0)
    for _ in range(10):
        step = rng.normal(0, 0.03, (5, C))
        step -= shares @ step
        assert value(gate.shifts[:5] + step) < now


def test_an_update_that_gains_nothing_keeps_the_gate(law):
    before = law.with_context({"store": ("1", "2", "10", "x")}, STORES)
    every = baskets_in_context(law, 900, seed=6)
    gate, gain = learned.relearn_context(before, every[:600], every[600:])
    assert gate is before.gate
    assert (gain.column, gain.kept) == ("store", False)
    one = every[every.context["store"] == "1"]
    for orders in (one, Orders(every, context={"noise": every.context["noise"]})):
        assert learned.relearn_context(before, orders, every[600:]) == (before.gate, None)
