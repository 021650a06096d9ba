"""The names of older tools, so that code written for them runs with only its imports changed: docs/migration.md.

Thin: everything is done by ingot itself. What has no counterpart is an error or, where it changes nothing but speed, a
`MigrationWarning`.
"""


class MigrationWarning(UserWarning):
    """A setting of another tool that means nothing here."""
