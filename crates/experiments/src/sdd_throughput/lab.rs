//! Tables VI and VII, Figs. 6 to 10 in a guest of the lab: the interrupt threads of an IDE disk without DMA, and of a
//! virtio disk, which has DMA ([`super::dma`]).

use takt_model::Span;
use takt_run::lab::pure::machine::Devices;
use takt_run::load::Reader;

use super::super::LiveForm;
use super::super::context::Context;
use super::super::findings::Findings;
use super::dma::{self, Dma};
use super::{
    Measured, ORDER, TABLE_VI, TABLE_VII, charts, file_claims, share_of, table_vi, table_vii, throughput_claims,
};
use crate::failure::Failure;
use crate::guest_script::RESERVING;
use crate::host::LabRequest;

pub(super) const FORM: LiveForm = LiveForm {
    needs: "QEMU, a kernel with interrupt threads (takt lab fetch) and a static takt (--binary)",
    takes: (Span::from_s(300), Span::from_s(150)),
    longest: Span::MAX,
    run: reproduce,
};

/// The modules of the disks. Without DMA the driver of the IDE disk copies each sector.
const MODULES: [(&str, &[&str]); 1] = [("libata", &["dma=0"])];
const DISK_MIB: u32 = 1024;
/// CPU time that the emulation may take.
const TIMEOUT: Span = Span::from_s(1_800);
/// Blocks of 64 KiB that are read to measure a throughput that no reservation limits.
const BLOCKS: u64 = 320;
/// Blocks of a file, and with --short.
const FILE_BLOCKS: (u64, u64) = (640, 320);
/// Whole periods of a reservation of 100 ms and of 1000 ms that are measured; the same with --short.
const PERIODS: ([u64; 2], [u64; 2]) = ([5, 2], [3, 1]);
/// A throughput needs this many whole periods. One is enough, because nothing disturbs virtual time.
const PERIODS_MIN: u64 = 1;

/// The guest's part. Each call of `row` reads in a reservation until `periods` budgets are used up.
///
/// Before each measurement half a budget is used, so that whole periods take whole budgets.
const FUNCTIONS: &str = r#"
used() { cut -d' ' -f1 "/proc/$thread/schedstat"; }
blocks() { dd if="$disk" of=/dev/null bs="$size" count="$1" iflag=direct 2>/dev/null; }
measure() {
    used_before=$(used); before=$(now)
    blocks "$1"
    took=$(($(now) - before)); work=$(($(used) - used_before))
}
# The disk, its interrupt, the size of a block, and blocks that no reservation limits.
use() {
    disk=$1 irq=$2 size=$3 most=$4
    for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do [ -b "$disk" ] || sleep 0.2; done
    thread=$(named "irq/$irq-")
    [ -b "$disk" ] && [ -n "$thread" ] || { echo "no disk $disk, or no interrupt thread" >&2; exit 1; }
    # The first seconds after a boot are slower.
    sleep 1
    blocks $((4 * most))
}
fixed() { measure "$most"; echo "$1 $most $took $work"; }
# The bandwidth is free again within a period.
release() { kill "$reserver"; wait "$reserver"; sleep 1.1; }
# $1 of CPU time every $2 us, for $3 periods.
limited() {
    count=$(($1 * 1000 / each)); periods=$3
    # Enough for the driver: as many blocks as at the fixed priority.
    if [ $(($1 * alone)) -ge $(($2 * most * each)) ]; then count=$most; periods=1; fi
    blocks $((count / 2 + 1))
    measure $((count * periods))
    read_blocks=$((count * periods))
}
row() {
    reserve "$2" "$3" || { echo "refused $1"; return; }
    limited "$2" "$3" "$4"
    echo "row $1 $read_blocks $took $work"
    release
}
reader_cpu() { awk '$1 == "usage_usec" {print $2}' /sys/fs/cgroup/reader/cpu.stat; }
# Reads a file of $3 blocks through the page cache, in a reservation of $2 us every 100 ms.
file() {
    if [ "$2" != none ] && ! reserve "$2" 100000; then echo "refused $1"; return; fi
    echo 3 > /proc/sys/vm/drop_caches
    cpu_before=$(reader_cpu); used_before=$(used); before=$(now)
    sh -c 'echo $$ > /sys/fs/cgroup/reader/cgroup.procs
        exec dd if="$1" of=/dev/null bs=64k count="$2" 2>/dev/null' sh "$disk" "$3"
    took=$(($(now) - before)); work=$(($(used) - used_before))
    echo "file $1 $3 $took $work $(($(reader_cpu) - cpu_before))"
    [ "$2" = none ] || release
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
    let blocks = if short { FILE_BLOCKS.1 } else { FILE_BLOCKS.0 };
    let files = TABLE_VII.iter().enumerate().map(|(row, (q, _))| {
        let budget = q.map_or_else(|| "none".to_owned(), |q| (q * 1_000).to_string());
        format!("file {row} {budget} {blocks}\n")
    });
    let files: String = files.collect();
    let begin = format!(
        "use /dev/sda 14 64k {BLOCKS}\nfixed fixed\neach=$((work / most)); alone=$took\nmkdir /sys/fs/cgroup/reader\n"
    );
    // The fixed priority once more after the rows, beside the first time.
    format!("{RESERVING}{FUNCTIONS}{begin}{}fixed fixed\n{files}{}", rows.concat(), dma::script(short))
}

fn reproduce(context: &Context) -> Result<Findings, Failure> {
    let Some(machine) = &context.lab else { return Err(Failure::trouble("the lab was not asked for")) };
    let request = LabRequest {
        devices: Devices::Tolerant,
        cards: 0,
        modules: &MODULES,
        disk_mib: DISK_MIB,
        virtio_disk_mib: DISK_MIB,
        script: script(context.short),
        timeout: TIMEOUT,
    };
    let Some(output) = context.unless_stopped((context.host.lab)(machine, &request))? else {
        return Ok(Findings::default());
    };
    let text = output.text;
    context.write("guest.txt", text.as_bytes())?;
    let (measured, mut dma) = read(&text, context.short)
        .ok_or_else(|| Failure::trouble(format_args!("the guest printed what is no measurement: {text}")))?;
    let mut findings = Findings::default();
    findings.files.push("guest.txt".to_owned());
    dma.read_log(context, &mut findings, output.log.as_deref())?;
    findings.tables.push(table_vi(&measured));
    findings.tables.push(table_vii(&measured));
    findings.tables.push(dma.table());
    findings.figures.push(charts::throughput(&measured));
    findings.figures.extend(dma.figures());
    findings.figures.extend(charts::of_files(&measured));
    throughput_claims(&mut findings, &measured, PERIODS_MIN);
    file_claims(&mut findings, &measured, (FILE_BLOCKS.1, "blocks of each file"));
    dma.claims(&mut findings);
    differences(&mut findings, machine.kernel.as_str(), &measured);
    dma.differences(&mut findings);
    Ok(findings)
}

/// The values in the guest's output. `None`: a line is none of its lines.
fn read(text: &str, short: bool) -> Option<(Measured, Dma)> {
    let (mut measured, mut dma) = (Measured::nothing(), Dma::default());
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
            ("file", &[row, blocks, took, work, cpu_us]) => {
                let row = usize::try_from(row).ok().filter(|row| *row < TABLE_VII.len())?;
                if TABLE_VII[row].0.is_none() {
                    measured.file_share = (took > 0).then(|| work as f64 / took as f64);
                }
                let (took, cpu) = (Span::from_ns(took), Span::from_us(cpu_us));
                measured.files[row].push(Reader { read: blocks, took, cpu });
            }
            ("refused", &[_]) => measured.refused += 1,
            (kind, numbers) => dma.line(kind, numbers)?,
        }
    }
    let share = measured.share?;
    for (row, (_, t, _)) in TABLE_VI.iter().enumerate() {
        // A reservation that does not limit the driver needs no whole periods.
        if share_of(row) < share && !measured.reserved[row].is_empty() {
            measured.periods[row] = periods(short, *t);
        }
    }
    dma.is_complete().then_some((measured, dma))
}

fn differences(findings: &mut Findings, kernel: &str, measured: &Measured) {
    findings.differences.push(format!(
        "The interrupt threads are real, and the disks are not: the kernel \"{kernel}\" runs under emulation, where an \
         instruction takes 1 ns. A disk answers at once. So the throughput is the cost of the software alone, and \
         ratios can be compared with the paper's, but no times."
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
    if let Some(share) = measured.file_share {
        findings.differences.push(format!(
            "The file of Table VII is the disk itself, read by dd through an empty page cache. Its interrupt thread \
             uses {:.1} % of the CPU, in the paper nearly all. So larger reservations change nothing here. Each \
             file is read once, so there is no deviation.",
            share * 100.0
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DMA: &str = "dma-fixed 8000 400000000 100000000\n";

    #[test]
    fn the_output_of_a_guest_becomes_rows() {
        let ide =
            "fixed 320 80000000 24000000\nrow 0 250 1000000000 20000000\nrefused 9\nfile 0 640 200000000 50000000 7\n";
        let (measured, _) = read(&format!("{ide}{DMA}"), false).expect("it is the output of a guest");
        assert_eq!((measured.share, measured.file_share), (Some(0.3), Some(0.25)));
        assert_eq!((measured.fixed.as_slice(), measured.reserved[0].as_slice()), (&[4000.0][..], &[250.0][..]));
        assert_eq!((measured.refused, measured.periods[0], measured.periods[1]), (1, 5, 0));
        assert_eq!(measured.files[0], [Reader { read: 640, took: Span::from_ms(200), cpu: Span::from_us(7) }]);
        let fixed = "fixed 1 2 3\n";
        for wrong in ["row 0 1 1 1", "fixed 1 2 3\nrow 20 1 1 1", "fixed 1 2 3\nrow 0 1 0 1", "fixed 1 2", "hello 1"] {
            assert!(read(&format!("{DMA}{wrong}"), false).is_none(), "{wrong}");
        }
        for wrong in ["file 8 1 1 1 1", "file 0 1 1 1", "dma-row 50 1 1", "dma-fixed 1 0 1"] {
            assert!(read(&format!("{fixed}{DMA}{wrong}"), false).is_none(), "{wrong}");
        }
        assert!(
            read(&format!("{fixed}{DMA}"), false).is_some() && read(fixed, false).is_none() && read("", true).is_none()
        );
    }

    #[test]
    fn the_script_has_a_call_for_each_row() {
        let script = script(true);
        let calls = |word: &str| script.lines().filter(|line| line.starts_with(word)).count();
        assert_eq!((calls("row "), calls("file ")), (TABLE_VI.len(), TABLE_VII.len()));
        assert!(script.contains("\nrow 3 20000 1000000 1\n") && script.contains("\nfile 1 30000 320\n"), "{script}");
        assert!(script.contains("\nfile 0 none 320\n"), "{script}");
    }
}
