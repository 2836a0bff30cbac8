"""KnowledgeService: no procedure of it is served, which its interceptor says with what to do instead."""

from lorebank.v1 import knowledge_service_pb2_grpc


class KnowledgeServicer(knowledge_service_pb2_grpc.KnowledgeServiceServicer):
    """Every procedure is answered UNIMPLEMENTED."""
