"""One transaction: the repositories over one connection."""

from sqlalchemy import Connection

from holdfast.adapters.store.agent_files import SqlAgentFiles
from holdfast.adapters.store.agents import SqlAgents
from holdfast.adapters.store.archives import SqlArchives
from holdfast.adapters.store.blocks import SqlBlocks
from holdfast.adapters.store.callbacks import SqlCallbacks
from holdfast.adapters.store.calls import SqlCalls
from holdfast.adapters.store.cipher import Cipher
from holdfast.adapters.store.contents import SqlContents
from holdfast.adapters.store.disk_space import has_disk_space
from holdfast.adapters.store.events import SqlEvents
from holdfast.adapters.store.file_removal import SqlRemovals
from holdfast.adapters.store.files import SqlFiles
from holdfast.adapters.store.folders import SqlFolders
from holdfast.adapters.store.fts5_index import Fts5Index
from holdfast.adapters.store.identities import SqlIdentities
from holdfast.adapters.store.mcp_servers import SqlMcpServers
from holdfast.adapters.store.mcp_sessions import SqlMcpSessions
from holdfast.adapters.store.messages import SqlMessages
from holdfast.adapters.store.passages import SqlPassages
from holdfast.adapters.store.pgvector import PgvectorCopy, PgvectorSearch
from holdfast.adapters.store.procrastinate_queue import ProcrastinateQueue
from holdfast.adapters.store.providers import SqlProviders
from holdfast.adapters.store.queue import SqlQueue
from holdfast.adapters.store.runs import SqlRuns
from holdfast.adapters.store.search_index import SqlSearchIndex
from holdfast.adapters.store.servers import DatabaseClock, SqlServers
from holdfast.adapters.store.stale_prompts import SqlStalePrompts
from holdfast.adapters.store.steps import SqlSteps
from holdfast.adapters.store.table_queue import TableQueue
from holdfast.adapters.store.threads import SqlThreads
from holdfast.adapters.store.tools import SqlTools
from holdfast.adapters.store.traces import SqlTraces
from holdfast.adapters.store.tsvector_index import TsvectorIndex
from holdfast.adapters.store.vector_cache import VectorCache
from holdfast.adapters.store.vector_search import ExactSearch, VectorSearch
from holdfast.adapters.store.vector_tables import MESSAGE_VECTORS, PASSAGE_VECTORS, VectorTables
from holdfast.adapters.store.vectors import SqlVectors
from holdfast.adapters.store.word_index import WordIndexes


class SqlTransaction:
    """``clock`` is the clock of the database; None: the database has one of its own, and a queue of jobs. ``vector_cache``:
    only for transactions that do not write. ``message_embedding``: the model that makes vectors of messages, if any."""

    def __init__(
        self,
        connection: Connection,
        cipher: Cipher,
        clock: DatabaseClock | None,
        *,
        vector_cache: VectorCache | None = None,
        message_embedding: str | None = None,
    ) -> None:
        self._connection = connection
        queue = TableQueue(connection) if clock else ProcrastinateQueue(connection)
        self.agents = SqlAgents(connection, cipher)
        self.tools = SqlTools(connection)
        self.blocks = SqlBlocks(connection)
        self.identities = SqlIdentities(connection)
        self.providers = SqlProviders(connection, cipher)
        self.mcp_servers = SqlMcpServers(connection, cipher)
        self.mcp_sessions = SqlMcpSessions(connection, cipher)
        self.threads = SqlThreads(connection)
        self._open_texts(Fts5Index if clock else TsvectorIndex, vector_cache, message_embedding)
        self._open_files()
        self.calls = SqlCalls(connection)
        self.runs = SqlRuns(connection, queue)
        self.servers = SqlServers(connection, clock)
        self.queue = SqlQueue(queue, self.runs, self.servers)
        self.callbacks = SqlCallbacks(connection)
        self.steps = SqlSteps(connection)
        self.traces = SqlTraces(connection)
        self.events = SqlEvents(connection)

    def _open_texts(
        self, open_index: WordIndexes, cache: VectorCache | None, message_embedding: str | None
    ) -> None:
        """What is searched: messages and passages, each with an index of words and with vectors."""
        connection = self._connection
        message_index = open_index(connection, "message_index")
        passage_index = open_index(connection, "passage_index")
        self.search_index = SqlSearchIndex(connection, (message_index, passage_index))
        self.message_vectors = _open_vectors(connection, MESSAGE_VECTORS)
        self.passage_vectors = _open_vectors(connection, PASSAGE_VECTORS)
        self.messages = SqlMessages(
            connection,
            message_index,
            self.message_vectors,
            _search_vectors(connection, MESSAGE_VECTORS, cache),
            embedding=message_embedding,
        )
        self.archives = SqlArchives(connection)
        self.passages = SqlPassages(
            connection,
            passage_index,
            self.passage_vectors,
            _search_vectors(connection, PASSAGE_VECTORS, cache),
        )

    def _open_files(self) -> None:
        self.folders = SqlFolders(self._connection)
        self.files = SqlFiles(self._connection)
        self.contents = SqlContents(self._connection)
        self.removals = SqlRemovals(self._connection)
        self.agent_files = SqlAgentFiles(self._connection)
        self.stale_prompts = SqlStalePrompts(self._connection)

    def write_probe(self) -> None:
        # Every store has this row. To write the value that it has is a write all the same.
        self._connection.exec_driver_sql("UPDATE alembic_version SET version_num = version_num")

    def has_disk_space(self) -> bool:
        return has_disk_space(self._connection)


def _open_vectors(connection: Connection, kind: VectorTables) -> SqlVectors:
    if connection.dialect.name == "sqlite":
        return SqlVectors(connection, kind)
    return SqlVectors(connection, kind, PgvectorCopy(connection, kind))


def _search_vectors(
    connection: Connection, kind: VectorTables, cache: VectorCache | None
) -> VectorSearch:
    if connection.dialect.name == "sqlite":
        return ExactSearch(connection, kind, cache)
    return PgvectorSearch(connection, kind)
