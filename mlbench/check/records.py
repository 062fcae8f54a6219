"""The records of one log, kept by key for the rules, in bounded memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from mlbench.collect.mllog_scan import Event, Oddity, Torn
from mlbench.collect.runlog import Record

MAX_PER_KEY = 20_000
MAX_KEYS = 1_000
MAX_RECORDS = 200_000
MAX_TORN = 1_000


@dataclass(slots=True)
class RecordIndex:
    """Records in file order by key; `num_left_out` counts those beyond the limits."""

    by_key: dict[str, list[Record]] = field(default_factory=lambda: defaultdict(list))
    torn: list[Torn] = field(default_factory=list)
    oddities: list[Oddity] = field(default_factory=list)
    num_kept: int = 0
    num_left_out: int = 0

    def tap(self, events: Iterable[Event]) -> Iterator[Event]:
        """Pass events on and keep what the rules need."""
        for event in events:
            if isinstance(event, Record):
                self._keep(event)
            elif isinstance(event, Torn):
                if len(self.torn) < MAX_TORN:
                    self.torn.append(event)
            elif len(self.oddities) < MAX_TORN:
                self.oddities.append(event)
            yield event

    def _keep(self, record: Record) -> None:
        known = record.key in self.by_key
        full = self.num_kept >= MAX_RECORDS or (not known and len(self.by_key) >= MAX_KEYS)
        if full or (known and len(self.by_key[record.key]) >= MAX_PER_KEY):
            self.num_left_out += 1
        else:
            self.by_key[record.key].append(record)
            self.num_kept += 1

    def all(self, *keys: str) -> list[Record]:
        """Records of these keys in file order."""
        found = [record for key in keys for record in self.by_key.get(key, ())]
        return sorted(found, key=lambda record: record.line) if len(keys) > 1 else found

    def first(self, key: str) -> Record | None:
        records = self.by_key.get(key)
        return records[0] if records else None

    def last(self, key: str) -> Record | None:
        records = self.by_key.get(key)
        return records[-1] if records else None
