"""Running one command on every host, side by side: what all proofs and helpers on hosts are built on."""

from __future__ import annotations

import contextlib
import os
import selectors
import shlex
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

_CHUNK_BYTES = 65536
_MAX_OUTPUT_BYTES = 1 << 22
_END_LIMIT_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """How to start a process on a host, or with one command on several.

    `prefix` stands ahead of the command: empty on this host, `ssh ... HOST`, or `srun --nodes=N ...`. `one_word`: the
    command is handed over as one text for a shell there, as ssh does. `takes_input`: standard input arrives there.
    `names_itself`: which host answers is not known before it does (a scheduler chooses)."""

    name: str
    prefix: tuple[str, ...] = ()
    num_hosts: int = 1
    one_word: bool = False
    takes_input: bool = True
    names_itself: bool = False

    def argv(self, command: Sequence[str]) -> list[str]:
        return [*self.prefix, shlex.join(command)] if self.one_word else [*self.prefix, *command]


@dataclass(slots=True)
class Conversation:
    """One command in progress or over. `lines` are (time.time() of arrival, text) of whole lines of its output.

    `status` is None until it has ended, and when it had to be killed at the limit (`timed_out`) or could not be started
    (`start_error`)."""

    reach: Reach
    started_at_s: float
    lines: list[tuple[float, str]] = field(default_factory=list)
    errors: bytes = b""
    status: int | None = None
    timed_out: bool = False
    start_error: str | None = None
    sent: list[float] = field(default_factory=list)
    """time.time() of each line that was sent to it."""

    @property
    def last_error(self) -> str:
        """Last line of standard error, at most 200 characters."""
        text = self.errors.decode("utf-8", "replace").strip()
        return text.splitlines()[-1][:200] if text else ""


Reply = Callable[[Conversation], bytes | None]
"""Called after each line: what to send, None for nothing more."""


def run_everywhere(
    reaches: Sequence[Reach],
    command: Sequence[str],
    *,
    limit_s: float,
    environment: Mapping[str, str],
    reply: Reply | None = None,
) -> list[Conversation]:
    """Run `command` through every reach at the same time; what each said, in the order of `reaches`."""
    selector = selectors.DefaultSelector()
    running: dict[int, subprocess.Popen[bytes]] = {}
    conversations = []
    for index, reach in enumerate(reaches):
        conversation = Conversation(reach=reach, started_at_s=time.time())
        conversations.append(conversation)
        try:
            process = subprocess.Popen(
                reach.argv(command),
                stdin=subprocess.PIPE if reply is not None and reach.takes_input else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=dict(environment),
                start_new_session=True,
            )
        except OSError as error:
            conversation.start_error = f"{reach.argv(command)[0]}: {error.strerror}"
            continue
        running[index] = process
        assert process.stdout is not None
        assert process.stderr is not None
        selector.register(process.stdout, selectors.EVENT_READ, (index, "lines"))
        selector.register(process.stderr, selectors.EVENT_READ, (index, "errors"))
    _converse(selector, conversations, running, time.monotonic() + limit_s, reply)
    for index, process in running.items():
        _close(process, conversations[index])
    return conversations


def _converse(
    selector: selectors.BaseSelector,
    conversations: Sequence[Conversation],
    running: Mapping[int, subprocess.Popen[bytes]],
    deadline: float,
    reply: Reply | None,
) -> None:
    partial: dict[int, bytes] = dict.fromkeys(running, b"")
    while selector.get_map():
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            return
        for key, _ in selector.select(remaining):
            arrived_at_s = time.time()
            index, stream = key.data
            conversation = conversations[index]
            data = os.read(key.fd, _CHUNK_BYTES)
            if not data:
                selector.unregister(key.fileobj)
            elif stream == "errors":
                conversation.errors = (conversation.errors + data)[-_MAX_OUTPUT_BYTES:]
            else:
                *lines, partial[index] = (partial[index] + data)[-_MAX_OUTPUT_BYTES:].split(b"\n")
                for line in lines:
                    conversation.lines.append((arrived_at_s, line.decode("utf-8", "replace")))
                    _send(running[index], conversation, reply)


def _send(process: subprocess.Popen[bytes], conversation: Conversation, reply: Reply | None) -> None:
    if reply is None or process.stdin is None or process.stdin.closed:
        return
    message = reply(conversation)
    try:
        if message is None:
            process.stdin.close()
            return
        conversation.sent.append(time.time())
        process.stdin.write(message)
        process.stdin.flush()
    except OSError:
        return  # it has ended; its status says so


def _close(process: subprocess.Popen[bytes], conversation: Conversation) -> None:
    """Let it end for a moment, then end it: an ssh that hangs must not hang us."""
    if process.stdin is not None and not process.stdin.closed:
        with contextlib.suppress(OSError):
            process.stdin.close()
    try:
        conversation.status = process.wait(timeout=_END_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        conversation.timed_out = True
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()
