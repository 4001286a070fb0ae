"""The application: what is asked where."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import partial
from importlib.resources import files
from itertools import count
from pathlib import Path
from typing import Annotated, Any, NamedTuple, cast

import numpy as np
from fastapi import APIRouter, Depends, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.staticfiles import StaticFiles
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException
from starlette.responses import Response, StreamingResponse
from starlette.types import Scope

import ndpp
from ndpp import answers
from ndpp._show import with_names
from ndpp.answers import Record, records
from ndpp.answers.conditions import Said
from ndpp.answers.heard import Heard
from ndpp.errors import InvalidInputError
from ndpp.serve import pages, problems
from ndpp.serve import schemas as s
from ndpp.serve.choice import ModelPath, holder_of, place
from ndpp.serve.gate import Entrance, Guard, read_token
from ndpp.serve.limits import DRAWN_ITEMS, LABEL_LENGTH, RESULTS
from ndpp.serve.model import Holder, NotReadyError, Served, Settings
from ndpp.serve.operations import Metrics
from ndpp.serve.work import StoppingError, Work

Text = Annotated[str, Query(max_length=LABEL_LENGTH)]
Number = Annotated[int, Query(ge=1, le=RESULTS)]
Flag = Annotated[bool, Query()]
PICTURES = {".avif": "image/avif", ".gif": "image/gif", ".jpeg": "image/jpeg", ".jpg": "image/jpeg", ".png": "image/png",
            ".svg": "image/svg+xml", ".webp": "image/webp"}  # fmt: skip
"""What is served of a folder of pictures."""
JSON_LINES = "application/x-ndjson"
LINES: dict[str, Any] = {
    "description": "One JSON object per line.",
    "content": {JSON_LINES: {"schema": {"type": "string"}}},
}
api = APIRouter(prefix="/api", responses=problems.RESPONSES)


def create_app(
    settings: Settings,
    *,
    at_end: Callable[[], None] | None = None,
    refused: Callable[[Exception], None] | None = None,
) -> Entrance:
    """Return the ASGI application of a model file, which it loads once it runs: until then questions are answered with status 503.

    ``at_end`` is called after the last answer, ``refused`` with the error if there is no model because a file cannot be loaded; by default
    the server waits for a better file.
    """
    token = None if settings.token_file is None else read_token(Path(settings.token_file))
    counted, holders = Metrics(), {name: Holder(own) for name, own in settings.by_name().items()}
    first = next(iter(holders.values()))
    work = Work(settings.seconds, settings.threads, settings.waiting)

    def changed(error: Exception | None, loads: Iterator[int]) -> None:
        if next(loads):  # the first is no reload
            counted.reloads.labels("loaded" if error is None else "refused").inc()
        elif error is not None and refused is not None:
            refused(error)
        with contextlib.suppress(NotReadyError):
            counted.items.set(first.current.law.n_items)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
        watchers = [asyncio.create_task(one.watch(partial(changed, loads=count()))) for one in holders.values()]
        yield {"close": work.close}
        for watcher in watchers:
            watcher.cancel()
        work.close()
        if at_end is not None:
            at_end()

    app = FastAPI(
        title="ndpp",
        version=ndpp.__version__,
        description=pages.DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        redirect_slashes=False,  # a redirect would repeat whatever Host header came
    )
    app.state.holders, app.state.work, app.state.metrics = holders, work, counted
    app.add_middleware(ModelPath, names=tuple(holders))
    app.include_router(api)
    app.include_router(health)
    app.include_router(pages.router)
    app.mount("/static", StaticFiles(directory=str(files("ndpp.serve") / "page")))
    if settings.pictures is not None:
        app.mount("/pictures", Pictures(directory=settings.pictures))
    for kind in (Exception, HTTPException, RequestValidationError, *problems.KINDS):
        app.add_exception_handler(kind, problems.answer)
    plain = app.openapi
    app.openapi = lambda: problems.documented(plain())  # type: ignore[method-assign]
    app.openapi()  # schemas of records are made now, not while the first request waits
    return Entrance(app, Guard(token, settings.host), counted)


class Pictures(StaticFiles):
    """The pictures of a folder, and nothing else that is in it: no page, no script."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Return the picture of this path."""
        kind = PICTURES.get(Path(path).suffix.lower())
        if kind is None:
            raise HTTPException(404)
        found = await super().get_response(path, scope)
        policy = "default-src 'none'; sandbox"  # an SVG file that is opened by itself runs nothing
        found.headers.update({"content-type": kind, "content-security-policy": policy, "cache-control": "no-cache"})
        return found


async def ask(request: Request, answer: Callable[[Served], Record], *, slow: bool = False) -> Response:
    """Have the current model answer a question in a thread, one for draws if it is ``slow``; return the answer as JSON."""
    model, work = holder_of(request).current, request.app.state.work
    body = await work.run(request, lambda: answer(model).to_json().encode("utf-8", "replace"), slow=slow)
    return Response(body, media_type="application/json")


# -- questions ---------------------------------------------------------------------------------------------------------------


@api.get("/items", response_model=records.Found, summary="Search the catalogue")
async def items(
    request: Request,
    q: Text = "",
    limit: Number = 20,
    offset: Annotated[int, Query(ge=0, le=2**31)] = 0,
    ids: Flag = False,
) -> Response:
    """Search by prefix, part of a name or with typing errors; without a query, the most popular items."""
    return await ask(request, lambda model: answers.search(model, q, limit=limit, offset=offset, ids=ids))


@api.get("/model", response_model=s.ModelAnswer, summary="Describe the model")
async def model(request: Request) -> Response:
    """Shape, size distribution, and missions if the model has them."""

    def described(model: Served) -> s.ModelAnswer:
        about: dict[str, Any] = {"name": model.name, "checksum": model.checksum, "columns": s.Column.of(model.table)}
        about["customers"] = None if model.customers is None else len(model.customers)
        about["context"] = model.law.context
        return s.ModelAnswer(**vars(answers.describe(model)), **about)

    return await ask(request, described)


@api.get("/models", response_model=s.ModelsAnswer, summary="List the models")
async def models(request: Request) -> s.ModelsAnswer:
    """The models of this server; what is asked at `/api/…` of the first one is asked of any at `/models/NAME/api/…`."""
    return s.ModelsAnswer(models=[s.ModelPlace(name=name, path=place(name)) for name in request.app.state.holders])


@api.get("/map", response_model=records.Map, summary="Map of the catalogue")
async def atlas(request: Request) -> Response:
    """Places of the most popular items: items of a kind are close together."""
    return await ask(request, lambda model: answers.map_of(model), slow=True)


@api.get("/changes", response_model=records.Changes, summary="What has changed")
async def changes(request: Request) -> Response:
    """Missions and items that changed most since the model of `--since`; answered with 503 until that is known, soon after the start."""
    return await ask(request, lambda model: model.changes)


def named_item(
    item: Annotated[str | None, Query(min_length=1, max_length=LABEL_LENGTH, description="A label.")] = None,
    id: Annotated[int | None, Query(ge=0, le=2**31 - 1, description="An id, instead of a label.")] = None,
) -> s.Item:
    """Return the one item that a query names."""
    if (item is None) == (id is None):
        raise InvalidInputError("name one item, by item=LABEL or by id=NUMBER")
    return id if item is None else item  # type: ignore[return-value]


Named = Annotated[s.Item, Depends(named_item)]


@api.get("/related", response_model=records.Related, summary="Complements and substitutes")
async def related(request: Request, named: Named, n: Number = 10, ids: Flag = False) -> Response:
    """Items that go with an item, and items of the same missions that are taken instead of it, strongest first."""
    return await ask(request, lambda model: answers.related(model, named, n=n, ids=ids))


@api.get("/sizes", response_model=records.Sizes, summary="Sizes of the baskets with an item")
async def sizes(request: Request, named: Named, ids: Flag = False) -> Response:
    """How many items the baskets with an item hold. For a mixture this is null for some minutes after the model was loaded."""
    return await ask(request, lambda model: answers.sizes(model, named, ids=ids), slow=True)


class Question(NamedTuple):
    """A question about a basket: the request, what answers it and with what, and how it is described; draws are ``slow``."""

    asked: type[s.AnyAsk]
    answer: Callable[..., Record]
    record: type[Record]
    summary: str
    text: str
    slow: bool = False


QUESTIONS = {
    "recommend": Question(
        s.RecommendAsk, answers.recommend, records.Recommended, "What goes with a basket", "The best items for a basket."
    ),
    "why": Question(
        s.WhyAsk, answers.why, records.Explained, "Why this item",
        "What the score of an item owes to popularity, to the mission and to ties.",
    ),
    "complete": Question(
        s.CompleteAsk, answers.complete, records.Completed, "Complete a basket", "Exact samples that contain the basket.", slow=True
    ),
    "sample": Question(s.DrawAsk, answers.complete, records.Completed, "Draw baskets", "Exact samples.", slow=True),
    "probability": Question(
        s.ProbabilityAsk, answers.probability, records.Likelihood, "How likely is a basket",
        "The probability of a basket, of its size, and how it compares with independent items.",
    ),
}  # fmt: skip


def _handler(one: Question) -> Callable[..., Coroutine[None, None, Response]]:
    async def answer(request: Request, question: s.AnyAsk) -> Response:
        return await ask(request, lambda model: one.answer(model, **_asked(model, question)), slow=one.slow)

    answer.__annotations__["question"] = one.asked
    return answer


for name, one in QUESTIONS.items():
    declare = api.post(f"/{name}", name=name, response_model=one.record, summary=one.summary, description=one.text)
    declare(_handler(one))


def _asked(model: Served, question: s.AnyAsk) -> dict[str, Any]:
    """Return what is asked, as :mod:`ndpp.answers` takes it: all factors in one boost, and categories as one limit."""
    asked = dict(vars(question))
    if isinstance(question, s.AnyDrawAsk):
        expected = model.law.popularity.sum() if question.size is None else question.size
        most = max(1, int(DRAWN_ITEMS / max(expected, 1)))
        if question.n > most:
            raise InvalidInputError(
                f"must be at most {most} for baskets of about {expected:.0f} items: an answer holds {DRAWN_ITEMS:,} items; "
                f"got {question.n}",
                argument="n",
            )
    if "boost" in asked:
        asked["boost"] = {**asked["boost"], **dict.fromkeys(asked.pop("out_of_stock"), 0.0)}
    if "category_of" in asked:
        limit = model.limit(*(asked.pop(name) for name in ("category_of", "per_category", "categories")))
        asked["per_category"] = limit
    return asked


@api.post("/batch", summary="Many baskets", response_class=StreamingResponse, responses={200: LINES})
async def many(request: Request, question: s.BatchAsk) -> Response:
    """One question for thousands of baskets. The answer is streamed, one JSON object per line and basket, in order.

    A line has the `index` of its basket and the fields of the single answer, or a `problem`.
    """
    current = holder_of(request).current
    shared, skipped = await request.app.state.work.run(request, partial(_shared, current, question))
    return StreamingResponse(_lines(request, current, question, shared, skipped), media_type=JSON_LINES)


def _shared(model: Served, batch: s.BatchAsk) -> tuple[dict[str, Any], tuple[s.Item, ...]]:
    """Return what is asked of all baskets, with a seed and with ids in long lists; and what was skipped of these lists.

    What is wrong with a condition is told here, at once, and not for each basket.
    """
    if batch.customers is not None and len(batch.customers) != len(batch.baskets):
        problem = f"must name {len(batch.baskets)} customers, one per basket, or null; got {len(batch.customers)}"
        raise InvalidInputError(problem, argument="customers")
    kind, answer, *_ = QUESTIONS[batch.task]
    own = {name: value for name, value in vars(batch).items() if name in kind.model_fields}
    asked = _asked(model, kind.model_construct(**own))
    heard = Heard.of(model, (), **cast(Said, {name: asked[name] for name in Said.__annotations__ if name in asked}))
    heard.in_situation()
    if asked.get("per_category") is not None or (batch.task == "recommend" and batch.limits):
        answer(model, **asked)
    if "candidates" in asked:
        asked |= {"candidates": heard.candidates, "exclude": heard.exclude}
    if "seed" in asked:
        asked["seed"] = secrets.randbelow(2**32) if batch.seed is None else batch.seed
    return asked, heard.skipped


async def _lines(
    request: Request, model: Served, batch: s.BatchAsk, shared: dict[str, Any], skipped: tuple[s.Item, ...]
) -> AsyncIterator[bytes]:
    """Yield one line for each basket, in order: its answer, or its problem. Other requests are answered in between.

    All that is left when the server stops is refused at once.
    """
    work: Work = request.app.state.work
    for i, basket in enumerate(batch.baskets):
        asked = {**shared, "basket": basket}
        if batch.customers is not None and "customer" in asked:
            asked["customer"] = batch.customers[i]
        if "seed" in asked:
            asked["seed"] = int(np.random.SeedSequence([shared["seed"], i]).generate_state(1)[0])
        task = partial(QUESTIONS[batch.task].answer, model, **asked)
        try:
            answer = (await work.run(request, task, slow=QUESTIONS[batch.task].slow, admitted=True)).data()
        except StoppingError as error:
            rest = (_line(k, {"problem": problems.of(error)}) for k in range(i, len(batch.baskets)))
            yield b"".join(rest)
            return
        except Exception as error:
            found = problems.of(error)
            if found is None:
                raise
            answer = {"problem": found}
        else:
            answer["skipped"] = list(dict.fromkeys([*answer["skipped"], *skipped]))
        yield _line(i, answer)


def _line(index: int, answer: dict[str, Any]) -> bytes:
    return (
        json.dumps({"index": index, **with_names(answer)}, ensure_ascii=False, allow_nan=False).encode(
            "utf-8", "replace"
        )
        + b"\n"
    )


# -- operations --------------------------------------------------------------------------------------------------------------

health = APIRouter(tags=["operations"])


@health.get("/health", summary="Is the process alive")
async def alive() -> dict[str, str]:
    """Answer as long as the process lives, also while the model is being loaded."""
    return {"status": "ok"}


@health.get("/ready", summary="Can it answer", responses={503: problems.RESPONSES[503]})
async def ready(request: Request) -> dict[str, str]:
    """Answer with status 200 once all models are loaded, and until then with 503 and the reason."""
    for one in request.app.state.holders.values():
        one.current  # noqa: B018  raises as long as there is none
    return {"status": "ready", "checksum": holder_of(request).current.checksum}


@health.get(
    "/metrics", summary="Prometheus metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}}
)
async def counters(request: Request) -> Response:
    """Requests, their times, and reloads, as text for Prometheus."""
    return Response(request.app.state.metrics.text(), media_type=CONTENT_TYPE_LATEST)
