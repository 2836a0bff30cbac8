"""Properties are held to no clock: two busy cores would make them fail at random."""

from hypothesis import settings

settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")
