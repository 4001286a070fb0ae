"""Many baskets in one request, answered as JSON lines: each basket on its own, so that others are answered in between."""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncIterator, Callable
from typing import Any

import numpy as np
from starlette.requests import Request

from ndpp import answers
from ndpp.answers import Record
from ndpp.serve import problems
from ndpp.serve import schemas as s
from ndpp.serve.model import Served
from ndpp.serve.work import Stop, Work

MEDIA_TYPE = "application/x-ndjson"
RESPONSE: dict[str, Any] = {
    "description": "One JSON object per line.",
    "content": {MEDIA_TYPE: {"schema": {"type": "string"}}},
}


def resolved(model: Served, ask: s.BatchAsk, stop: Stop) -> s.BatchAsk:
    """Return the request with ids in the lists that all baskets share, and a seed; raise where a label is unknown."""
    exclude = model.ids(ask.exclude, "exclude").tolist()
    candidates = None if ask.candidates is None else model.ids(ask.candidates, "candidates").tolist()
    seed = secrets.randbelow(2**32) if ask.seed is None else ask.seed
    return ask.model_copy(update={"exclude": exclude, "candidates": candidates, "seed": seed})


async def lines(work: Work, request: Request, model: Served, ask: s.BatchAsk) -> AsyncIterator[bytes]:
    """Yield one line for each basket, in order: its answer, or its problem."""
    for i, basket in enumerate(ask.baskets):
        task = _task(model, ask, basket, i)
        try:
            answer = (await work.run(request, task, admitted=True)).data()
        except Exception as error:
            found = problems.of(error)
            if found is None:
                raise
            answer = {"problem": found}
        yield json.dumps({"index": i, **answer}, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace") + b"\n"


def _task(model: Served, ask: s.BatchAsk, basket: list[s.Item], i: int) -> Callable[[Stop], Record]:
    """Return the question for one basket."""
    lists: dict[str, Any] = {"n": ask.n, "ids": ask.ids, "exclude": ask.exclude, "candidates": ask.candidates}
    if ask.task == "recommend":
        order: dict[str, Any] = {"ranking": ask.ranking, "damping": ask.damping, "support": ask.support}
        return lambda stop: answers.recommend(model, basket, **lists, **order)
    if ask.task == "complete":
        assert ask.seed is not None
        seed = int(np.random.SeedSequence([ask.seed, i]).generate_state(1)[0])
        return lambda stop: answers.complete(model, basket, **lists, size=ask.size, seed=seed, check=stop.check)
    return lambda stop: answers.probability(model, basket)
