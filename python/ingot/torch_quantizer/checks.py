"""What is wrong with a field of a config: errors name it, and the nearest name or value."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, TypeVar

from ingot.errors import InvalidInputError

Class = TypeVar("Class", bound=type)


def checked_names(cls: Class) -> Class:
    """A field that the class does not have is an error with the name of the nearest one."""
    made: Any = cls.__init__  # type: ignore[misc]
    known = [field.name for field in fields(cls)]

    @functools.wraps(made)
    def init(self: Any, **given: Any) -> None:
        for name in given:
            check_field(cls.__name__, name, known)
        made(self, **given)

    cls.__init__ = init  # type: ignore[misc]
    return cls


def check_field(owner: str, name: str, known: Sequence[str]) -> None:
    if name not in known:
        near = difflib.get_close_matches(name, known, 1, 0.5)
        hint = f"did you mean '{near[0]}'? " if near else ""
        raise InvalidInputError(f"{owner} has no field '{name}'", f"{hint}fields: {', '.join(known)}")


def check_choice(field: str, value: object, valid: Sequence[str]) -> None:
    if value not in valid:
        near = difflib.get_close_matches(str(value), valid, 1)
        hint = f"did you mean '{near[0]}'? valid: {', '.join(valid)}" if near else f"valid: {', '.join(valid)}"
        raise InvalidInputError(f"{field}={value!r} is not known", hint)


def check_flag(field: str, value: object) -> None:
    if not isinstance(value, bool):
        raise InvalidInputError(f"{field} is {value!r}, not True or False")


def check_list(field: str, value: object, what: str) -> tuple[Any, ...]:
    if isinstance(value, str | type) or not isinstance(value, Sequence):
        raise InvalidInputError(f"{field} is {value!r}, not a list of {what}", f"{field}=[{value!r}]")
    return tuple(value)
