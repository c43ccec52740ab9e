"""Task sets of the benchmarks in SimSo (PyPI simso 0.8.5): prints jobs per CPU-second.

The peer of `cargo bench -p takt-sim -- --simso python3`. The argument names the set:

- main: ten tasks, periods 10 to 100 ms, U = 3.0, global EDF on four CPUs;
- domains: 250 tasks, U = 0.75, under RM on one CPU;
- reservations: the same, each task in a constant-bandwidth server of its own, as SCHED_DEADLINE has them.
"""

import contextlib
import os
import sys
import time

from simso.configuration import Configuration
from simso.core import Model

PERIODS_MS = [10, 13, 17, 22, 28, 36, 47, 60, 78, 100]
# By set: virtual seconds, tasks, CPUs, utilisation of each task, scheduler.
SETS = {
    "main": (30, 10, 4, 0.3, "EDF"),
    "domains": (1, 250, 1, 0.003, "RM_mono"),
    "reservations": (1, 250, 1, 0.003, "SCHED_DEADLINE"),
}
seconds, tasks, cpus, utilisation, scheduler = SETS[sys.argv[1] if len(sys.argv) > 1 else "main"]

configuration = Configuration()
configuration.duration = seconds * 1000 * configuration.cycles_per_ms
for i in range(tasks):
    period = PERIODS_MS[i % 10] + i // 10 * 0.007
    budget = 1.2 * utilisation * period
    configuration.add_task(
        name=f"t{i}",
        identifier=i + 1,
        period=period,
        activation_date=0,
        wcet=utilisation * period,
        deadline=period,
        data={"cbs_period": period, "cbs_deadline": period, "cbs_maximum_runtime": budget},
    )
for cpu in range(cpus):
    configuration.add_processor(name=f"CPU {cpu}", identifier=cpu)
configuration.scheduler_info.clas = f"simso.schedulers.{scheduler}"
configuration.check_all()
model = Model(configuration)
before = time.process_time()
# Its EDF prints every decision; that is not what is measured.
with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
    model.run_model()
seconds = time.process_time() - before
jobs = sum(len(task.jobs) for task in model.results.tasks.values())
print(jobs / seconds)
