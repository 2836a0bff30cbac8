"""``python -m lorebank`` is the ``lorebank`` command."""

from lorebank.cli.main import main

main()
