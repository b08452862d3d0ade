"""What a port knows of each of its connections."""

from __future__ import annotations

from typing import Protocol


class Client(Protocol):
    """One connection, as its port sees it."""

    is_answering: bool
    """From a whole head to the end of the answer."""
    is_leaving: bool
    """It ends with its next answer."""

    def owes_since(self, moment: float) -> bool:
        """The client has owed us something since before that moment."""
        ...

    def force_close(self) -> None:
        """End it when what was written is sent."""
        ...

    def abort(self) -> None:
        """End it at once, whatever is still to be sent."""
        ...


def nothing() -> None:
    """What an ended connection does to be given up."""
