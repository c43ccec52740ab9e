"""The main row's task set in SimSo (PyPI simso 0.8.5): prints jobs per CPU-second.

The peer of `cargo bench -p takt-sim -- --simso python3`: ten tasks, periods 10 to 100 ms, U = 3.0, global EDF on four CPUs.
"""

import contextlib
import os
import time

from simso.configuration import Configuration
from simso.core import Model

PERIODS_MS = [10, 13, 17, 22, 28, 36, 47, 60, 78, 100]
SECONDS = 30

configuration = Configuration()
configuration.duration = SECONDS * 1000 * configuration.cycles_per_ms
for i, period in enumerate(PERIODS_MS):
    configuration.add_task(
        name=f"t{i}", identifier=i + 1, period=period, activation_date=0, wcet=0.3 * period, deadline=period
    )
for cpu in range(4):
    configuration.add_processor(name=f"CPU {cpu}", identifier=cpu)
configuration.scheduler_info.clas = "simso.schedulers.EDF"
configuration.check_all()
model = Model(configuration)
before = time.process_time()
# Its EDF prints every decision; that is not what is measured.
with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
    model.run_model()
seconds = time.process_time() - before
jobs = sum(len(task.jobs) for task in model.results.tasks.values())
print(jobs / seconds)
