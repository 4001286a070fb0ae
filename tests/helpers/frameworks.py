"""Stand-ins for LangChain, Haystack and LlamaIndex: as much of their interfaces as the adapters of ``docs/diversity.md`` use.

Each replaces a framework only where that is not installed.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import pytest


class Fields:
    """What pydantic's ``BaseModel`` does here: annotated names are keyword arguments, with their defaults."""

    def __init__(self, **values: Any) -> None:
        names = [name for kind in type(self).__mro__ for name in getattr(kind, "__annotations__", {})]
        if unknown := values.keys() - set(names):
            raise TypeError(f"unexpected fields {unknown}")
        for name in names:
            setattr(self, name, values[name] if name in values else getattr(type(self), name))


class BaseDocumentCompressor(Fields, ABC):
    """That of ``langchain_core.documents``."""

    @abstractmethod
    def compress_documents(self, documents: Any, query: str, callbacks: Any = None) -> Any: ...


class LangChainDocument(Fields):
    """A document of LangChain: its text has another name than elsewhere."""

    page_content: str
    metadata: dict[str, Any] = {}  # noqa: RUF012


class HaystackDocument(Fields):
    """A document of Haystack, with its vector and its score."""

    content: str | None = None
    embedding: list[float] | None = None
    score: float | None = None


class Component:
    """The decorator ``haystack.component``: it marks classes that have a method ``run``, and names the outputs of that."""

    def __call__(self, kind: type) -> type:
        assert callable(kind.run)  # type: ignore[attr-defined]
        assert kind.run.outputs  # type: ignore[attr-defined]
        return kind

    @staticmethod
    def output_types(**types: Any) -> Any:
        def named(run: Any) -> Any:
            run.outputs = types
            return run

        return named


class BaseNodePostprocessor(Fields, ABC):
    """That of ``llama_index.core.postprocessor.types``: its users call ``postprocess_nodes``."""

    @abstractmethod
    def _postprocess_nodes(self, nodes: Any, query_bundle: Any = None) -> Any: ...

    def postprocess_nodes(self, nodes: Any, query_bundle: Any = None) -> Any:
        return self._postprocess_nodes(nodes, query_bundle)


class TextNode(Fields):
    """A passage of LlamaIndex."""

    text: str = ""

    def get_content(self) -> str:
        return self.text


class NodeWithScore(Fields):
    """A passage that was retrieved."""

    node: Any
    score: float | None = None

    def get_content(self) -> str:
        return str(self.node.get_content())


STAND_INS: dict[str, dict[str, Any]] = {
    "langchain_core.documents": {"BaseDocumentCompressor": BaseDocumentCompressor, "Document": LangChainDocument},
    "haystack": {"Document": HaystackDocument, "component": Component()},
    "llama_index.core.postprocessor.types": {"BaseNodePostprocessor": BaseNodePostprocessor},
    "llama_index.core.schema": {"NodeWithScore": NodeWithScore, "TextNode": TextNode},
}


def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the frameworks that are not installed be imported for the time of a test."""
    missing = {name for name in STAND_INS if find_spec(name.partition(".")[0]) is None}
    for name in missing:
        parts = name.split(".")
        for i in range(1, len(parts) + 1):
            path = ".".join(parts[:i])
            if path not in sys.modules:
                monkeypatch.setitem(sys.modules, path, ModuleType(path))
        for key, value in STAND_INS[name].items():
            setattr(sys.modules[name], key, value)
