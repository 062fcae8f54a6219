"""Keeping the database up to date with the files, without ever losing a file to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlbench.collect.runfolder import RunFolder
from mlbench.errors import MlbenchError
from mlbench.runner.events import Listener, Said

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from mlbench.store.tables import RunSet


class Keeper:
    """Reads the run set's files into one row and stores it, after each run, in one short transaction.

    `fault` is why it could not be stored the last time; the files are then the only copy."""

    def __init__(self, folder: RunFolder, url: str | None, listener: Listener) -> None:
        self._folder = folder
        self._url = url
        self._listener = listener
        self._engine: Engine | None = None
        self.fault: str | None = None

    def keep(self, *, last: bool = False) -> bool:
        """Store what the files say now. False, and said once, when the database does not take it.

        After that it is tried again with the `last` call alone: to wait for a locked database takes a minute, and no
        run shall wait for that."""
        from mlbench.store.engine import open_database
        from mlbench.store.repository import save_run_set

        if self.fault is not None and not last:
            return False
        try:
            row = self.read()
        except MlbenchError as error:
            self._tell(f"the run set cannot be read back: {error}")
            return False
        try:
            if self._engine is None:
                self._engine = open_database(self._url)
            save_run_set(self._engine, row)
            # Hours pass until the next run has ended: no connection of a shared server is kept for that long.
            self._engine.dispose()
        except MlbenchError as error:
            self._tell(
                f"not in the database: {error}; the files are whole in {self._folder.path}, and once the database can "
                "be written `mlbench db rebuild` loads them"
            )
            return False
        self.fault = None
        return True

    def read(self) -> RunSet:
        """The row that the files make. Raises InputError."""
        from mlbench.ingest.run_set import read_run_set

        return read_run_set(self._folder)

    def close(self) -> None:
        if self._engine is not None:
            self._engine.dispose()
            self._engine = None

    def _tell(self, sentence: str) -> None:
        if self.fault is None:
            self._listener(Said(sentence, warning=True))
        self.fault = sentence
