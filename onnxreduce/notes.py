"""What the user should know, said once and kept for the summary."""

from __future__ import annotations

from onnxreduce.progress import Listener


class Notes:
    """Lines of text, in order, each told to the listener as it comes."""

    def __init__(self, listener: Listener) -> None:
        self.lines: list[str] = []
        self._listener = listener

    def add(self, text: str) -> None:
        """Nothing is said twice, and nothing is not said."""
        if text and text not in self.lines:
            self.lines.append(text)
            self._listener.note(text)
