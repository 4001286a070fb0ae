"""What can go wrong, by name. Every message says what was expected, what came and what to do."""

from __future__ import annotations

from typing import Any


class NDPPError(Exception):
    """Base of every error this library raises on purpose. It travels whole from a worker process to the one that waits for it."""

    def __reduce__(self) -> Any:
        return _again, (type(self), self.args, self.__dict__)


def _again(kind: type[NDPPError], args: tuple[Any, ...], fields: dict[str, Any]) -> NDPPError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(fields)
    return error


class InvalidInputError(NDPPError, ValueError):
    """An argument is not what the function takes."""


class InvalidKernelError(InvalidInputError):
    """X and W do not define a nonsymmetric DPP."""


class ImpossibleSizeError(InvalidInputError):
    """No set of the wanted size has positive probability."""


class ZeroProbabilityError(InvalidInputError):
    """The items that were given never occur together."""


class NoConditionalKernelError(InvalidInputError):
    """The items can occur, but the law of the rest is not an L-ensemble; use ``given=`` instead."""


class ModelFileError(NDPPError, ValueError):
    """A model file is corrupt, truncated, foreign, or newer than this library."""


class RowsUnavailableError(NDPPError, OSError):
    """Rows of X could not be read from where they lie."""


class DataNotFoundError(NDPPError, FileNotFoundError):
    """A data set is not where it was looked for."""


class MissingExtraError(NDPPError, ImportError):
    """An optional dependency is not installed."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs the package {package!r}, which is not installed. Run: pip install 'ndpp[{extra}]'"
        )


class BudgetExceededError(NDPPError, RuntimeError):
    """A loop that may spin reached its budget. Carries the count and whatever was finished."""

    def __init__(self, message: str, *, count: int, partial: Any = None) -> None:
        super().__init__(message)
        self.count = count
        self.partial = partial


class DeviceError(NDPPError, RuntimeError):
    """A GPU ran out of memory or was lost. ``partial`` carries whatever was finished."""

    def __init__(self, message: str, *, partial: Any = None) -> None:
        super().__init__(message)
        self.partial = partial


class PrecisionError(NDPPError, ArithmeticError):
    """Double precision cannot carry this computation."""


class PrecisionWarning(UserWarning):
    """Double precision carries this computation, with fewer digits than usual."""
