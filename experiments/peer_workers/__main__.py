"""The process of one peer: each line of its standard input is a group to measure, to be answered by one line.

Run by experiments/peers.py in the peer's own Python. Lines are JSON; an answer holds what the clock found, or the
reason why there is nothing to find.
"""

import gc
import json
import os
import sys
import time

from lockstep.experiments.bench import timing
from lockstep.experiments.peer_workers import Group, NotMeasured, Task, last_error, worker


def measure(peer, task: Task, group: Group, blocks: int, min_block_s: float) -> dict:
    """One group: its blocks as [live steps, wall s, CPU s], and what goes with them."""
    start = time.perf_counter()
    with peer.loop(task, group) as loop:
        loop.run()
        loop.synchronize()
        first_call_s = time.perf_counter() - start
        given = {"blocks": blocks, "min_block_s": min_block_s, "device": group.device}
        measured = timing.measure(loop.run, synchronize=loop.synchronize, **given)
        about = {"how": loop.how, "dtype": loop.dtype, "live_share": loop.live_share()}
    return about | {"first_call_s": first_call_s, "blocks": measured}


def main() -> None:
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints must not stand among the answers
    peer = worker(sys.argv[1])
    for line in sys.stdin:
        job = json.loads(line)
        try:
            answer = measure(peer, Task(**job["task"]), Group(**job["group"]), job["blocks"], job["min_block_s"])
        except NotMeasured as reason:
            answer = {"reason": str(reason)}
        except Exception as error:
            answer = {"reason": last_error(f"{type(error).__name__}: {error}")}
        gc.collect()  # the environment, whose memory the next group may need
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
