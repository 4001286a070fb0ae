"""Errors carry fields, their messages are made from them, and they arrive from another process as they were."""

from __future__ import annotations

import pickle
from functools import partial

import numpy as np
import pytest

import ndpp
from ndpp import errors
from ndpp.baskets import Baskets

CASES = [
    errors.NDPPError("it failed"),
    errors.InvalidInputError("must be odd; got 4", argument="rank", advice="Use {rank:3}, or {format}."),
    errors.UnknownLabelError("bred", ("butter", "bread")),
    errors.UnknownItemError(9, 5, argument="given", advice="Look again."),
    errors.InvalidKernelError("not positive"),
    errors.ImpossibleSizeError("too large"),
    errors.ImpossibleLimitError("no set keeps them", limits=("exactly 1 of 4 items",)),
    errors.ZeroProbabilityError("never"),
    errors.NoConditionalKernelError("no kernel"),
    errors.RefusedUpdateError("worse than before", advice="Look again.", updated="a model"),
    errors.ModelFileError("torn"),
    errors.RowsUnavailableError("gone"),
    errors.DataNotFoundError("not there"),
    errors.UnfinishedRunError("out.ndpp-part", "the baskets"),
    errors.BusyFileError("out.csv"),
    errors.OtherSettingsError("out.ndpp-part", "rank", 3, 4),
    errors.MissingExtraError("torch", "learn", "Learning"),
    errors.PartialResultError("stopped", partial=[1]),
    errors.BudgetExceededError("too many", count=7, partial=[1, 2]),
    errors.DeviceError("lost", partial=[3]),
    errors.PrecisionError("too few digits", partial=[4]),
]


def every_kind(kind: type = errors.NDPPError) -> set[type]:
    return {kind}.union(*map(every_kind, kind.__subclasses__()))


def test_every_error_is_tried_here():
    assert {kind for kind in every_kind() if kind.__module__ == "ndpp.errors"} == set(map(type, CASES))


@pytest.mark.parametrize("error", CASES, ids=lambda error: type(error).__name__)
def test_errors_arrive_from_another_process_as_they_were(error):
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert (str(again), again.args, vars(again)) == (str(error), error.args, vars(error))


@pytest.mark.parametrize(
    ("kind", "base"),
    [
        (errors.InvalidInputError, ValueError),
        (errors.UnknownLabelError, errors.InvalidInputError),
        (errors.UnknownItemError, errors.InvalidInputError),
        (errors.OtherSettingsError, errors.InvalidInputError),
        (errors.ModelFileError, ValueError),
        (errors.RowsUnavailableError, OSError),
        (errors.DataNotFoundError, FileNotFoundError),
        (errors.UnfinishedRunError, FileExistsError),
        (errors.MissingExtraError, ImportError),
        (errors.BudgetExceededError, RuntimeError),
        (errors.DeviceError, RuntimeError),
        (errors.PrecisionError, ArithmeticError),
        (errors.TrainingInterruptedWarning, UserWarning),
    ],
)
def test_bases(kind, base):
    assert issubclass(kind, base)


def test_messages_are_made_from_fields():
    class Options(errors.Names):
        def argument(self, argument: str) -> str:
            return f"--{argument}"

        def setting(self, argument: str, value: str) -> str:
            return f"--{argument} {value or '…'}"

    error = CASES[1]
    assert str(error) == "rank must be odd; got 4. Use rank=3, or format=…."
    assert error.text(Options()) == "--rank must be odd; got 4. Use --rank 3, or --format …."
    assert (
        str(errors.InvalidInputError("the label '{x}' is odd")) == "the label '{x}' is odd"
    )  # only advice is filled in


PLANE = ndpp.LowRankKernel(np.eye(4)[:, :2] + 0.1)


def test_a_size_above_the_rank_comes_with_what_lifts_it():
    kernel, told = PLANE, r"rank of the kernel, 2; size 3 was asked for. Larger sets need a background=…, L = diag\("
    for ask in (kernel.sample, kernel.inclusion_probabilities, partial(ndpp.greedy_map, kernel)):
        with pytest.raises(errors.ImpossibleSizeError, match=told):
            ask(size=3)
    larger = ndpp.LowRankKernel(kernel.X, background=np.full(4, 0.1)).sample(size=3, rng=0)
    assert larger.sizes.tolist() == [3]


@pytest.mark.parametrize(
    ("law", "size"),
    [
        (PLANE, 5),
        (PLANE.restrict([0, 1]), 3),
        (ndpp.LowRankKernel(PLANE.X, background=[0.5, 0.0, 0.0, 0.0]), 4),
        (ndpp.Mixture([PLANE, PLANE], [0.5, 0.5]), 3),
    ],
    ids=["more than all items", "all items that can occur", "with a background", "mixture"],
)
def test_a_size_that_no_background_allows_comes_without_it(law, size):
    with pytest.raises(errors.ImpossibleSizeError, match=rf"no set is larger than .*; size {size} was asked for$"):
        law.inclusion_probabilities(size)


def test_an_unknown_label_comes_with_labels_like_it():
    with pytest.raises(errors.UnknownLabelError, match=r"unknown label 'bred'; did you mean 'bread'\?") as raised:
        Baskets.from_lists([["bred"]], labels=["butter", "bread", "beer"])
    assert (raised.value.label, raised.value.suggestions, raised.value.n_labels) == ("bred", ("bread",), 3)
    with pytest.raises(
        errors.UnknownLabelError, match="not among the 2 labels of the catalogue, such as 'tea'"
    ) as raised:
        ndpp.LowRankKernel(np.eye(2), np.eye(2), labels=["tea", "milk"]).ids(["salt"])
    assert raised.value.suggestions == ()


def test_an_unknown_item_is_named():
    with pytest.raises(errors.UnknownItemError, match=r"item ids must lie in 0..4; unknown item id 9\. Pass") as raised:
        Baskets.from_lists([[9]], n_items=5)
    assert (raised.value.item, raised.value.n_items) == (9, 5)
    with pytest.raises(errors.UnknownItemError, match=r"given must lie in 0..1; unknown item id 7$") as raised:
        ndpp.LowRankKernel(np.eye(2), np.eye(2)).sample(given=[7])
    assert raised.value.argument == "given"
