"""``lorebank bench``: load memories, send Find at a given rate, read from the server's spans how long it took."""
