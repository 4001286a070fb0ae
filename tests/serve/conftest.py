"""A model with odd labels, and a server of it that most tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

fastapi = pytest.importorskip("fastapi", reason="needs fastapi: pip install 'ndpp[serve]'")
pytest.importorskip("uvicorn", reason="needs uvicorn: pip install 'ndpp[serve]'")
httpx = pytest.importorskip("httpx", reason="needs httpx: pip install 'ndpp[dev]'")

import ndpp  # noqa: E402
from patience import HANG_SECONDS, serve_patiently  # noqa: E402
from servers import Server, odd_kernel, trips  # noqa: E402


@pytest.fixture(scope="session", autouse=True)
def _patient() -> None:
    serve_patiently()


@pytest.fixture(scope="session", autouse=True)
def _described_once() -> Iterator[None]:
    """Make the document of the service once: it does not depend on the model, and takes a second."""
    describe, made = fastapi.FastAPI.openapi, []

    def describe_once(app: Any) -> Any:
        if not made:
            made.append(describe(app))
        return made[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fastapi.FastAPI, "openapi", describe_once)
        yield


@pytest.fixture(scope="session")
def kernel() -> ndpp.LowRankKernel:
    return odd_kernel()


@pytest.fixture(scope="session")
def model(kernel, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("served") / "shop.safetensors"
    ndpp.save(kernel, path)
    return path


@pytest.fixture(scope="session")
def server(model) -> Iterator[Server]:
    server = Server(model)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def api(server) -> Iterator[httpx.Client]:
    """A client of the server that checks what every answer must have."""

    def check(response: httpx.Response) -> None:
        assert response.status_code < 500, response.read()
        assert "default-src 'none'" in response.headers["content-security-policy"]
        assert response.headers["x-content-type-options"] == "nosniff"
        assert "server" not in response.headers
        if response.status_code >= 400:
            assert response.headers["content-type"] == "application/problem+json"
            problem = response.read() and response.json()
            assert problem["status"] == response.status_code
            assert problem["type"].startswith("urn:ndpp:problem:")
            assert problem["title"]
            assert problem["detail"]

    with httpx.Client(base_url=server.url, timeout=HANG_SECONDS, event_hooks={"response": [check]}) as client:
        yield client


@pytest.fixture(scope="session")
def mixture() -> ndpp.Mixture:
    return trips()
