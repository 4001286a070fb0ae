"""``ndpp sample`` and ``ndpp complete``: baskets drawn from a model."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

import typer
from typer.models import OptionInfo

from ndpp._types import Items
from ndpp.baskets import Baskets
from ndpp.cli import files
from ndpp.cli import options as o
from ndpp.cli.deliver import BasketOutput, Starts, deliver
from ndpp.cli.lists import Lists
from ndpp.laws.law import Law
from ndpp.laws.limits import Limit
from ndpp.samplers import Sampler
from ndpp.samplers.registry import EXACT, SAMPLERS, Request, SamplerSpec
from ndpp.samplers.shared import prepare_given

SPECS: dict[str, SamplerSpec] = {spec.name: spec for spec in SAMPLERS if spec.is_offered}
"""The samplers that serve every kernel, by name."""
WALKS: dict[str, SamplerSpec] = {name: spec for name, spec in SPECS.items() if spec.is_chain}
BLOCK = 2**16
"""Baskets planned at a time, which bounds the memory of the plan."""
TOGETHER = 64
"""Baskets whose given items are prepared together."""
Steps = Annotated[int | None, o.number("Steps of a walk; default: size².")]
WalkStart = Annotated[Literal["uniform", "greedy"], typer.Option(help="Where a walk starts.")]
FIRST = "Number of the first basket; basket i depends only on the seed and i."


def sampler_option(help: str, specs: dict[str, SamplerSpec]) -> OptionInfo:
    """Declare an option that takes the name of one of these samplers, with shell completion."""

    def complete(incomplete: str) -> list[tuple[str, str]]:
        return [(name, spec.summary) for name, spec in specs.items() if name.startswith(incomplete)]

    def check(name: str) -> str:
        files.require(name in specs, f"{name!r} is not one of {', '.join(specs)}")
        return name

    help = f"{help}: {', '.join(specs)}."
    found: OptionInfo = typer.Option(metavar="NAME", help=help, autocompletion=complete, callback=check)
    return found


def prepare(
    name: str, law: Law, request: Request, exclude: Items = (), limits: Limit | Sequence[Limit] = ()
) -> Sampler:
    """Return a prepared sampler of baskets that keep limits; a request that it cannot meet is a usage error."""
    spec, exact = SPECS[name], f"--sampler {EXACT.name}"
    # The samplers of the literature are defined for a single kernel.
    serves = law.as_kernel is not None or bool(spec.other_laws)
    files.require(serves, f"mixtures are drawn by {exact}; {name} needs a single kernel")
    files.require(spec.takes_given or not len(request.given), f"--given needs {exact}; {name} cannot condition")
    wrong = "of one size; give --size" if request.size is None else "of any size; omit --size"
    files.require(spec.draws(request.size), f"{name} draws baskets {wrong}, or use {exact}")
    is_plain = request.steps is None and request.start == "uniform"
    files.require(spec.is_chain or is_plain, f"--steps and --start are for walks; {name} is not a walk")
    files.require(spec.on_gpu or request.device == "cpu", f"--device needs {exact}; others run on the CPU")
    files.require(spec is EXACT or not limits, f"--limit needs {exact}")
    kernel = None if spec is EXACT else law.exclude(exclude).as_kernel
    if kernel is not None:
        return spec.prepare(kernel, request)
    ready: Sampler = law.sampler(
        size=request.size, given=request.given, exclude=exclude, limits=limits, device=request.device
    )
    return ready


def sample(
    model: o.Model,
    *,
    number: Annotated[int, o.number("Number of baskets.", "--number", "-n")] = 1,
    size: o.Size = None,
    given: o.Given = None,
    conditions: o.ConditionOptions,
    sampler: Annotated[str, sampler_option("Sampler", SPECS)] = EXACT.name,
    steps: Steps = None,
    start: WalkStart = "uniform",
    drawing: o.Drawing,
    first: Annotated[int, o.number(FIRST)] = 0,
    writing: o.Writing,
    encoding: o.Encoding = None,
    unknown: o.UnknownItems = o.Unknown.error,
    resume: o.NoResume = False,
) -> None:
    """Draw baskets from a model, one per line on standard output or into a file.

    Baskets are written to standard output as they are drawn, and to a file once all are. Basket i depends on the seed and i alone, so
    that --first continues a run that was interrupted, or draws a large file in parts.

    \b
    Examples:
      ndpp sample model.safetensors -n 20 --size 5 --seed 1
      ndpp sample model.safetensors -n 1000000 --jobs -1 -o baskets.parquet
      ndpp sample model.safetensors -n 500000 --seed 1 --first 500000 >> baskets.txt
      ndpp sample model.safetensors -n 5 --given bread,butter --exclude tea
      ndpp sample model.safetensors -n 5 --at store=3 --at weekday=Sunday
      ndpp sample model.safetensors -n 5 --candidates-file stock.txt --unknown skip
      ndpp sample model.safetensors --limit 'dairy=1..2' --limit 'price<=20' --table products.csv
      ndpp sample model.safetensors -n 5 --boost factors.csv --customers shop.customers --customer 17
      ndpp sample model.safetensors -n 500 | ndpp evaluate model.safetensors -
    """
    lists = Lists(conditions, writing.ids, encoding, unknown)
    own = lists.open(model)
    law = own.law
    target = BasketOutput.checked(writing, own.labels, model, *conditions.files, first=first)
    fixed = files.item_ids(own, given, ids=writing.ids)
    heard = lists.heard(own, law.one_basket(fixed))
    allowed, asked = heard.drawing(size)
    request = Request(size, fixed, steps, start, drawing.device)
    ready = prepare(sampler, allowed, request, asked["exclude"], heard.limits)
    engine = "cpu" if ready.engine is None else "cuda"  # each draws other baskets from the same seed
    seed = secrets.randbelow(2**32) if drawing.seed is None else drawing.seed
    made_with = {
        "seed": seed, "first": first, "model_crc32": files.fingerprint(model), "sampler": sampler, "size": size,
        "given": fixed.tolist(), **lists.told(heard), "steps": steps, "start": start, "device": engine,
    }  # fmt: skip
    parts = (
        part.baskets
        for begin in range(0, number, BLOCK)
        for part in ready.stream(min(BLOCK, number - begin), rng=seed, n_jobs=drawing.jobs, first=first + begin)
    )
    deliver(parts, number, target, made_with=made_with)


def complete(
    model: o.Model,
    baskets: o.MaybeBaskets = None,
    *,
    given: o.Given = None,
    number: Annotated[int, o.number("Number of completions per basket.", "--number", "-n", least=1)] = 1,
    size: o.Size = None,
    add: Annotated[int | None, o.number("Items to add to each basket, instead of --size.")] = None,
    conditions: o.ConditionOptions,
    drawing: o.Drawing,
    first: Annotated[int, o.number(FIRST)] = 0,
    writing: o.Writing,
    reading: o.ReadingFor,
    resume: o.NoResume = False,
) -> None:
    """Complete baskets: draw the remaining items exactly, given those that are in them.

    \b
    Examples:
      ndpp complete model.safetensors --given bread,butter --size 6 -n 3
      ndpp complete model.safetensors half.csv --add 2 -o full.csv
      ndpp complete model.safetensors half.csv --limit 'price<=20' --table products.csv
      cat half.txt | ndpp complete model.safetensors - --add 1
    """
    lists = Lists(conditions, writing.ids, reading.encoding, reading.unknown)
    own = lists.open(model)
    files.require(size is None or add is None, "use either --size, for the whole basket, or --add, for the new items")
    target = BasketOutput.checked(writing, own.labels, model, baskets, *conditions.files, first=first)
    starts = files.given_baskets(own, given, baskets, reading, ids=writing.ids)
    target = target._replace(starts=Starts(starts, number, from_file=baskets is not None))
    heard = lists.heard(own, starts)
    allowed, _ = heard.drawing(None)
    sizes = [size if add is None else n_given + add for n_given in starts.sizes.tolist()]
    if baskets is not None:
        files.check_sizes(allowed, starts, sizes)
    seed = secrets.randbelow(2**32) if drawing.seed is None else drawing.seed
    made_with = {
        "seed": seed, "first": first, "model_crc32": files.fingerprint(model), "number": number, "size": size, "add": add,
        "device": drawing.device, **lists.told(heard), "given": [items.tolist() for items in starts],
    }  # fmt: skip

    def parts() -> Iterator[Baskets]:
        for i in range(first // number, len(starts)):
            if i % TOGETHER == 0:
                prepare_given(allowed, starts[i : i + TOGETHER], allowed._memory)
            begin, (_, asked) = max(first, i * number), heard._replace(given=starts[i]).drawing(sizes[i])
            ready = allowed.sampler(device=drawing.device, **asked)
            drawn = ready.stream((i + 1) * number - begin, rng=seed, n_jobs=drawing.jobs, first=begin)
            yield from (part.baskets for part in drawn)

    deliver(parts(), max(0, number * len(starts) - first), target, made_with=made_with)
