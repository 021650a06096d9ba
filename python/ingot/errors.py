"""What can go wrong, by kind. Every error says what failed and where; `hint` says what to do about it."""

from __future__ import annotations


class Error(Exception):
    """Base of all errors Ingot raises on purpose."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\nhint: {self.hint}" if self.hint else self.message

    def __reduce__(self) -> tuple[type[Error], tuple[str, str]]:
        return type(self), (self.message, self.hint)


class InvalidModelError(Error):
    """A model file, IR or graph that breaks its own rules."""


class UnsupportedError(Error):
    """A valid request that Ingot does not serve."""


class InvalidInputError(Error):
    """Tensors, shapes or options given by the caller."""


class IoError(Error, OSError):
    """A file that cannot be read or written."""


class ResourceError(Error, MemoryError):
    """Memory or threads that the system does not give, or that a limit does not allow."""


class CancelledError(Error):
    """A run that its caller ended (ingot.Cancel)."""


class DeadlineError(Error, TimeoutError):
    """Not done in the time that the caller gave."""


class InternalError(Error):
    """A broken promise of Ingot's own: please report it."""


def first_line(error: Exception) -> str:
    """What an error says, short enough to be part of another message."""
    return (str(error).strip() or repr(error)).splitlines()[0]
