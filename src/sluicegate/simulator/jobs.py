"""What the simulated provider keeps beside answers: files, video jobs and batches.

A job is done once it has been asked for so often as `polls` says. A video's bytes are its id over and over, one byte a
millisecond; every request of a batch is answered with its own text. Source: OpenAI's API reference.
"""

import re
from typing import Any

import msgspec

from sluicegate.simulator.endpoints import form_of, is_form, tokens
from sluicegate.simulator.record import Received
from sluicegate.simulator.script import Script, Send

Told = dict[str, Any]
_PATH = re.compile(r"(?:^|.*/)(videos|files|batches)(?:/([^/]+))?(?:/([a-z]+))?")
_RANGE = re.compile(r"bytes=([0-9]*)-([0-9]*)")
PIECE_BYTES = 65_536
DONE = 1_700_000_100


class Jobs:
    """All that is kept, by its id."""

    def __init__(self) -> None:
        self.polls = 1
        """How often a job is said to be under way before it is done."""
        self.fails = False
        """Videos that are made from now on fail."""
        self.files: dict[str, bytes] = {}
        """Contents by id."""
        self._told: dict[str, Told] = {}
        self._polls: dict[str, int] = {}
        self._made = 0

    def ids(self, kind: str) -> list[str]:
        """Return the ids of what is kept of a kind (video, file, batch), oldest first."""
        return [id for id, told in self._told.items() if told["object"] == kind]

    def keep_video(self, id: str, *, seconds: int, size: str) -> None:
        """Keep a video under an id that a script has told."""
        video = {"id": id, "object": "video", "status": "queued", "seconds": str(seconds), "size": size}
        self._told[id] = video
        self._polls[id] = self.polls

    def finish(self, id: str) -> None:
        """Have a job be done when it is asked for next."""
        self._polls[id] = 0

    def names(self, path: str) -> bool:
        """Whether a path is about what is kept here."""
        return _PATH.fullmatch(path) is not None

    def answer(self, record: Received) -> Script:
        """Return the answer to a request about it."""
        found = _PATH.fullmatch(record.path)
        assert found is not None, "asked before"
        kind, id, part = found.groups()
        if id is None:
            if record.method == "GET":
                word = {"videos": "video", "files": "file", "batches": "batch"}[kind]
                return _json({"object": "list", "data": [self._told[one] for one in self.ids(word)]})
            return _json(self._make(kind, record))
        if kind == "videos" and id in ("edits", "extensions"):
            return self._rework(id, record)
        if id not in self._told:
            return _error(404, f"No such {kind}: {id}")
        match record.method, part:
            case "GET", None:
                return _json(self._poll(id))
            case "GET", "content":
                return self._content(id, record)
            case "POST", "remix":
                told = self._told[id]
                asked = msgspec.json.decode(record.body)
                made = self._video(asked | {name: told[name] for name in ("model", "seconds", "size")})
                return _json(made | {"remixed_from_video_id": id})
            case "POST", "cancel":
                self._told[id] |= {"status": "cancelling"}
                self._polls[id] = 0
                return _json(self._told[id])
            case "DELETE", None:
                told = self._told.pop(id)
                return _json({"id": id, "object": told["object"], "deleted": True})
        return _error(405, "Not allowed here.")

    def _make(self, kind: str, record: Received) -> Told:
        asked = form_of(record.body) if is_form(record.body) else msgspec.json.decode(record.body)
        if kind == "videos":
            return self._video(asked)
        if kind == "files":
            name = re.search(rb'filename="([^"]*)"', record.body)
            content = asked["file"]
            return self.keep(content, asked["purpose"], name[1].decode() if name else "file")
        batch = {
            "id": self._id("batch_"),
            "object": "batch",
            "endpoint": asked["endpoint"],
            "input_file_id": asked["input_file_id"],
            "completion_window": asked["completion_window"],
            "metadata": asked.get("metadata"),
            "status": "validating",
            "created_at": 1_700_000_000,
            "output_file_id": None,
            "error_file_id": None,
        }
        return self._kept(batch)

    def keep(self, content: bytes, purpose: str, name: str) -> Told:
        """Keep a file."""
        told = {
            "id": self._id("file-"),
            "object": "file",
            "bytes": len(content),
            "created_at": 1_700_000_000,
            "filename": name,
            "purpose": purpose,
            "status": "processed",
        }
        self.files[str(told["id"])] = content
        return self._kept(told)

    def _video(self, asked: dict[str, Any]) -> Told:
        video = {
            "id": self._id("video_"),
            "object": "video",
            "model": asked.get("model"),
            "prompt": asked.get("prompt"),
            "status": "queued",
            "progress": 0,
            "created_at": 1_700_000_000,
            "seconds": str(asked.get("seconds", 4)),
            "size": asked.get("size", "720x1280"),
        }
        return self._kept(video)

    def _rework(self, how: str, record: Received) -> Script:
        """Change a video, or go on with it: told is the length of both together then."""
        asked = form_of(record.body) if is_form(record.body) else msgspec.json.decode(record.body)
        named = asked.get("video", {})
        source: Told | None
        if isinstance(named, bytes):  # sent, and as long as it has thousands of bytes
            source = {"model": "sora-2", "seconds": str(len(named) // 1000), "size": "720x1280"}
            source["status"] = "completed"
        else:
            source = self._told.get(named.get("id", asked.get("video[id]")))
        if source is None or source["status"] != "completed":
            return _error(404, "No such video that is done.")
        made = {name: source[name] for name in ("model", "seconds", "size")}
        if how == "extensions":
            made["seconds"] = str(int(source["seconds"]) + int(asked["seconds"]))
        return _json(self._video(asked | made))

    def _kept(self, told: Told) -> Told:
        self._told[told["id"]] = told
        self._polls[told["id"]] = self.polls
        return told

    def _id(self, word: str) -> str:
        self._made += 1
        return f"{word}{self._made:012d}"

    def _poll(self, id: str) -> Told:
        told = self._told[id]
        if told["object"] == "file" or told["status"] in ("completed", "failed", "cancelled"):
            return told
        if self._polls[id] > 0:
            self._polls[id] -= 1
            told |= {"status": "in_progress"}
        elif told["object"] == "batch":
            self._run(told)
        elif self.fails:
            told |= {"status": "failed", "error": {"code": "moderation_blocked", "message": "No."}}
        else:
            told |= {"status": "completed", "progress": 100, "completed_at": DONE, "expires_at": DONE + 3600}
        return told

    def _run(self, batch: Told) -> None:
        results = []
        lines = self.files[str(batch["input_file_id"])].splitlines()
        if batch["status"] == "cancelling":
            lines = lines[:1]
        for line in lines:
            asked = msgspec.json.decode(line)
            results.append(msgspec.json.encode(_result(asked)))
        made = self.keep(b"\n".join(results), "batch_output", "output.jsonl")
        ended = "cancelled" if batch["status"] == "cancelling" else "completed"
        batch |= {"status": ended, "output_file_id": made["id"], "completed_at": DONE}

    def _content(self, id: str, record: Received) -> Script:
        told = self._told[id]
        kind = "application/octet-stream"
        if told["object"] == "video":
            if told["status"] != "completed":
                return _error(404, "The video is not ready.")
            size, kind = int(float(told["seconds"]) * 1000), "video/mp4"
            content = (id.encode() * (size // len(id) + 1))[:size]
        else:
            content = self.files[id]
        wanted = _RANGE.fullmatch(record.header("range") or "")
        headers = [("content-type", kind), ("accept-ranges", "bytes")]
        status, start, end = 200, 0, len(content)
        if wanted is not None and (wanted[1] or wanted[2]):
            status = 206
            if wanted[1]:
                start, end = int(wanted[1]), min(int(wanted[2] or end) + 1, end)
            else:
                start = max(0, end - int(wanted[2]))
            if start >= len(content):
                script = _error(416, "Nothing there.")
                return msgspec.structs.replace(
                    script, headers=(*script.headers, ("content-range", f"bytes */{len(content)}"))
                )
            headers.append(("content-range", f"bytes {start}-{end - 1}/{len(content)}"))
        piece = content[start:end]
        steps = tuple(Send(data=piece[at : at + PIECE_BYTES]) for at in range(0, len(piece), PIECE_BYTES))
        return Script(
            name="content",
            status=status,
            headers=tuple(headers),
            framing="length",
            content_length=len(piece),
            steps=steps or (Send(data=b""),),
        )


def _result(asked: dict[str, Any]) -> dict[str, Any]:
    body = asked["body"]
    text = str(body.get("messages") or body.get("input") or body.get("prompt"))
    into, out = tokens(text), 3
    if asked["url"].endswith("/responses"):
        usage = {"input_tokens": into, "output_tokens": out, "total_tokens": into + out}
    else:
        usage = {"prompt_tokens": into, "completion_tokens": out, "total_tokens": into + out}
    failed = "fail" in text
    told = {"error": {"message": "No."}} if failed else {"model": body["model"], "usage": usage, "text": text}
    return {
        "id": "batch_req_1",
        "custom_id": asked["custom_id"],
        "response": {"status_code": 400 if failed else 200, "request_id": "r", "body": told},
        "error": None,
    }


def _json(told: Told) -> Script:
    return Script(name="kept object", body=msgspec.json.encode(told).decode())


def _error(status: int, message: str) -> Script:
    return Script(name="kept object", status=status, message=message)
