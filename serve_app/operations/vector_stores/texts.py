"""The texts of files: read from the uploads, cut into chunks, and cached until the file is indexed."""

from collections import OrderedDict
from collections.abc import Sequence

from deployments.state.files.store import FileNotFound, FileStore
from deployments.state.objects.store import StoreUnavailable
from deployments.state.vector_stores.rows import ErrorCode, StoredStore, StoredStoreFile
from deployments.tools.config import FileSearchConfig
from deployments.tools.documents.chunks import Chunk
from deployments.tools.documents.readers import InvalidFile, UnsupportedFile
from deployments.tools.documents.reading import ChunkSizes, ReadingLimits, read_chunks
from serve_app.errors.api import ApiError
from serve_app.operations.vector_stores.embedder import Embedder
from serve_app.telemetry.log import log_bug

FAILED = "The file could not be indexed. Please try again."
_TOO_LARGE = "The file is larger than the {most} MiB that can be searched. Split it, and upload the parts."
_GONE = "The file was deleted."
_MIB = 1024 * 1024
_KEPT_CHARS = 64 * _MIB


class Unreadable(Exception):
    """The text of a file cannot be read; `code` and `message` are its `last_error`."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code: ErrorCode = code
        self.message = message


class Texts:
    """The cached texts of this process: 64 million characters at most, or one file."""

    def __init__(self, uploads: FileStore, embedder: Embedder, config: FileSearchConfig) -> None:
        self._uploads = uploads
        self._embedder = embedder
        self._most_mib = config.max_file_mib
        self._limits = ReadingLimits(config.read_memory_mib * _MIB, config.read_timeout_s)
        self._kept: OrderedDict[tuple[str, str, float], Sequence[Chunk]] = OrderedDict()

    async def read(self, store: StoredStore, file: StoredStoreFile) -> Sequence[Chunk]:
        """Return the chunks of a file in a store. Raises Unreadable if it is gone, cannot be read, or has no text."""
        chunks = self._kept.pop(_name(file), None)
        if chunks is None:
            chunks = await self._read_anew(store, file)
        self._kept[_name(file)] = chunks
        while len(self._kept) > 1 and sum(len(one.text) for kept in self._kept.values() for one in kept) > _KEPT_CHARS:
            self._kept.popitem(last=False)
        return chunks

    def forget(self, file: StoredStoreFile) -> None:
        """Remove the text of a file from the cache."""
        self._kept.pop(_name(file), None)

    async def _read_anew(self, store: StoredStore, file: StoredStoreFile) -> Sequence[Chunk]:
        try:
            stored = await self._uploads.find(file.account, file.file_id)
            if stored.num_bytes > self._most_mib * _MIB:
                raise InvalidFile(_TOO_LARGE.format(most=self._most_mib))
            content = b"".join([piece async for piece in self._uploads.read(stored)])
            sizes = ChunkSizes(
                file.chunking["static"]["max_chunk_size_tokens"],
                file.chunking["static"]["chunk_overlap_tokens"],
                self._embedder.passage_tokens(store.embedding_model),
            )
            return await read_chunks(content, file.filename, sizes, self._limits)
        except UnsupportedFile as error:
            raise Unreadable("unsupported_file", str(error)) from None
        except InvalidFile as error:
            raise Unreadable("invalid_file", str(error)) from None
        except FileNotFound:
            raise Unreadable("invalid_file", _GONE) from None
        except StoreUnavailable:
            raise Unreadable("server_error", FAILED) from None
        except ApiError as error:
            raise Unreadable("server_error", error.message) from None
        except Exception as error:
            log_bug("indexing", error)
            raise Unreadable("server_error", FAILED) from None


def _name(file: StoredStoreFile) -> tuple[str, str, float]:
    """Return the key of a file in the cache: the same file may be put into a store again with other chunks."""
    return file.store_id, file.file_id, file.created_at
