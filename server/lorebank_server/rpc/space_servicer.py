"""SpaceService: each procedure converts, calls its operation, and converts back."""

from importlib.metadata import version
from typing import Any

from lorebank.v1 import key_pb2, maintenance_pb2, space_pb2, space_service_pb2_grpc
from lorebank_server.domain.space import Space
from lorebank_server.operations import keys, spaces
from lorebank_server.operations.authenticate import Authenticator
from lorebank_server.operations.integrity import check_integrity
from lorebank_server.operations.reindex import Progress, reindex
from lorebank_server.operations.services import Services
from lorebank_server.rpc.caller import caller
from lorebank_server.rpc.conversion.integrity import from_integrity
from lorebank_server.rpc.conversion.keys import from_key, from_key_page, to_new_key
from lorebank_server.rpc.conversion.requests import require
from lorebank_server.rpc.conversion.spaces import from_space, to_new_space, to_space_edit


class SpaceServicer(space_service_pb2_grpc.SpaceServiceServicer):
    """Serves spaces and keys from the operations; what it leaves out is answered UNIMPLEMENTED."""

    def __init__(self, services: Services, authenticator: Authenticator) -> None:
        self._services = services
        self._authenticator = authenticator

    async def CreateSpace(self, request: space_pb2.CreateSpaceRequest, context: Any) -> space_pb2.CreateSpaceResponse:
        created = await spaces.create_space(self._services, caller(), to_new_space(request.space))
        return space_pb2.CreateSpaceResponse(space=self._described(created))

    async def GetSpace(self, request: space_pb2.GetSpaceRequest, context: Any) -> space_pb2.GetSpaceResponse:
        space = await spaces.get_space(self._services.administration, caller(), request.space)
        return space_pb2.GetSpaceResponse(space=self._described(space))

    async def ListSpaces(self, request: space_pb2.ListSpacesRequest, context: Any) -> space_pb2.ListSpacesResponse:
        page = await spaces.list_spaces(
            self._services, caller(), page_size=request.page_size, page_token=request.page_token
        )
        found, next_page_token = page
        return space_pb2.ListSpacesResponse(
            spaces=[self._described(space) for space in found], next_page_token=next_page_token
        )

    async def UpdateSpace(self, request: space_pb2.UpdateSpaceRequest, context: Any) -> space_pb2.UpdateSpaceResponse:
        edit = to_space_edit(request)
        space = await spaces.update_space(
            self._services, caller(), request.space.id, edit=edit, etag=request.space.etag
        )
        return space_pb2.UpdateSpaceResponse(space=self._described(space))

    async def DeleteSpace(self, request: space_pb2.DeleteSpaceRequest, context: Any) -> space_pb2.DeleteSpaceResponse:
        require("space", request.space)
        memories, digest, done = await spaces.delete_space(
            self._services, caller(), request.space, confirm=request.confirm
        )
        if done:
            self._authenticator.forget_space(request.space)
        return space_pb2.DeleteSpaceResponse(memories=memories, digest=digest, done=done)

    async def CreateKey(self, request: key_pb2.CreateKeyRequest, context: Any) -> key_pb2.CreateKeyResponse:
        key, secret = await keys.create_key(self._services, caller(), request.space, to_new_key(request.key))
        return key_pb2.CreateKeyResponse(key=from_key(key), secret=secret)

    async def ListKeys(self, request: key_pb2.ListKeysRequest, context: Any) -> key_pb2.ListKeysResponse:
        page = await keys.list_keys(
            self._services,
            caller(),
            request.space,
            page_size=request.page_size,
            page_token=request.page_token,
        )
        return from_key_page(*page)

    async def RevokeKey(self, request: key_pb2.RevokeKeyRequest, context: Any) -> key_pb2.RevokeKeyResponse:
        require("id", request.id)
        key = await keys.revoke_key(self._services, caller(), request.space, request.id)
        self._authenticator.forget(key.id)
        return key_pb2.RevokeKeyResponse(key=from_key(key))

    async def CheckIntegrity(
        self, request: maintenance_pb2.CheckIntegrityRequest, context: Any
    ) -> maintenance_pb2.CheckIntegrityResponse:
        return from_integrity(
            await check_integrity(self._services, caller(), request.space, repair=request.repair),
            server_version=version("lorebank"),
        )

    # Writes its answers itself, so that it ends in the task that began it.
    async def Reindex(  # type: ignore[override]
        self, request: maintenance_pb2.ReindexRequest, context: Any
    ) -> None:
        async def tell(progress: Progress) -> None:
            await context.write(
                maintenance_pb2.ReindexResponse(done=progress.done, total=progress.total, phase=progress.phase)
            )

        await reindex(self._services, caller(), request.space, request.model, tell=tell)

    def _described(self, space: Space) -> space_pb2.Space:
        """The message of a space, with the packs that every space of this server has."""
        message = from_space(space)
        message.packs.extend(pack.name for pack in self._services.vocabulary.packs)
        return message
