"""Writes a Perfetto trace to standard output with the published schema: what tests/perfetto.rs expects to read."""

import sys
import zlib

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as schema

trace = schema.Trace()

clocks = trace.packet.add().clock_snapshot
for clock, time in ((6, 1000), (3, 900), (1, 7)):
    clocks.clocks.add(clock_id=clock, timestamp=time)
trace.packet.add().system_info.utsname.machine = "x86_64"
tree = trace.packet.add().process_tree
tree.threads.add(tid=5, tgid=4, name="five")
tree.processes.add(pid=4, ppid=1, cmdline=["/usr/bin/four", "-x"])
start = trace.packet.add().ftrace_stats
start.phase = 1
start.cpu_stats.add(cpu=0, overrun=10)
trace.packet.add(timestamp=5).track_event.type = 3

# Compact, and compressed.
inner = schema.Trace()
bundle = inner.packet.add().ftrace_events
bundle.cpu = 0
bundle.previous_bundle_end_timestamp = 0
compact = bundle.compact_sched
compact.intern_table.extend(["five", "swapper/0"])
compact.switch_timestamp.extend([2010, 20])
compact.switch_prev_state.extend([0, 1])
compact.switch_next_pid.extend([5, 0])
compact.switch_next_prio.extend([-1, 120])
compact.switch_next_comm_index.extend([0, 1])
compact.waking_timestamp.append(2000)
compact.waking_pid.append(5)
compact.waking_target_cpu.append(0)
compact.waking_prio.append(-1)
compact.waking_comm_index.append(0)
compact.waking_common_flags.append(9)
event = bundle.event.add(timestamp=2020, pid=5)
event.sys_enter.id = 230
event.sys_enter.args.extend([1, 1, 0, 0, 0, 0])
event = bundle.event.add(timestamp=2021, pid=5)
event.hrtimer_start.expires = 9050
event.hrtimer_start.softexpires = 9000
trace.packet.add().compressed_packets = zlib.compress(inner.SerializeToString())

# One of each.
bundle = trace.packet.add(trusted_packet_sequence_id=3).ftrace_events
bundle.cpu = 0
bundle.lost_events = True
bundle.previous_bundle_end_timestamp = 2030
time = 2040


def add(flags=1, pid=41):
    global time
    time += 1
    return bundle.event.add(timestamp=time - 1, pid=pid, common_flags=flags)


def switch(prev, state, following, pid):
    target = add(pid=pid).sched_switch
    target.prev_comm, target.prev_pid, target.prev_prio = prev
    target.prev_state = state
    target.next_comm, target.next_pid, target.next_prio = following


a, idle = ("a thread", 41, -1), ("swapper/1", 0, 120)
switch(idle, 0, a, 0)
call = add().sys_enter
call.id = 232
call.args.extend([3, 2**64 - 1, 8, 7, 0, 1])
call = add().sys_exit
call.id, call.ret = 232, -4
for name in ("sched_waking", "sched_wakeup"):
    target = getattr(add(flags=0x11), name)
    target.comm, target.pid, target.prio, target.target_cpu = "c", 77, 98, 3
target = add().sched_wakeup_new
target.comm, target.pid = "d", 78
target = add().sched_migrate_task
target.comm, target.pid, target.orig_cpu, target.dest_cpu = "d", 78, 1, 2
target = add().sched_process_fork
target.parent_comm, target.parent_pid, target.child_comm, target.child_pid = "a thread", 41, "e", 79
target = add().task_rename
target.pid, target.oldcomm, target.newcomm = 41, "a thread", "é"
target = add().sched_process_exit
target.comm, target.pid, target.tgid = "a thread", 41, 41
target = add().irq_handler_entry
target.irq, target.name = 24, "eth0"
add().softirq_raise.vec = 3
target = add().irq_handler_exit
target.irq, target.ret = 24, 1
add().softirq_entry.vec = 3
add().softirq_exit.vec = 3
target = add().generic
target.event_name = "hrtimer_start"
target.field.add(name="expires", int_value=5050)
target.field.add(name="softexpires", int_value=5000)
getattr(add(), "print").buf = "B|1|draw"
switch(a, 16, idle, 41)

end = trace.packet.add().ftrace_stats
end.phase = 2
end.cpu_stats.add(cpu=0, overrun=12, dropped_events=1)

sys.stdout.buffer.write(trace.SerializeToString())
