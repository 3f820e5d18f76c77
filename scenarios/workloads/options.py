"""Derives the table of a user's program in scenario files from a dataclass or a pydantic model.

Values are checked as strictly as built-in tables: no unknown keys, no text in place of a number; types are read as
`derive` has it. Unlike in ours, keys without a default are required, and a class's own validators run while a file is
read, so that what they raise becomes a sentence.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import PurePath
from typing import Annotated, Any, get_args, get_type_hints

from pydantic import BaseModel, Field, TypeAdapter, ValidationError, WrapValidator, create_model
from pydantic_core import PydanticUndefined

from scenarios.config.toml.derive import readable
from scenarios.config.toml.reading import phrase_of
from scenarios.config.toml.section import Section
from scenarios.config.toml.values import Accept
from scenarios.seam.errors import tell_error


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """A user's class as a table: `hint` is the type that pydantic reads; `is_needed`: whether some key is required."""

    kind: type
    hint: Any
    is_needed: bool

    def default(self) -> Any:
        """Return the values for an empty table."""
        return TypeAdapter[Any](self.hint).validate_python({})


def shape_of(kind: type, around: type | None = None) -> Shape:
    """Return the table that a dataclass or pydantic model describes; `around` is the class that contains it.

    Raises:
        ValueError: it is neither, a type cannot be read from TOML, or a default does not fit its type.
    """
    reader = _Reader({**vars(around)} if around is not None else {})
    try:
        with warnings.catch_warnings(action="ignore", category=UserWarning):  # keys such as `json` may hide methods
            hint, section = reader.table(kind)
    except ValueError:
        raise
    except Exception as error:  # what pydantic raises depends on what it cannot read
        why = str(error).partition("\n")[0]
        raise ValueError(f"Options that TOML can hold, but {kind.__qualname__} cannot be read: {why}") from error
    return Shape(kind, hint, any(field.is_required() for field in section.model_fields.values()))


class _Reader:
    """A reader of classes; `names` are names for annotations written as text, in addition to their module's."""

    def __init__(self, names: dict[str, Any]) -> None:
        self._names = names
        self._read: dict[type, tuple[Any, type[Section]]] = {}

    def table(self, kind: type) -> tuple[Any, type[Section]]:
        """Return the type that a class is read as, and the section that checks its keys."""
        if kind not in self._read:
            if dataclasses.is_dataclass(kind):
                section = self._of_dataclass(kind)
            elif issubclass(kind, BaseModel):
                section = self._of_model(kind)
            else:
                raise ValueError(
                    f"Options that are a dataclass or a pydantic model, but {kind.__qualname__} is neither"
                )
            _check_defaults(kind, section)
            self._read[kind] = Annotated[section, WrapValidator(_reader_of_class(kind))], section
        return self._read[kind]

    def _of_dataclass(self, kind: Any) -> type[Section]:
        try:
            hints = get_type_hints(kind, localns=self._names, include_extras=True)
        except NameError as error:
            raise ValueError(f"Options whose types are known, but {error} in {kind.__qualname__}") from None
        fields: dict[str, Any] = {}
        for field in dataclasses.fields(kind):
            if not field.init:
                continue
            hint = self.hint(hints[field.name])
            fields[field.name] = (hint, _field(hint, field.default, field.default_factory, dataclasses.MISSING))
        made: type[Section] = create_model(kind.__name__, __base__=Section, __doc__=kind.__doc__, **fields)
        return made

    def _of_model(self, kind: type[BaseModel]) -> type[Section]:
        """Return a subclass with the model's own validators; the model itself, if it already is a section."""
        kind.model_rebuild(_types_namespace=self._names or None)  # raises where a type of its own is unknown
        changed: dict[str, Any] = {}
        for name, field in kind.model_fields.items():
            hint = self.hint(field.annotation)
            whole = Annotated[(hint, *field.metadata)] if field.metadata else hint
            if hint is not field.annotation or _is_text_of_quantity(whole, field.default):
                made = _field(whole, field.default, field.default_factory, PydanticUndefined)
                made.description = field.description
                changed[name] = (whole, made)
        if issubclass(kind, Section) and not changed:
            return kind
        config = {**Section.model_config, **kind.model_config}
        bases = (kind,) if issubclass(kind, Section) else (kind, Section)
        base: Any = type(kind.__name__, bases, {"model_config": config, "__module__": kind.__module__})
        section: type[Section] = create_model(kind.__name__, __base__=base, __doc__=kind.__doc__, **changed)
        return section

    def hint(self, hint: Any) -> Any:
        """Return an annotation as it is read from TOML; the same object if nothing changes."""
        return readable(hint, lambda kind: self.table(kind)[0])


def _field(hint: Any, default: Any, factory: Any, absent: object) -> Any:
    """Return a key with its default; '2 MiB' is read as if it came from the file."""
    if factory not in (None, absent):
        return Field(default_factory=factory)
    if default is absent:
        return Field()
    return Field(default=default, validate_default=_is_text_of_quantity(hint, default))


def _is_text_of_quantity(hint: Any, default: object) -> bool:
    return isinstance(default, str) and any(isinstance(mark, Accept) and mark.quantity for mark in _marks(hint))


def _reader_of_class(kind: Any) -> Callable[[Any, Callable[[Any], Any]], Any]:
    """Return a function that reads a table as the user's class, with a sentence for whatever that class raises."""

    def make(value: Any, read: Callable[[Any], Any]) -> Any:
        try:
            section = read(value)
            return section if type(section) is kind else _as_own(kind, section)
        except (ValueError, AssertionError):  # sentences already
            raise
        except Exception as error:
            raise ValueError(f"values that {kind.__qualname__} takes, but it raised {tell_error(error)}") from error

    return make


def _as_own(kind: Any, section: Section) -> Any:
    """Return checked values as the user's own class, which other processes can import."""
    if issubclass(kind, BaseModel):
        object.__setattr__(section, "__class__", kind)
        return section
    # Absent keys have the class's own defaults, which a dataclass of pydantic may not take as arguments.
    read = {name for name, field in type(section).model_fields.items() if field.validate_default}
    given = {name: value for name, value in section if name in section.model_fields_set | read}
    try:
        return kind(**given)
    except ValidationError as error:  # a dataclass of pydantic reads once more what has been read
        raise ValueError(phrase_of(error.errors(include_url=False)[0])) from None


def _check_defaults(kind: type, section: type[Section]) -> None:
    """Check that defaults are valid values, or values already read, such as 2097152 for '2 MiB'."""
    for name, field in section.model_fields.items():
        default = field.default
        hint: Any = Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation
        is_read = any(isinstance(mark, Accept) for mark in _marks(hint)) and not isinstance(default, str)
        if is_read or default is PydanticUndefined or default is None or _is_object(default):
            continue
        try:
            TypeAdapter[Any](hint).validate_python(default, strict=True)
        except ValidationError as error:
            phrase = phrase_of(error.errors(include_url=False)[0])
            sentence = f"{kind.__qualname__}.{name} = {default!r}: expected {phrase}"
            raise ValueError(f"Options whose defaults fit, but {sentence}") from None


def _marks(hint: Any) -> Iterator[Any]:
    for inner in get_args(hint):
        yield inner
        yield from _marks(inner)


def _is_object(value: object) -> bool:
    return isinstance(value, (Enum, BaseModel, PurePath)) or dataclasses.is_dataclass(value)
