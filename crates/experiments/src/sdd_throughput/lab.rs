//! Table VI and Fig. 6 in a guest of the lab: the interrupt thread of an IDE disk without DMA.

use takt_model::Span;

use super::super::LiveForm;
use super::super::context::Context;
use super::super::findings::Findings;
use super::{Measured, ORDER, TABLE_VI, charts, share_of, table_vi, throughput_claims};
use crate::failure::Failure;
use crate::host::LabRequest;

pub(super) const FORM: LiveForm = LiveForm {
    needs: "QEMU, a kernel with interrupt threads (takt lab fetch) and a static takt (--binary)",
    takes: (Span::from_s(120), Span::from_s(60)),
    longest: Span::MAX,
    run: reproduce,
};

/// The modules of the disk. Without DMA the driver copies each sector.
const MODULES: [(&str, &[&str]); 1] = [("libata", &["dma=0"])];
const DISK_MIB: u32 = 1024;
/// Blocks of 64 KiB that are read to measure a throughput that no reservation limits.
const BLOCKS: u64 = 320;
/// Whole periods of a reservation of 100 ms and of 1000 ms that are measured; the same with --short.
const PERIODS: ([u64; 2], [u64; 2]) = ([5, 2], [3, 1]);
/// A throughput needs this many whole periods. One is enough, because nothing disturbs virtual time.
const PERIODS_MIN: u64 = 1;

/// The guest's part. Each call of `row` reads in a reservation until `periods` budgets are used up.
///
/// The kernel's share for ordinary threads is taken back, so that 95 % can be reserved. Before each
/// measurement half a budget is used, so that whole periods take whole budgets.
const FUNCTIONS: &str = r#"
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do [ -b /dev/sda ] || sleep 0.2; done
mount -t debugfs debug /sys/kernel/debug
echo 0 > /sys/kernel/debug/sched/fair_server/cpu0/runtime
thread=$(ps -o pid,comm | awk '$2 ~ /^.?irq\/14-/ {print $1; exit}')
[ -b /dev/sda ] && [ -n "$thread" ] || { echo "no disk, or no interrupt thread" >&2; exit 1; }
now() { awk '/^now at/ {print $3; exit}' /proc/timer_list; }
used() { cut -d' ' -f1 "/proc/$thread/schedstat"; }
blocks() { dd if=/dev/sda of=/dev/null bs=64k count="$1" iflag=direct 2>/dev/null; }
measure() {
    used_before=$(used); before=$(now)
    blocks "$1"
    took=$(($(now) - before)); work=$(($(used) - used_before))
}
# The first seconds after a boot are slower.
sleep 1
blocks $((4 * most))
measure "$most"
each=$((work / most)); alone=$took
echo "fixed $most $took $work"
row() {
    takt reserve --runtime "$2us" --period "$3us" --irq 14 --for 1h > /dev/null 2> refused &
    reserver=$!
    until grep -q '^policy *: *6' "/proc/$thread/sched"; do
        [ -d "/proc/$reserver" ] || { cat refused >&2; echo "refused $1"; return; }
        sleep 0.01
    done
    count=$(($2 * 1000 / each)); periods=$4
    # Enough for the driver: as many blocks as at the fixed priority.
    if [ $(($2 * alone)) -ge $(($3 * most * each)) ]; then count=$most; periods=1; fi
    blocks $((count / 2 + 1))
    measure $((count * periods))
    echo "row $1 $((count * periods)) $took $work"
    kill $reserver; wait $reserver
    # The bandwidth is free again within a period.
    sleep 1.1
}
"#;

/// Whole periods of a reservation with this period, in milliseconds.
fn periods(short: bool, t: u64) -> u64 {
    let periods = if short { PERIODS.1 } else { PERIODS.0 };
    periods[usize::from(t > 100)]
}

fn script(short: bool) -> String {
    let rows = ORDER.map(|row| {
        let (q, t, _) = TABLE_VI[row];
        format!("row {row} {} {} {}\n", q * 1_000, t * 1_000, periods(short, t))
    });
    // The fixed priority once more at the end, beside the first time.
    let end = "measure \"$most\"\necho \"fixed $most $took $work\"\n";
    format!("most={BLOCKS}\n{FUNCTIONS}{}{end}", rows.concat())
}

fn reproduce(context: &Context) -> Result<Findings, Failure> {
    let Some(machine) = &context.lab else { return Err(Failure::trouble("the lab was not asked for")) };
    let request = LabRequest { modules: &MODULES, disk_mib: DISK_MIB, script: script(context.short) };
    let Some(text) = context.unless_stopped((context.host.lab)(machine, &request))? else {
        return Ok(Findings::default());
    };
    context.write("guest.txt", text.as_bytes())?;
    let measured = read(&text, context.short)
        .ok_or_else(|| Failure::trouble(format_args!("the guest printed what is no measurement: {text}")))?;
    let mut findings = Findings::default();
    findings.files.push("guest.txt".to_owned());
    findings.tables.push(table_vi(&measured));
    findings.figures.push(charts::throughput(&measured));
    throughput_claims(&mut findings, &measured, PERIODS_MIN);
    differences(&mut findings, machine.kernel.as_str(), &measured);
    Ok(findings)
}

/// The values in the guest's output. `None`: a line is none of its lines.
fn read(text: &str, short: bool) -> Option<Measured> {
    let mut measured = Measured::nothing();
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let kind = words.next()?;
        let numbers: Vec<u64> = words.map(|word| word.parse().ok()).collect::<Option<_>>()?;
        let rate = |blocks: u64, took: u64| (took > 0).then(|| blocks as f64 / (took as f64 / 1e9));
        match (kind, numbers.as_slice()) {
            ("fixed", &[blocks, took, work]) => {
                measured.fixed.push(rate(blocks, took)?);
                measured.share = Some(work as f64 / took as f64);
            }
            ("row", &[row, blocks, took, _]) => {
                let row = usize::try_from(row).ok().filter(|row| *row < TABLE_VI.len())?;
                measured.reserved[row].push(rate(blocks, took)?);
            }
            ("refused", &[_]) => measured.refused += 1,
            _ => return None,
        }
    }
    let share = measured.share?;
    for (row, (_, t, _)) in TABLE_VI.iter().enumerate() {
        // A reservation that does not limit the driver needs no whole periods.
        if share_of(row) < share && !measured.reserved[row].is_empty() {
            measured.periods[row] = periods(short, *t);
        }
    }
    Some(measured)
}

fn differences(findings: &mut Findings, kernel: &str, measured: &Measured) {
    findings.differences.push(format!(
        "The interrupt thread is real, and the disk is not: the kernel \"{kernel}\" runs under emulation, where an \
         instruction takes 1 ns. The disk answers at once. So the throughput is the driver's cost alone."
    ));
    if let Some(share) = measured.share {
        findings.differences.push(format!(
            "At a fixed priority the interrupt thread uses {:.1} % of the CPU, in the paper 66 %. The rest goes to \
             the reader, and to the kernel's way into and out of its idle state, once for each sector. So from \
             Q/T = {:.0} % on the throughput is the full one.",
            share * 100.0,
            share * 100.0
        ));
    }
    if measured.refused > 0 {
        findings.differences.push(format!("The kernel did not admit {} of the reservations.", measured.refused));
    }
    findings.differ([
        "Left out: Table VII and Figs. 9 and 10, because most of their reservations are larger than the driver's \
         need here; Figs. 7 and 8, because interrupts come when the emulation has them ready, not when a disk has. \
         Table VIII and Figs. 11 and 12 need a second machine that sends packets; a guest has one CPU for both.",
    ]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_a_guest_becomes_rows() {
        let measured = read("fixed 320 80000000 24000000\nrow 0 250 1000000000 20000000\nrefused 9\n", false);
        let measured = measured.expect("it is the output of a guest");
        assert_eq!(measured.share, Some(0.3));
        assert_eq!((measured.fixed.as_slice(), measured.reserved[0].as_slice()), (&[4000.0][..], &[250.0][..]));
        assert_eq!((measured.refused, measured.periods[0], measured.periods[1]), (1, 5, 0));
        for wrong in
            ["", "row 0 1 1 1", "fixed 1 2 3\nrow 20 1 1 1", "fixed 1 2 3\nrow 0 1 0 1", "fixed 1 2", "hello 1"]
        {
            assert!(read(wrong, false).is_none(), "{wrong}");
        }
    }

    #[test]
    fn the_script_has_a_call_for_each_row() {
        let script = script(true);
        assert_eq!(script.lines().filter(|line| line.starts_with("row ")).count(), TABLE_VI.len());
        assert!(script.contains("\nrow 3 20000 1000000 1\n"));
    }
}
