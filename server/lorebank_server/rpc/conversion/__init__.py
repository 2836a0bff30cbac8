"""Between generated messages and the values of the domain, field by field.

Requests come here after ``validation`` and ``unsupported``, so that every enum number and time is known to be good.
"""
