"""One file for each verb of the service."""
