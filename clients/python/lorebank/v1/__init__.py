"""Messages and services of the contract `lorebank.v1`, generated from `protos/`."""
