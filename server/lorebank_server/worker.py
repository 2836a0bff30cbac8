"""The serving process, as ``lorebank serve`` starts it: ``python -m lorebank_server.worker``."""

import sys

from lorebank_server.app import worker_command

if __name__ == "__main__":
    sys.exit(worker_command())
