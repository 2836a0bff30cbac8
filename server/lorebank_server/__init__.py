"""The Lorebank server: memory for AI agents over gRPC."""
