"""Exceptions and warnings. A message says what was expected, what was received and what to do.

Errors carry their information in fields, from which the message is built. Code that handles an error reads the fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from string import Formatter
from typing import Any, ClassVar

MAX_COMPARED_LABELS = 20_000
"""With more labels than this, similar ones are not searched for; the search takes about 10 µs per label."""


class Names(Formatter):
    """How messages refer to arguments of a function. The command has a subclass that refers to its options.

    Examples
    --------
    >>> Names().format("Name the {format}, or read labels with {as_labels:True}")
    'Name the format=…, or read labels with as_labels=True'
    """

    phrases: ClassVar[Mapping[str, str]] = {"background": "a background=…, L = diag(background) + X W Xᵀ"}
    """How to set an argument, if that takes more than its name."""

    def argument(self, argument: str) -> str:
        """Return the name of an argument."""
        return argument

    def setting(self, argument: str, value: str) -> str:
        """Return how to set an argument, to any value if ``value`` is empty."""
        return self.phrases.get(argument) or f"{argument}={value or '…'}"

    def get_field(self, field_name: str, args: Sequence[object], kwargs: Mapping[str, object]) -> tuple[str, str]:
        """Return the name in braces as its own value."""
        return field_name, field_name

    def format_field(self, value: str, format_spec: str) -> str:
        """Return how to set the argument in braces to the value after its colon."""
        return self.setting(value, format_spec)


def similar(label: str, labels: Sequence[str], n: int = 3) -> tuple[str, ...]:
    """Return up to ``n`` labels that contain these letters, the shortest first, or else that are or contain a similar word.

    Examples
    --------
    >>> similar("Bread", ["rye bread", "bread crumbs", "butter"]), similar("buter", ["peanut butter", "tea"])
    (('rye bread', 'bread crumbs'), ('peanut butter',))
    >>> similar("unicorn", ["baby food junior", "acorn"])
    ()
    """
    wanted = label.strip().casefold()
    within = [name for name in labels if wanted in name.casefold()] if len(wanted) > 2 else []
    if within or len(labels) > MAX_COMPARED_LABELS:
        return tuple(sorted(within, key=len)[:n])
    whole: dict[str, list[str]] = {}
    words: dict[str, list[str]] = {}
    for name in labels:
        whole.setdefault(name.casefold(), []).append(name)
        for word in set(name.casefold().split()):
            words.setdefault(word, []).append(name)
    found = next(filter(None, (_mistyped(wanted, known, n) for known in (whole, words))), [])
    return tuple(dict.fromkeys(name for word in found for name in (whole | words)[word]))[:n]


def _mistyped(wanted: str, known: Iterable[str], n: int) -> list[str]:
    """Return words that may be meant: with four of five letters in common, or two of three and the same first one."""
    same = [word for word in known if word[:1] == wanted[:1]]
    return [*dict.fromkeys(get_close_matches(wanted, known, n, 0.8) + get_close_matches(wanted, same, n, 0.66))]


class NDPPError(Exception):
    """Base class of the errors of this library. They pickle losslessly, since worker processes raise them too.

    Parameters
    ----------
    problem : str
        What was expected and what was received. If ``argument`` is given, its name is the subject of the sentence.
    argument : str, optional
        The argument at fault.
    advice : str
        What to do. Arguments are in braces, ``{format}`` or ``{as_labels:True}``, for :class:`Names` to replace.
    """

    def __init__(self, problem: str = "", *, argument: str | None = None, advice: str = "") -> None:
        super().__init__(problem)
        self.argument, self.advice = argument, advice

    def text(self, names: Names | None = None) -> str:
        """Return the message, with arguments as ``names`` refers to them."""
        names = names or Names()
        parts = [] if self.argument is None else [names.argument(self.argument)]
        parts.append(str(self.args[0]))
        if self.advice:
            parts[-1] = parts[-1].removesuffix(".") + ("" if parts[-1].endswith("?") else ".")
            parts.append(names.format(self.advice))
        return " ".join(parts)

    def __str__(self) -> str:
        return self.text()

    def __reduce__(self) -> tuple[object, ...]:
        return type(self).__new__, (type(self),), {**self.__dict__, "args": self.args}


class InvalidInputError(NDPPError, ValueError):
    """An argument is invalid."""


class UnknownLabelError(InvalidInputError):
    """``label`` is not in the catalogue of ``n_labels`` labels. ``suggestions`` are similar ones."""

    def __init__(self, label: str, labels: Sequence[str]) -> None:
        self.label, self.n_labels = label, len(labels)
        self.suggestions = similar(str(label), labels)
        such_as = f", such as {labels[0]!r}" if labels else ""
        hint = f"it is not among the {len(labels)} labels of the catalogue{such_as}"
        hint = f"did you mean {' or '.join(map(repr, self.suggestions))}?" if self.suggestions else hint
        super().__init__(f"unknown label {label!r}; {hint}")


class UnknownItemError(InvalidInputError):
    """The id ``item`` is not in the catalogue of ``n_items``."""

    def __init__(self, item: int, n_items: int, *, argument: str = "item ids", advice: str = "") -> None:
        self.item, self.n_items = item, n_items
        super().__init__(f"must lie in 0..{n_items - 1}; unknown item id {item}", argument=argument, advice=advice)


class InvalidKernelError(InvalidInputError):
    """X and W do not define a nonsymmetric DPP."""


class ImpossibleSizeError(InvalidInputError):
    """No set of the requested size has positive probability."""


class ImpossibleLimitError(InvalidInputError):
    """No set, or none of positive probability, keeps ``limits``, which are the guilty ones in words."""

    def __init__(self, problem: str, *, limits: tuple[str, ...]) -> None:
        self.limits = limits
        super().__init__(problem)


class ZeroProbabilityError(InvalidInputError):
    """The given items never occur together."""


class NoConditionalKernelError(InvalidInputError):
    """The items can occur, but the distribution of the remaining ones is not an L-ensemble; use ``given=`` instead."""


class RefusedUpdateError(InvalidInputError):
    """An update would make a model worse, or its orders should not be learned from. ``updated`` is the new model, if there is one."""

    def __init__(self, problem: str, *, advice: str, updated: object = None) -> None:
        super().__init__(problem, advice=advice)
        self.updated = updated


class ModelFileError(NDPPError, ValueError):
    """A model file is corrupt, truncated, of another format, or newer than this library."""


class RowsUnavailableError(NDPPError, OSError):
    """Rows of X could not be read from their store."""


class DataNotFoundError(NDPPError, FileNotFoundError):
    """A data set was not found."""


class UnfinishedRunError(NDPPError, FileExistsError):
    """An interrupted run left ``path``, which a new run would overwrite."""

    def __init__(self, path: str, what: str) -> None:
        self.path = path
        super().__init__(
            f"{path!r} holds {what} of an interrupted run", advice="Continue it with {resume:True}, or delete it"
        )


class BusyFileError(NDPPError, BlockingIOError):
    """Another process is writing ``path``."""

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(f"another process is writing {path!r}", advice="Wait for it to end, or name another file")


class OtherSettingsError(InvalidInputError):
    """``path`` was made with another value of ``setting``: ``then``, not ``now``."""

    def __init__(self, path: str, setting: str, then: object, now: object) -> None:
        self.path, self.setting, self.then, self.now = path, setting, then, now
        super().__init__(
            f"{path!r} was made with another {setting} ({then!r}, now {now!r})",
            advice="Resume with the same data and settings, or delete it to begin anew",
        )


class MissingExtraError(NDPPError, ImportError):
    """The optional dependency ``package`` is not installed; the extra ``extra`` installs it."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        self.package, self.extra = package, extra
        super().__init__(
            f"{purpose} needs the package {package!r}, which is not installed. Run: pip install 'ndpp[{extra}]'"
        )


@contextmanager
def needing(package: str, extra: str, purpose: str) -> Iterator[None]:
    """Turn a failed import of an optional dependency into a :class:`MissingExtraError`."""
    try:
        yield
    except ImportError:
        raise MissingExtraError(package, extra, purpose) from None


class PartialResultError(NDPPError):
    """Base class of errors that can end a long computation. ``partial`` holds the results so far, or None."""

    def __init__(self, problem: str = "", *, partial: Any = None, advice: str = "") -> None:
        super().__init__(problem, advice=advice)
        self.partial = partial


class BudgetExceededError(PartialResultError, RuntimeError):
    """A loop reached its budget after ``count`` rounds."""

    def __init__(self, message: str, *, count: int, partial: Any = None) -> None:
        super().__init__(message, partial=partial)
        self.count = count


class DeviceError(PartialResultError, RuntimeError):
    """A GPU ran out of memory or was lost."""


class PrecisionError(PartialResultError, ArithmeticError):
    """Double precision is not enough for this computation."""


class PrecisionWarning(UserWarning):
    """The result of this computation has fewer correct digits than usual."""


class DataWarning(UserWarning):
    """Something in the data was left out, changed or counted otherwise, or they do not look like baskets."""


class UncheckedModelWarning(UserWarning):
    """A model file has no digest, so that changes of its labels or metadata are not noticed."""


class TrainingInterruptedWarning(UserWarning):
    """Training was interrupted; the best kernel so far is kept."""
