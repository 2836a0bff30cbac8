"""What operations need from the outside, as small protocols whose docstrings are the contract."""
