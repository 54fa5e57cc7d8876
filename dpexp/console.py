"""What every command prints through."""

from rich.console import Console
from rich.text import Text


def plain_console(stderr: bool = False) -> Console:
    """A console that shows texts as they are: rich would take the brackets of `methods=[a,b]` for a style."""
    return Console(markup=False, emoji=False, stderr=stderr)


def marked(word: str, style: str, text: str) -> Text:
    """A line that begins with a word in a style of its own."""
    return Text.assemble((word, style), text)
