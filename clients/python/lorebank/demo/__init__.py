"""A tour of Lorebank on a server of its own: every line it prints is what that server just answered."""

from lorebank.demo.tour import run

__all__ = ["run"]
