"""takt's response times beside those of pyRTA (PyPI response-time-analysis 0.1.1, the analyses that the Prosa project verified).

pyrta.py TAKT [SETS]: random task sets, a node each, so that one `takt check` analyses many. Every bound must be equal: fixed
priorities (deadlines beyond the period, other tasks' jitter), EDF preemptive and not, first come first served.
Exit 1 where one differs.
"""

import json
import random
import subprocess
import sys

from response_time_analysis import edf, fifo, fp
from response_time_analysis.model import (
    WCET,
    Deadline,
    FullyNonPreemptive,
    FullyPreemptive,
    IdealProcessor,
    Periodic,
    PeriodicWithJitter,
    Priority,
    Task,
    taskset,
)

NODES = 100


def draw(dice, kind):
    """Tasks (period, wcet, deadline, jitter), the most important first."""
    count = dice.randint(2, 5)
    share = dice.uniform(0.3, 0.97) / count
    tasks = []
    for _ in range(count):
        period = dice.randint(10, 400)
        wcet = max(1, int(period * share * dice.uniform(0.4, 1.6)))
        deadline = dice.randint(wcet, 2 * period) if kind != "fifo" else period
        jitter = dice.choice([0, dice.randint(1, period)]) if kind == "jitter" else 0
        tasks.append((period, wcet, deadline, jitter))
    return tasks


def theirs(kind, tasks):
    """pyRTA's bounds, None for none."""
    def modelled(i, task):
        period, wcet, deadline, jitter = task
        arrivals = PeriodicWithJitter(period=period, jitter=jitter) if jitter else Periodic(period=period)
        work = FullyNonPreemptive(WCET(wcet)) if kind == "edf-np" else FullyPreemptive(WCET(wcet))
        return Task(arrivals, work, Deadline(deadline), Priority(len(tasks) - i))

    models = [modelled(i, task) for i, task in enumerate(tasks)]
    everyone, supply, horizon = taskset(*models), IdealProcessor(), 1_000_000
    if kind == "fifo":
        bound = fifo.rta(everyone, supply, horizon=horizon).response_time_bound
        return [bound] * len(tasks)
    rta = fp.rta if kind in ("fp", "jitter") else edf.rta
    return [rta(everyone, model, supply, horizon=horizon).response_time_bound for model in models]


def ours(takt, kind, sets):
    """takt's bounds of the tasks of each set."""
    strategy = {"fp": "fp", "jitter": "fp", "edf": "edf", "edf-np": "whole", "fifo": "fifo"}[kind]
    lines = ["takt = 1"]
    if strategy == "whole":
        lines += ['[[strategy]]\nname = "whole"\nlevel = [{ tasks = "rest", discipline = "deadline", preemptive = false }]']
    for n, tasks in enumerate(sets):
        lines.append(f'[[node]]\nname = "n{n}"\nstrategy = "{strategy}"')
        for i, (period, wcet, deadline, jitter) in enumerate(tasks):
            lines.append(
                f'[[task]]\nnode = "n{n}"\nname = "t{n}-{i}"\narrival = "sporadic"\nperiod = "{period}ns"\nwcet = "{wcet}ns"\n'
                f'deadline = "{deadline}ns"\njitter = "{jitter}ns"\npriority = {i + 1}'
            )
    test = "rta" if kind in ("fp", "jitter", "fifo") else "edf-wcrt"
    command = [takt, "check", "-", "--json", "--test", test]
    done = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True)
    if done.returncode > 1:
        sys.exit(done.stderr)
    found = {task["task"]: task["wcrt_ns"] for report in json.loads(done.stdout)["tests"] for task in report["tasks"]}
    return [[found.get(f"t{n}-{i}") for i in range(len(tasks))] for n, tasks in enumerate(sets)]


def main():
    takt, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 500
    failed = False
    for kind in ("fp", "jitter", "edf", "edf-np", "fifo"):
        dice, equal, open_ = random.Random(kind), 0, 0
        for first in range(0, count, NODES):
            sets = [draw(dice, kind) for _ in range(min(NODES, count - first))]
            for tasks, bounds in zip(sets, ours(takt, kind, sets)):
                for task, mine, other in zip(tasks, bounds, theirs(kind, tasks)):
                    if task[3] > 0:
                        # They count from the release, takt from the nominal arrival before it.
                        continue
                    if mine is None and other is None:
                        open_ += 1
                    elif mine == other:
                        equal += 1
                    else:
                        failed = True
                        print(f"{kind}: takt {mine}, pyRTA {other}: {task} of {tasks}")
        print(f"{kind}: {equal} bounds equal, {open_} without bound in both")
        failed |= equal < count
    sys.exit(1 if failed else 0)


main()
