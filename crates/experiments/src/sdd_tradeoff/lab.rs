//! Table VIII, Figs. 11 and 12 in a guest of the lab: the interrupt threads of network cards.
//!
//! A guest has two cards on a hub. The kernel's packet generator sends by the first one, and the interrupt thread of
//! the second one takes the packets in. A first guest has e1000 cards and the player, a second one has virtio cards.

use takt_model::{Span, Time};
use takt_run::lab::pure::machine::Devices;

use super::super::LiveForm;
use super::super::context::Context;
use super::super::findings::{Comparison, Findings, MEASURED, Row, all, decimal, within};
use super::super::players::Played;
use super::{FIRST_TEST, FRAME_MS, Outcome, PACKETS_ALONE, PLAYER_ALONE, PLAYER_FIFO, PLAYER_OTHER, RESERVED, report};
use crate::failure::Failure;
use crate::guest_script::RESERVING;
use crate::host::{LabMachine, LabRequest};

pub(super) const FORM: LiveForm = LiveForm {
    needs: "QEMU, a kernel with interrupt threads (takt lab fetch) and a static takt (--binary)",
    takes: (Span::from_s(900), Span::from_s(300)),
    longest: Span::MAX,
    run: reproduce,
};

const MODULES: [(&str, &[&str]); 1] = [("pktgen", &[])];
/// CPU time that the emulation of a guest may take.
const TIMEOUT: Span = Span::from_s(3_600);
/// The CPU share that taking all packets in needs, in percent.
const THREAD_PERCENT: u64 = 45;
/// Bytes of a packet.
const PACKET: u64 = 1_000;
/// The length of the film, and with --short.
const LENGTH: (Span, Span) = (Span::from_ms(5_080), Span::from_ms(1_600));
/// Measurements of a card without a player: without a reservation, and in each of the thread's.
const ALONE: usize = RESERVED.len() + 1;

/// The guest's part. The sender sends `burst` packets each millisecond, in at most eight parts, because it would not
/// sleep for less than 100 us. It makes up for delays.
const FUNCTIONS: &str = r#"
pktgen=/proc/net/pktgen
fail() { echo "$1" >&2; exit 1; }
used() { cut -d' ' -f1 "/proc/$1/schedstat"; }
received() { awk '/^Ip:/ {lines++} lines == 2 {print $4; exit}' /proc/net/snmp; }
# The number of the interrupt that reports a card's packets.
interrupt() {
    handler=$1
    bus=$(readlink "/sys/class/net/$1/device"); bus=${bus##*/}
    case $bus in virtio*) handler=$bus-input ;; esac
    awk -v handler="$handler" 'index($NF, handler) == 1 {sub(":", "", $1); print $1; exit}' /proc/interrupts
}
up() {
    ip link set "$1" up || fail "no card $1"
    for i in $(seq 100); do
        [ "$(cat "/sys/class/net/$1/carrier")" = 1 ] && return
        sleep 0.1
    done
    fail "the card $1 has no carrier"
}
send() {
    echo rem_device_all > $pktgen/kpktgend_0
    echo "add_device eth0" > $pktgen/kpktgend_0
    for word in "count 0" "pkt_size $size" "dst 10.77.0.2" "dst_mac 52:54:00:00:00:02" "clone_skb 1000000"; do
        echo "$word" > $pktgen/eth0
    done
    part=$1; delay=1000000
    while [ "$part" -gt 50 ] && [ "$delay" -gt 125000 ]; do part=$(((part + 1) / 2)); delay=$((delay / 2)); done
    # A card that takes no packet twice gets them one by one.
    echo "burst $part" > $pktgen/eth0 || delay=$((1000000 / $1))
    echo "delay $delay" > $pktgen/eth0
    echo start > $pktgen/pgctrl &
    starter=$!
    # If it were stopped before it started, it would never stop.
    sleep 0.3
}
quiet() { echo stop > $pktgen/pgctrl; wait "$starter"; }
sending() { echo $(($(used "$sender") + $(used "$sender_thread"))); }
sample() {
    packets=$(received); work=$(used "$thread"); sent=$(sending); took=$(now)
    sleep "$1"
    packets=$(($(received) - packets)); work=$(($(used "$thread") - work)); sent=$(($(sending) - sent))
    took=$(($(now) - took))
}
# How many packets take the wanted share of the CPU. The cost of a packet depends on their number.
rate() {
    burst=10
    for step in 1 2; do
        send "$burst"; sample 0.5; quiet
        [ "$packets" -gt 0 ] && [ "$work" -ge "$packets" ] || fail "no packet came"
        cost=$((work / packets)); burst=$((10000 * percent / cost))
        [ "$burst" -le 400 ] || burst=400
        [ "$burst" -ge 1 ] || burst=1
    done
    echo "rate $burst $cost"
}
# Only after `quiet`: the thread sleeps, with a new budget. The kernel could leave the mark of a throttled thread, which
# would not run in the next reservation; takt avoids this unless the thread wakes up meanwhile. Its bandwidth is free
# again within a period.
release() { sleep 0.3; kill "$reserver"; wait "$reserver"; sleep 0.3; }
alone() {
    [ "$2" = 0 ] || reserve "$2" "$3" || { echo "refused $1"; return; }
    send "$burst"; sample 1; quiet
    echo "alone $1 $packets $took $work"
    if [ "$2" = 0 ]; then echo "sender $sent $took"; else release; fi
}
trial() {
    [ "$2" = 0 ] || reserve "$2" "$3" || { echo "refused $1"; return; }
    send "$burst"
    takt lab play "$1" --for "${length}ms" --seed "$seed" $watched > played 2> told || fail "$(cat told)"
    quiet
    echo "trial $1"; cat played
    [ "$2" = 0 ] || release
}
up eth0; up eth1
irq=$(interrupt eth1); thread=$(named "irq/$irq-")
sender=$(named kpktgend_0); sender_thread=$(named "irq/$(interrupt eth0)-")
[ -n "$irq" ] && [ -n "$thread" ] && [ -n "$sender" ] && [ -n "$sender_thread" ] || fail "a thread is missing"
[ "$thread" != "$sender_thread" ] || fail "the two cards share an interrupt"
watched="--thread $thread"
rate
"#;

fn script(seed: u64, short: bool, players: bool) -> String {
    let length = (if short { LENGTH.1 } else { LENGTH.0 }).as_ns() / 1_000_000;
    let mut script =
        format!("percent={THREAD_PERCENT} size={PACKET} length={length} seed={seed}\n{RESERVING}{FUNCTIONS}");
    let driver = |test: usize| RESERVED[test][1];
    script.push_str("alone 0 0 0\n");
    for test in 0..RESERVED.len() {
        let (q, t) = driver(test);
        script.push_str(&format!("alone {} {q} {t}\n", test + 1));
    }
    if players {
        script.push_str(&format!("trial {PLAYER_OTHER} 0 0\ntrial {PLAYER_FIFO} 0 0\n"));
        for test in 0..RESERVED.len() {
            let (q, t) = driver(test);
            script.push_str(&format!("trial {} {q} {t}\n", FIRST_TEST + test));
        }
        // The second card is off, so nobody takes the packets in.
        script.push_str("ip link set eth1 down\nwatched=\n");
        script.push_str(&format!("trial {PLAYER_ALONE} 0 0\n"));
    }
    script.push_str("exit 0\n");
    script
}

/// The measurements of a card without a player.
struct Card {
    name: &'static str,
    /// Packets each millisecond, and what one costs the thread, in ns.
    burst: u64,
    cost: u64,
    /// Packets a second, and the share of the CPU that the thread used.
    alone: [Option<(f64, f64)>; ALONE],
    /// The share of the CPU that the sender used, with its card's interrupt thread.
    sender: Option<f64>,
    refused: usize,
}

impl Card {
    /// The throughput in percent of that without a reservation.
    fn percent(&self, row: usize) -> Option<f64> {
        Some(self.alone[row]?.0 / self.alone[0]?.0 * 100.0)
    }

    fn expected(&self, row: usize) -> Option<f64> {
        let (q, t) = RESERVED.get(row.checked_sub(1)?)?[1];
        let (_, need) = self.alone[0]?;
        Some((q as f64 / t as f64 / need).min(1.0) * 100.0)
    }
}

fn reproduce(context: &Context) -> Result<Findings, Failure> {
    let Some(machine) = &context.lab else { return Err(Failure::trouble("the lab was not asked for")) };
    let mut findings = Findings::default();
    let Some((e1000, outcomes)) = measure(context, machine, &mut findings, "e1000", Devices::Exact)? else {
        return Ok(findings);
    };
    report(context, &mut findings, &outcomes)?;
    let mut cards = vec![e1000];
    if let Some((virtio, _)) = measure(context, machine, &mut findings, "virtio-net", Devices::Tolerant)? {
        cards.push(virtio);
    }
    findings.tables.push(table(&cards));
    for card in &cards {
        claim(&mut findings, card);
    }
    differences(&mut findings, machine.kernel.as_str(), &cards);
    Ok(findings)
}

/// Boots a guest with such cards. With exact ones it has players, too.
fn measure(
    context: &Context,
    machine: &LabMachine,
    findings: &mut Findings,
    name: &'static str,
    devices: Devices,
) -> Result<Option<(Card, Vec<Outcome>)>, Failure> {
    let request = LabRequest {
        devices,
        cards: 2,
        modules: &MODULES,
        disk_mib: 0,
        virtio_disk_mib: 0,
        script: script(context.seed, context.short, devices == Devices::Exact),
        timeout: TIMEOUT,
    };
    let Some(output) = context.unless_stopped((context.host.lab)(machine, &request))? else { return Ok(None) };
    let file = format!("guest-{name}.txt");
    context.write(&file, output.text.as_bytes())?;
    findings.files.push(file);
    let found = read(name, &output.text);
    found
        .map(Some)
        .ok_or_else(|| Failure::trouble(format_args!("the guest printed what is no measurement: {}", output.text)))
}

/// The values in the guest's output. `None`: a line is none of its lines, or a measurement is missing.
fn read(name: &'static str, text: &str) -> Option<(Card, Vec<Outcome>)> {
    let mut card = Card { name, burst: 0, cost: 0, alone: [None; ALONE], sender: None, refused: 0 };
    let mut outcomes: Vec<Outcome> = (0..FIRST_TEST + RESERVED.len()).map(|_| Outcome::default()).collect();
    let mut trial = None;
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let kind = words.next()?;
        let numbers: Vec<u64> = words.map(|word| word.parse().ok()).collect::<Option<_>>()?;
        let share = |used: u64, took: u64| (took > 0).then(|| used as f64 / took as f64);
        let rate = |count: u64, took: u64| (took > 0).then(|| count as f64 / (took as f64 / 1e9));
        match (kind, numbers.as_slice()) {
            ("rate", &[burst, cost]) => (card.burst, card.cost) = (burst, cost),
            ("alone", &[row, packets, took, used]) => {
                let place = card.alone.get_mut(usize::try_from(row).ok()?)?;
                *place = Some((rate(packets, took)?, share(used, took)?));
            }
            ("sender", &[used, took]) => card.sender = share(used, took),
            ("refused", &[_]) => card.refused += 1,
            ("trial", &[number]) => {
                trial = Some(usize::try_from(number).ok().filter(|number| *number < outcomes.len())?);
            }
            ("packets", &[packets, used, took]) => {
                let outcome = &mut outcomes[trial?];
                outcome.throughput = rate(packets.saturating_mul(PACKET * 8), took);
                outcome.used = share(used, took);
            }
            ("shown", times) => {
                outcomes[trial?].played = Played::new(times.iter().map(|ns| Time::from_ns(*ns)).collect());
            }
            _ => return None,
        }
    }
    let (most, used) = card.alone[0].filter(|(packets, used)| *packets > 0.0 && *used > 0.0)?;
    outcomes[PACKETS_ALONE].throughput = Some(most * (PACKET * 8) as f64);
    outcomes[PACKETS_ALONE].used = Some(used);
    Some((card, outcomes))
}

fn table(cards: &[Card]) -> Comparison {
    let row = |row: usize| {
        let of = |value: fn(&Card, usize) -> Option<f64>| cards.iter().map(|card| value(card, row)).collect::<Vec<_>>();
        let (q, t) = RESERVED[row - 1][1];
        Row { name: format!("({}ms, {}ms)", q / 1_000, t / 1_000), values: vec![of(Card::percent), of(Card::expected)] }
    };
    Comparison::new(
        "Throughput of cards with their interrupt threads in a reservation, without a player",
        "Table VIII",
        "% of the throughput without a reservation",
        1,
    )
    .with("reservation", cards.iter().map(|card| card.name), [MEASURED, "expected"], (1..ALONE).map(row))
}

/// A reservation limits the throughput of a card as that of a disk.
fn claim(findings: &mut Findings, card: &Card) {
    let relative = |row: usize| Some(card.percent(row)? / card.expected(row)?);
    let shown: Vec<String> = (1..ALONE).map(|row| decimal(relative(row), 2)).collect();
    let measured = card.alone.iter().flatten().count() as u64;
    let name = if card.name == "e1000" { "e1000-proportional" } else { "virtio-net-proportional" };
    findings
        .claim(
            name,
            format!(
                "the throughput of {} follows the reservation of its interrupt thread: each within 35 % of (Q/T)/u, \
                 where u is the share of the CPU that the thread uses at its fixed priority",
                card.name
            ),
            format!("by (Q/T)/u: {}; u = {}", shown.join(", "), decimal(card.alone[0].map(|(_, used)| used), 2)),
            all((1..ALONE).map(|row| within(relative(row), 1.0, 0.65, 1.35))),
        )
        .needs(measured, ALONE as u64, "measurements");
}

fn differences(findings: &mut Findings, kernel: &str, cards: &[Card]) {
    findings.differences.push(format!(
        "The interrupt threads are real, and the cards are not: the kernel \"{kernel}\" runs under emulation, where an \
         instruction takes 1 ns. No wire limits the packets. So throughputs can be compared by ratios alone."
    ));
    findings.differ([
        "The paper's packets come from a second computer. Here the kernel's packet generator sends them, an ordinary \
         thread of the same CPU. It makes up for packets that it could not send in time. \"player alone\" has this \
         sender, too, but the receiving card is off.",
        "netperf takes the paper's packets. Here the IP layer counts them and drops them, because no socket waits for \
         them.",
        "The paper reserves for the interrupt thread alone, and its softirq thread does most of the work. On this \
         kernel the interrupt thread runs its softirqs itself. So the reservations are larger, as those of \
         sdd-tradeoff without --lab. Softirqs that the kernel hands to ksoftirqd are outside of the reservation.",
    ]);
    findings.differences.push(format!(
        "The player is takt's own, with frames of {} to {} ms of work each. Interrupt threads have the priority 50, \
         and a more important player 60.",
        FRAME_MS.0, FRAME_MS.1
    ));
    for card in cards {
        let share = |value: Option<f64>| decimal(value.map(|share| share * 100.0), 1);
        findings.notes.push(format!(
            "{}: a packet cost the interrupt thread {} ns. With {} packets each millisecond it used {} % of the CPU, \
             and the sender {} %.",
            card.name,
            card.cost,
            card.burst,
            share(card.alone[0].map(|(_, used)| used)),
            share(card.sender)
        ));
        if card.refused > 0 {
            findings.notes.push(format!("{}: the kernel did not admit {} reservations.", card.name, card.refused));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: &str = "rate 60 7000\nalone 0 60000 1000000000 450000000\nsender 90000000 1000000000\n";

    #[test]
    fn the_output_of_a_guest_becomes_outcomes() {
        let trial = "trial 2\npackets 1000 5 1000000000\nshown 40 80\n";
        let text = format!("{RATE}alone 1 21000 1000000000 160000000\nrefused 2\n{trial}");
        let (card, outcomes) = read("e1000", &text).expect("it is the output of a guest");
        assert_eq!((card.burst, card.cost, card.refused, card.sender), (60, 7000, 1, Some(0.09)));
        assert_eq!(
            (decimal(card.percent(1), 2), decimal(card.expected(1), 2)),
            ("35.00".to_owned(), "35.56".to_owned())
        );
        assert_eq!((card.percent(2), card.expected(0)), (None, None));
        assert_eq!(outcomes[PACKETS_ALONE].throughput, Some(480e6));
        assert_eq!((outcomes[2].throughput, outcomes[2].played.shown.len()), (Some(8e6), 2));
        for wrong in ["alone 6 1 1 1", "alone 1 1 0 1", "trial 9", "hello", "shown x"] {
            assert!(read("e1000", &format!("{RATE}{wrong}")).is_none(), "{wrong}");
        }
        for wrong in ["", "rate 1 1\n", "packets 1 1 1\n", "alone 0 0 1 1\n"] {
            assert!(read("e1000", wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn a_card_that_ignores_its_reservation_is_noticed() {
        let holds = |rows: &[(usize, u64)]| {
            let lines = rows.iter().map(|(row, packets)| format!("alone {row} {packets} 1000000000 1\n"));
            let (card, _) = read("e1000", &format!("{RATE}{}", lines.collect::<String>())).expect("output of a guest");
            let mut findings = Findings::default();
            claim(&mut findings, &card);
            findings.claims[0].holds
        };
        let limited = [(1, 21_000), (2, 25_000), (3, 32_000), (4, 34_000), (5, 52_000)];
        assert_eq!(holds(&limited), Some(true));
        assert_eq!(holds(&limited.map(|(row, _)| (row, 60_000))), Some(false));
        assert_eq!(holds(&limited[1..]), None);
    }

    #[test]
    fn the_script_has_a_call_for_each_trial() {
        let calls =
            |players: bool, word: &str| script(7, true, players).lines().filter(|line| line.starts_with(word)).count();
        assert_eq!((calls(true, "alone "), calls(true, "trial ")), (ALONE, RESERVED.len() + 3));
        assert_eq!((calls(false, "alone "), calls(false, "trial ")), (ALONE, 0));
        assert!(script(7, true, true).starts_with("percent=45 size=1000 length=1600 seed=7\n"));
    }
}
