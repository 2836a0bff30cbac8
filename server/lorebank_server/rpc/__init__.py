"""The gRPC surface: servicers, conversion, validation and interceptors."""
