"""`make transcripts`: write the expected files anew; the diff is the review."""

import asyncio

from tests.transcripts import cases, crossings
from tests.transcripts.profile_cases import write_all

for case in (*cases.load(), *crossings.load()):
    for name, content in case.expected().items():
        path = case.folder / name
        if not path.exists() or path.read_bytes() != content:
            path.write_bytes(content)
            print(f"{case.name}/{name}")

asyncio.run(write_all())
