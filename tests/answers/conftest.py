"""Models that are asked at every door."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import ndpp
from doors import LAWS, Asked, customers_of, write_tables
from ndpp.answers import ItemTable


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[Any, Path, str]]]:
    """Each model, its file, and the address of its server."""
    pytest.importorskip("fastapi", reason="needs fastapi: pip install 'ndpp[serve]'")
    pytest.importorskip("httpx", reason="needs httpx: pip install 'ndpp[dev]'")
    from ndpp.serve.app import create_app
    from ndpp.serve.model import Settings
    from servers import serving

    folder = tmp_path_factory.mktemp("doors")
    write_tables(folder)
    with ExitStack() as stack:
        found = {}
        for name, make in {**LAWS, "named": LAWS["mixture"]}.items():
            law, path = make(), folder / f"{name}.safetensors"
            is_named = name == "named"
            ndpp.save(law, path, metadata=ItemTable.read(folder / "named.csv", law).attach() if is_named else None)
            customers_of(law).save(path.with_suffix(".customers"))
            files = {
                "category_of": folder / "categories.csv", "table": None if is_named else folder / "products.csv",
                "customers": path.with_suffix(".customers"),
            }  # fmt: skip
            found[name] = (law, path, stack.enter_context(serving(create_app(Settings(path, **files)))))
        yield found


@pytest.fixture(scope="session")
def two(served: dict[str, tuple[Any, Path, str]]) -> Iterator[str]:
    """The address of a server of two of them, which knows no customers."""
    from ndpp.serve.app import create_app
    from ndpp.serve.model import Settings
    from servers import serving

    mixture, named = served["mixture"][1], served["named"][1]
    settings = Settings(mixture, category_of=mixture.parent / "categories.csv", more=[named])
    with serving(create_app(settings)) as url:
        yield url


@pytest.fixture(params=list(LAWS))
def model(request: pytest.FixtureRequest, served: Any, capsys: pytest.CaptureFixture[str]) -> Asked:
    """One of the models."""
    return Asked(request.param, *served[request.param], capsys)
