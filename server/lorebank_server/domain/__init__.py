"""Values and rules of Lorebank, on the standard library alone."""
