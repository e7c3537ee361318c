"""Writes cells of a release: ``python tests/sdk/federation/sharing/golden/write.py``.

It writes nothing where files exist. If one no longer opens, the reader is wrong, not the file.
"""

from __future__ import annotations

import hashlib
import json
import pathlib
from typing import Any

import numpy as np

from modelkin.federation.shards.fixed_point import least_power
from modelkin.federation.sharing import Aggregator, Member, Party, Plan, Roster, Round, public_key

HERE = pathlib.Path(__file__).parent
PLANS: dict[str, dict[str, Any]] = {
    "plain": {"conceal": False, "shards": 2},
    "thinned": {"conceal": False, "one_in": 4},
    "rounded": {"conceal": False, "quantize": "int8"},
    "concealed": {"shards": 2},
}


def main() -> None:
    if (HERE / "manifest.json").exists():
        raise SystemExit("the files exist: a new format needs a folder of its own")
    keys = [hashlib.sha256(bytes([at])).digest() for at in range(3)]
    parties = tuple(Party(f"m{at}", public_key(key)) for at, key in enumerate(keys))
    vectors = [np.sin(np.arange(40) * (at + 1)).astype(np.float32) for at in range(3)]
    entries = []
    for name, fields in PLANS.items():
        roster = Roster(Plan(num_parameters=40, **fields), parties)
        members = [Member(roster, at, key) for at, key in enumerate(keys)]
        peak = least_power(1.0) if roster.plan.conceal else None
        current = Round(1, {0: 1.0, 1: 2.0, 2: 5.0}, peak=peak)
        cells = {at: next(members[at].cells(vectors[at], current)).data for at in range(3)}
        (holder,) = roster.holders(0)
        aggregator = Aggregator(roster, holder, keys[holder])
        values = aggregator.combine(0, 0, cells, current).values
        assert values is not None
        for at, data in cells.items():
            (HERE / f"{name}-{at}.mksc").write_bytes(data)
        sealed = aggregator.seal_result(0, 0, values, current)
        (HERE / f"{name}-result.mksc").write_bytes(sealed)
        entries.append(
            {
                "name": name,
                "roster": roster.to_json(),
                "keys": [key.hex() for key in keys],
                "weights": {str(at): weight for at, weight in current.weights.items()},
                "peak": peak,
                "sha256": {at: hashlib.sha256(data).hexdigest() for at, data in cells.items()},
                "values": values.tolist(),
            }
        )
    (HERE / "manifest.json").write_text(json.dumps(entries, indent=1) + "\n")


if __name__ == "__main__":
    main()
