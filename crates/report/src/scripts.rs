//! Scripts that make other programs keep the budgets of components: control groups, libvirt's QEMU, Xen.

use std::fmt::Write as _;

use takt_model::{Auto, Component, ServerRule, Span, System, Threads, file::one_line};

/// The program that is to keep the budgets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keeper {
    /// `cpu.max` of control groups (version 2): a ceiling.
    CpuMax,
    /// `cpu.rt.max`, or `cpu.rt_runtime_us` of version 1: a ceiling for real-time threads.
    CpuRt,
    /// SCHED_DEADLINE for the vCPUs of QEMU, by a hook of libvirt: a guarantee.
    QemuHook,
    /// Xen's RTDS scheduler: a guarantee.
    Xl,
}

/// A script with its warnings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Script {
    /// For a POSIX shell.
    pub text: String,
    /// Differences from the System, a sentence each.
    pub warnings: Vec<String>,
}

struct Budget<'a> {
    component: &'a Component,
    /// Of each of its CPUs, rounded up.
    each: Span,
    all: Span,
    period: Span,
}

/// The least and the largest period of `cpu.max`, and its least budget.
const CPU_MAX: (Span, Span, Span) = (Span::from_ms(1), Span::from_s(1), Span::from_ms(1));
/// The same of SCHED_DEADLINE, as the kernel is shipped.
const DEADLINE: (Span, Span, Span) = (Span::from_us(100), Span::from_us(1 << 22), Span::from_ns(1024));
/// The same of Xen's RTDS; its numbers have 32 bits.
const RTDS: (Span, Span, Span) = (Span::from_us(10), Span::from_us(u32::MAX as u64), Span::from_us(10));
/// The same of real-time groups: the file has microseconds.
const GROUP: (Span, Span, Span) = (Span::from_us(1), Span::FILE_MAX, Span::from_us(1));

/// The script for the outermost components of a System.
///
/// # Errors
/// The limit of the other program, with the remedy, in words.
pub fn script(system: &System, keeper: Keeper) -> Result<Script, String> {
    let (what, range, kind) = match keeper {
        Keeper::CpuMax => ("cpu.max", CPU_MAX, "ceilings: no group gets more, and none is promised as much"),
        Keeper::CpuRt => ("cpu.rt.max", GROUP, "ceilings for SCHED_FIFO and SCHED_RR: no group gets more"),
        Keeper::QemuHook => ("SCHED_DEADLINE", DEADLINE, "guarantees: the kernel admits no more than it can keep"),
        Keeper::Xl => ("RTDS", RTDS, "guarantees, as long as \"takt check\" says that all fit"),
    };
    let mut budgets = Vec::new();
    for component in system.components.iter().filter(|component| component.parent.is_none()) {
        budgets.push(budget(component, keeper, what, range)?);
    }
    if budgets.is_empty() {
        return Err("the system has no component, and so no budget to keep; add a [[component]]".to_owned());
    }
    let mut script = Script { text: String::new(), warnings: Vec::new() };
    let name = one_line(&system.name);
    let _ = write!(script.text, "#!/bin/sh\n# Budgets of system \"{name}\" for {what}: {kind}.\n");
    match keeper {
        Keeper::CpuMax => cpu_max(&budgets, &mut script),
        Keeper::CpuRt => cpu_rt(&budgets, &mut script)?,
        Keeper::QemuHook => qemu_hook(&budgets, &mut script),
        Keeper::Xl => xl(&budgets, &mut script),
    }
    if system.components.iter().any(|component| component.parent.is_some()) {
        let warning = "components within components are left out: only the outermost have a group or a guest";
        script.warnings.push(warning.to_owned());
    }
    if budgets.iter().any(|budget| budget.component.node != budgets[0].component.node) {
        let warning = "the components of all nodes are in this script; remove those of other machines";
        script.warnings.push(warning.to_owned());
    }
    Ok(script)
}

fn budget<'a>(
    component: &'a Component,
    keeper: Keeper,
    what: &str,
    (period_min, period_max, budget_min): (Span, Span, Span),
) -> Result<Budget<'a>, String> {
    let name = &component.name;
    let (Auto::Value(period), Auto::Value(all)) = (component.period, component.budget) else {
        return Err(format!("component \"{name}\": its period or budget is \"auto\"; let \"takt size -o\" write both"));
    };
    let each = Span::from_ns(all.as_ns().div_ceil(u64::from(component.cpus.max(1))));
    if period < period_min || period > period_max {
        return Err(format!(
            "component \"{name}\": its period is {period}, and {what} takes {period_min} to {period_max}; choose \
             another period"
        ));
    }
    // A group has one limit for all of its CPUs.
    let limited = if keeper == Keeper::CpuMax { all } else { each };
    if limited < budget_min {
        return Err(format!(
            "component \"{name}\": its budget is {limited}, and {what} takes no less than {budget_min}; choose a \
             longer period"
        ));
    }
    Ok(Budget { component, each, all, period })
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// In microseconds: a budget rounded up, a period rounded down, so that nobody gets less.
fn in_us(budget: Span, period: Span) -> (u64, u64) {
    let period = period.as_ns() / 1000;
    (budget.as_ns().div_ceil(1000).min(period), period)
}

fn about(budget: &Budget<'_>) -> String {
    format!("# component {}: {} in each {}\n", one_line(&budget.component.name), budget.all, budget.period)
}

/// The group of a component below the root, a word for the shell.
fn group(component: &Component) -> String {
    match &component.threads {
        Some(Threads::Cgroup(path)) => quoted(path.trim_start_matches('/')),
        _ => quoted(&component.name.replace('/', "-")),
    }
}

/// Gives the group of a component its limit, and makes the group if nobody else does. A process moves into it last,
/// because real-time threads may not enter a group without a budget.
fn limited(component: &Component, limit: &str) -> String {
    let group = group(component);
    match &component.threads {
        Some(Threads::Cgroup(_) | Threads::Unit(_)) => format!("{limit}\n"),
        Some(Threads::Pid(pid)) => {
            format!("mkdir -p \"$root\"/{group}\n{limit}\necho {pid} > \"$root\"/{group}/cgroup.procs\n")
        }
        None => format!("mkdir -p \"$root\"/{group}\n{limit}\n"),
    }
}

fn cpu_max(budgets: &[Budget<'_>], script: &mut Script) {
    script.text.push_str("set -eu\nroot=${CGROUP_ROOT:-/sys/fs/cgroup}\n");
    for budget in budgets {
        let component = budget.component;
        script.text.push_str(&about(budget));
        if let Some(Threads::Unit(unit)) = &component.threads {
            // systemd takes hundredths of a percent, and writes the files itself.
            let share = u128::from(budget.all.as_ns()) * 10_000;
            let share = share.div_ceil(u128::from(budget.period.as_ns()));
            let _ = writeln!(
                script.text,
                "systemctl set-property --runtime {} CPUQuota={}.{:02}% CPUQuotaPeriodSec={}us",
                quoted(unit),
                share / 100,
                share % 100,
                budget.period.as_ns() / 1000
            );
            continue;
        }
        let (quota, period) = (budget.all.as_ns().div_ceil(1000), budget.period.as_ns() / 1000);
        let limit = format!("echo '{quota} {period}' > \"$root\"/{}/cpu.max", group(component));
        script.text.push_str(&limited(component, &limit));
    }
}

fn cpu_rt(budgets: &[Budget<'_>], script: &mut Script) -> Result<(), String> {
    script.text.push_str(
        "# The budget holds on each CPU. A kernel has one of the two files, and needs CONFIG_RT_GROUP_SCHED.\nset -eu\n\
         root=${CGROUP_ROOT:-/sys/fs/cgroup/cpu}\nlimit() {\n    if [ -e \"$1/cpu.rt.max\" ]; then\n        \
         echo \"$2 $3\" > \"$1/cpu.rt.max\"\n    else\n        echo \"$3\" > \"$1/cpu.rt_period_us\"\n        \
         echo \"$2\" > \"$1/cpu.rt_runtime_us\"\n    fi\n}\n",
    );
    for budget in budgets {
        let component = budget.component;
        if let Some(Threads::Unit(unit)) = &component.threads {
            return Err(format!(
                "component \"{}\": systemd sets no real-time budget for {unit}; name its group as threads = \
                 \"cgroup:/...\"",
                component.name
            ));
        }
        let (runtime, period) = in_us(budget.each, budget.period);
        script.text.push_str(&about(budget));
        let limit = format!("limit \"$root\"/{} {runtime} {period}", group(component));
        script.text.push_str(&limited(component, &limit));
    }
    Ok(())
}

fn xl(budgets: &[Budget<'_>], script: &mut Script) {
    script.text.push_str(
        "# The domain has the name of its component. Its pool of CPUs is under the scheduler rtds.\nset -eu\n",
    );
    for budget in budgets {
        let component = budget.component;
        // A domain with extra time uses what others leave.
        let extra = match component.server {
            ServerRule::Wcps | ServerRule::Crps | ServerRule::Grub | ServerRule::Cbs => 1,
            _ => 0,
        };
        let (runtime, period) = in_us(budget.each, budget.period);
        script.text.push_str(&about(budget));
        for vcpu in 0..component.cpus {
            let which = if component.cpus == 1 { "all".to_owned() } else { vcpu.to_string() };
            let name = quoted(&component.name);
            let _ = writeln!(script.text, "xl sched-rtds -d {name} -v {which} -p {period} -b {runtime} -e {extra}");
        }
    }
}

/// The hook's part behind the budgets. QEMU names its threads if libvirt or `-name debug-threads=on` says so.
const PROMOTE: &str = r#"pid=$(cat "${QEMU_PIDS:-/run/libvirt/qemu}/$guest.pid")
found=0
for task in /proc/"$pid"/task/*; do
    read -r name < "$task/comm" || continue
    thread=${task##*/}
    case $name in
    "CPU "*/KVM | "CPU "*/TCG)
        # A vCPU may start helper threads: these are ordinary again (chrt --reset-on-fork).
        chrt --deadline --reset-on-fork --sched-runtime "$runtime" --sched-deadline "$period" \
            --sched-period "$period" --pid 0 "$thread" || exit 1
        found=$((found + 1))
        ;;
    *) echo "takt: $guest: helper thread $thread ($name) stays as it was" >&2 ;;
    esac
done
if [ "$found" -ne "$vcpus" ]; then
    echo "takt: $guest has $found threads named \"CPU n/KVM\", and its component has cpus = $vcpus" >&2
    exit 1
fi
"#;

fn qemu_hook(budgets: &[Budget<'_>], script: &mut Script) {
    script.text.push_str(
        "# Install it as /etc/libvirt/hooks/qemu, make it executable (chmod 755), and restart libvirtd.\n\
         # libvirt gives it the guest's name, which is that of its component.\n\
         # Without libvirt: QEMU_PIDS=FOLDER HOOK GUEST started begin -, and -pidfile FOLDER/GUEST.pid.\n\
         guest=$1\n[ \"$2\" = started ] || exit 0\ncase $guest in\n",
    );
    for budget in budgets {
        let _ = writeln!(
            script.text,
            "# {} in each {}\n{}) runtime={} period={} vcpus={} ;;",
            budget.all,
            budget.period,
            quoted(&budget.component.name),
            budget.each.as_ns(),
            budget.period.as_ns(),
            budget.component.cpus
        );
    }
    script.text.push_str("*) exit 0 ;;\nesac\n");
    script.text.push_str(PROMOTE);
    if budgets.iter().any(|budget| budget.component.server != ServerRule::CbsHard) {
        let warning = "the kernel keeps every budget as a hard constant-bandwidth server (cbs-hard), whatever the \
                       server's rule";
        script.warnings.push(warning.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use takt_model::{Builtin, NodeId};

    use super::*;

    fn system(threads: [Option<Threads>; 2]) -> System {
        let mut system = System::local(2, Builtin::Edf, Vec::new());
        for ((name, cpus), threads) in [("guest", 1), ("it's two", 2)].into_iter().zip(threads) {
            let ms = Span::from_ms;
            let mut component = Component::new(name, NodeId(0), ServerRule::CbsHard);
            (component.period, component.budget) = (Auto::Value(ms(10)), Auto::Value(ms(3)));
            (component.cpus, component.threads) = (cpus, threads);
            system.components.push(component);
        }
        system
    }

    fn lines(system: &System, keeper: Keeper) -> Vec<String> {
        let script = script(system, keeper).unwrap();
        script.text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn each_keeper_has_its_form() {
        let threads = [Some(Threads::Cgroup("/machine.slice/guest".to_owned())), Some(Threads::Pid(7))];
        let of = system(threads);
        let text = lines(&of, Keeper::CpuMax);
        assert!(text.contains(&r#"echo '3000 10000' > "$root"/'machine.slice/guest'/cpu.max"#.to_owned()), "{text:#?}");
        assert!(text.contains(&r#"echo 7 > "$root"/'it'\''s two'/cgroup.procs"#.to_owned()), "{text:#?}");
        let text = lines(&of, Keeper::CpuRt);
        assert!(text.contains(&r#"limit "$root"/'it'\''s two' 1500 10000"#.to_owned()), "{text:#?}");
        let text = lines(&of, Keeper::Xl);
        assert!(text.contains(&"xl sched-rtds -d 'guest' -v all -p 10000 -b 3000 -e 0".to_owned()), "{text:#?}");
        assert!(text.contains(&r"xl sched-rtds -d 'it'\''s two' -v 1 -p 10000 -b 1500 -e 0".to_owned()), "{text:#?}");
        let text = lines(&of, Keeper::QemuHook);
        assert!(text.contains(&"'guest') runtime=3000000 period=10000000 vcpus=1 ;;".to_owned()), "{text:#?}");
        let unit = system([Some(Threads::Unit("a.service".to_owned())), None]);
        let text = lines(&unit, Keeper::CpuMax);
        let quota = "systemctl set-property --runtime 'a.service' CPUQuota=30.00% CPUQuotaPeriodSec=10000us";
        assert!(text.contains(&quota.to_owned()), "{text:#?}");
    }
}
