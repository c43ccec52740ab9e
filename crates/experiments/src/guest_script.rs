//! Shared by the scripts of guests: they put an interrupt thread into a reservation.

/// The kernel's share for ordinary threads is taken back, so that 95 % can be reserved.
///
/// - `now`: the time in ns, of CLOCK_MONOTONIC.
/// - `named NAME`: the first thread whose name begins so.
/// - `reserve Q T`: a reservation of Q us every T us for `$thread`, that of the interrupt `$irq`. `$reserver` holds it.
///   Status 1: the kernel refused it.
pub(crate) const RESERVING: &str = r#"
mount -t debugfs debug /sys/kernel/debug
echo 0 > /sys/kernel/debug/sched/fair_server/cpu0/runtime
now() { awk '/^now at/ {print $3; exit}' /proc/timer_list; }
named() { ps -o pid,comm | awk -v name="$1" '{at = index($2, name)} at == 1 || at == 2 {print $1; exit}'; }
reserve() {
    takt reserve --runtime "$1us" --period "$2us" --irq "$irq" --for 1h > /dev/null 2> refused &
    reserver=$!
    until grep -q '^policy *: *6' "/proc/$thread/sched"; do
        [ -d "/proc/$reserver" ] || { cat refused >&2; return 1; }
        sleep 0.01
    done
}
"#;
