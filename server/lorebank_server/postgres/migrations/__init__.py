"""Numbered, immutable SQL files, applied in order under an advisory lock."""
