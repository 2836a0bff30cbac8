"""How the examples of a command stand in its help."""


def examples(*lines: str) -> str:
    """The closing text of a command's help."""
    return "Examples:\n" + "\n".join(f"  {line}" for line in lines)
