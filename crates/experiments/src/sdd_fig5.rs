//! [SDD] Fig. 5: inter-frame times of two players of a film of 25 frames per second on one CPU.
//! They run at two SCHED_FIFO priorities, or in two reservations.
//!
//! The players are takt's own. Each decodes frames by busy work and sleeps until the time to show
//! them. The film alternates scenes of ten frames that take nearly all of a frame's time with quiet
//! ones. A scene is as long as the more important player may fill the CPU under SCHED_FIFO. In a
//! scene it leaves a tenth of the CPU to the other player, which catches up within half a second
//! after it. So both together never use the CPU for a whole second without a break. The paper's
//! player starved until the other one had finished.

use takt_linux::{Class, SchedError};
use takt_log::stats::Summary;
use takt_model::Span;
use takt_run::RunError;
use takt_run::load::{FrameSequence, LoadContext, Member, Place, player};

use super::context::Context;
use super::findings::{Comparison, Drawn, Findings, MEASURED, PAPER, Row, all, decimal, within};
use super::players::{self, PERIOD, Played, frames_of, periods};
use super::recording::Recording;
use super::{Experiment, SDD, loads};
use crate::failure::Failure;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "sdd-fig5",
    paper: &SDD,
    shows: "Fig. 5",
    what: "two players of 25 frames per second on one CPU: under SCHED_FIFO the less important one starves, in \
        reservations neither does",
    needs: "root (tracefs, SCHED_FIFO, SCHED_DEADLINE, a cpuset of one CPU)",
    takes: (Span::from_s(32), Span::from_s(9)),
    longest: Span::MAX,
    repeats: false,
    simulated: false,
    live: None,
    lab: None,
    run: reproduce,
};

/// The distance of two demanding scenes in frames, and the demanding frames.
const SCENE: usize = 50;
const DEMANDING: std::ops::Range<usize> = 20..30;
/// The paper's reservations (Q, T) in us.
const RESERVED: [(u64, u64); 2] = [(25_000, 40_000), (12_500, 40_000)];
/// The percentage of Q that remains if the kernel refuses the paper's reservations.
const SCALED: u64 = 95;
/// Average and standard deviation of inter-frame times in us. The order: the more important player,
/// the less important one (only in the figure), and the two in reservations.
const PAPER_IFT: [Option<(f64, f64)>; 4] =
    [Some((39_573.0, 4_725.1)), None, Some((39_082.0, 5_735.3)), Some((39_517.0, 19_455.0))];
const PLAYERS: [&str; 4] =
    ["FIFO, more important", "FIFO, less important", "reserved (25ms, 40ms)", "reserved (12.5ms, 40ms)"];
const NAMES: [&str; 2] = ["player-1", "player-2"];
/// A claim needs the inter-frame times of six scenes.
const FRAMES_MIN: u64 = 299;

/// How long the film is, and with --short.
const LENGTH: Span = Span::from_ms(14_000);
const LENGTH_SHORT: Span = Span::from_ms(4_000);

fn film(seed: u64, length: Span) -> FrameSequence {
    let (quiet, demanding) = (frames_of("quiet", (4, 6)), frames_of("demanding", (35, 37)));
    players::film(seed, length, |k| if DEMANDING.contains(&(k % SCENE)) { &demanding } else { &quiet })
}

fn reproduce(context: &Context) -> Result<Findings, Failure> {
    let place = loads::one_cpu(context)?;
    let length = context.duration(LENGTH, LENGTH_SHORT);
    let film = film(context.seed, length);
    let mut findings = Findings::default();
    let fifo = [47, 46].map(|priority| Class::Fifo { priority });
    let mut played =
        play(context, &mut findings, &place, &film, fifo, "fifo.takt")?.map_err(|error| Failure::of_run(&error))?;
    let mut factor = 100;
    if !context.stopped() {
        played.extend(reserved(context, &mut findings, &place, &film, &mut factor)?);
    }
    let of = |i: usize| played.get(i).and_then(|one| one.times.as_ref());
    findings.tables.push(table(&of));
    findings.figures.push(figure("frames-by-priority.svg", "under SCHED_FIFO at two priorities", &played, 0));
    findings.figures.push(figure("frames-in-reservations.svg", "in two reservations", &played, 2));
    let shown: Vec<_> = PLAYERS.into_iter().zip(played.iter().map(|one| &one.shown)).collect();
    players::write(context, &mut findings, &shown)?;
    claims(&mut findings, &of);
    differences(&mut findings, context, factor);
    Ok(findings)
}

/// Plays in the paper's reservations, or in smaller ones if the kernel refuses these.
fn reserved(
    context: &Context,
    findings: &mut Findings,
    place: &Place,
    film: &FrameSequence,
    factor: &mut u64,
) -> Result<Vec<Played>, Failure> {
    let classes = |percent: u64| RESERVED.map(|(q, t)| loads::reserved(q * percent / 100, t));
    let played = match play(context, findings, place, film, classes(100), "reserved.takt")? {
        Err(RunError::Refused { cause: SchedError::Admission { .. }, .. }) => {
            *factor = SCALED;
            findings.files.pop();
            play(context, findings, place, film, classes(SCALED), "reserved.takt")?
        }
        other => other,
    };
    played.map_err(|error| Failure::of_run(&error))
}

fn play(
    context: &Context,
    findings: &mut Findings,
    place: &Place,
    film: &FrameSequence,
    classes: [Class; 2],
    file: &str,
) -> Result<Result<Vec<Played>, RunError>, Failure> {
    let member =
        |(name, class): (&&str, Class)| Member::new(name, class, |context: &mut LoadContext| player(context, film));
    let members = NAMES.iter().zip(classes).map(member).collect();
    // A player that is late shows the rest of the film later.
    let length = PERIOD.as_ns().saturating_mul(film.frames.len() as u64);
    let most = Span::from_ns(length.saturating_mul(2)).saturating_add(Span::from_s(1));
    let recording = Recording::start(context, file)?;
    let ended = loads::attempt(context, "playing", members, place, most);
    let recorded = recording.finish()?;
    findings.files.push(file.to_owned());
    Ok(ended.map(|ended| {
        findings.notes.extend(recorded.defects);
        ended.values.into_iter().map(Played::new).collect()
    }))
}

fn table<'a>(of: &impl Fn(usize) -> Option<&'a Summary<u64>>) -> Comparison {
    let row = |i: usize| {
        let paper = match PAPER_IFT[i] {
            Some((mean, deviation)) => vec![Some(mean), Some(deviation), None, None],
            None => vec![None; 4],
        };
        Row { name: PLAYERS[i].to_owned(), values: vec![paper, players::numbers(of(i))] }
    };
    Comparison::new("Inter-frame times", "Section IV-A", "times in us", 1).with(
        "player",
        players::NUMBERS,
        [PAPER, MEASURED],
        (0..PLAYERS.len()).map(row),
    )
}

fn figure(file: &str, how: &str, played: &[Played], first: usize) -> Drawn {
    let line = |i: usize| Some(played.get(first + i)?.line(PLAYERS[first + i], i));
    // Both figures have the same scale.
    let most = played.iter().filter_map(|one| one.times.as_ref()).map(|times| times.max).max();
    let figure = players::figure(
        format!("Two players {how}: inter-frame times"),
        (0..2).rev().filter_map(line).collect(),
        most.map(|ns| ns as f64 / 1e6 * 1.04),
    );
    let caption = "The dotted line is at 40 ms. Frames 20 to 29 of every 50 take 35 to 37 ms each to decode, the \
        others 4 to 6 ms.";
    Drawn::of(file, &figure, format!("Fig. 5: {how}"), caption)
}

fn claims<'a>(findings: &mut Findings, of: &impl Fn(usize) -> Option<&'a Summary<u64>>) {
    let text = |value: Option<f64>| decimal(value, 2);
    let sample = (0..PLAYERS.len()).filter_map(of).map(|times| times.count).min().unwrap_or(0);
    let max = |i: usize| of(i).map(|s| periods(s.max));
    let p99 = |i: usize| of(i).map(|s| periods(s.p99));
    let p90 = |i: usize| of(i).map(|s| periods(s.p90));
    let mean = |i: usize| of(i).map(|s| periods(s.mean));
    findings.claim(
        "fifo-plays",
        "under SCHED_FIFO the more important player shows its frames in time: nine inter-frame times of ten are \
         within 10 % of 40 ms or less",
        format!("the ninth tenth ends at {} times 40 ms", text(p90(0))),
        within(p90(0), 1.0, 0.0, 1.1),
    );
    findings.claim(
        "fifo-starves",
        "under SCHED_FIFO the less important player stops: its longest inter-frame time is at least 5 times \
             40 ms",
        format!("the longest is {} times 40 ms", text(max(1))),
        max(1).map(|max| max >= 5.0),
    );
    findings.claim(
        "reserved-proceed",
        "in reservations both go on: 99 % of the inter-frame times are at most 5 times 40 ms, and the longest is \
         shorter than that of the player that starves",
        format!(
            "99 % are within {} and {} times 40 ms; the longest are {} and {}",
            text(p99(2)),
            text(p99(3)),
            text(max(2)),
            text(max(3))
        ),
        all([
            within(p99(2), 1.0, 0.0, 5.0),
            within(p99(3), 1.0, 0.0, 5.0),
            max(1).zip(max(2)).zip(max(3)).map(|((starved, one), two)| one < starved && two < starved),
        ]),
    );
    let ratio = p90(3).zip(p90(2)).map(|(small, large)| small / large);
    findings.claim(
        "proportional",
        "in reservations players are as quick as their reservations: in demanding scenes (the ninth tenth \
             of all inter-frame times) the player with half the budget takes about twice as long per frame (1.5 \
             to 2.7 times)",
        format!("{} times as long", text(ratio)),
        within(ratio, 1.0, 1.5, 2.7),
    );
    findings.claim(
        "average",
        "in reservations both play the whole film at its rate: averages within 10 % of 40 ms",
        format!("{} and {} times 40 ms", text(mean(2)), text(mean(3))),
        all([within(mean(2), 1.0, 0.9, 1.1), within(mean(3), 1.0, 0.9, 1.1)]),
    );
    for claim in &mut findings.claims {
        claim.needs(sample, FRAMES_MIN, "inter-frame times of a player");
    }
}

fn differences(findings: &mut Findings, context: &Context, factor: u64) {
    findings.differ([
        "The players are takt's own, and decode by busy work. The film is drawn at random: scenes of 10 frames \
         of 35 to 37 ms each, with 40 frames of 4 to 6 ms between them. The paper's player (GTK2, \"Big Buck \
         Bunny\") starved until the other one had finished. Here it starves only for a scene: the kernel's \
         limit would stop SCHED_FIFO threads that fill a CPU for longer, or without a limit they would block \
         the machine.",
    ]);
    let limits = &context.machine.limits;
    if limits.rt_runtime_us >= 0 {
        findings
            .differences
            .push(format!("Real-time threads may use {} us of {} us here.", limits.rt_runtime_us, limits.rt_period_us));
    }
    if factor != 100 {
        let [first, second] =
            RESERVED.map(|(q, t)| format!("({}, {})", Span::from_us(q * factor / 100), Span::from_us(t)));
        findings.differences.push(format!(
            "The paper's reservations take 93.75 % of a CPU. The kernel does not admit them beside its share \
             for ordinary threads, so both were cut by {} %: {first} and {second}.",
            100 - factor
        ));
    }
}

#[cfg(test)]
mod tests {
    use takt_log::stats::Histogram;

    use super::*;

    #[test]
    fn no_player_alone_fills_a_cpu_and_both_leave_some_of_each_second() {
        let film = film(3, Span::from_s(20));
        assert_eq!(film.frames.len(), 500);
        assert!(film.frames.iter().all(|frame| *frame <= Span::from_ms(37)));
        let scene: u64 = film.frames[..SCENE].iter().map(|frame| frame.as_ns()).sum();
        // Both players together need at most two thirds of the two seconds from scene to scene.
        assert!(2 * scene * 3 < 2 * PERIOD.as_ns() * SCENE as u64, "{scene}");
        assert!(scene * 100 < 30 * PERIOD.as_ns() * SCENE as u64, "more than the smaller reservation serves");
    }

    /// A short run decides nothing, whatever it measured. A usual one does.
    #[test]
    fn a_short_film_is_too_short_for_every_claim() {
        let holding = |length: Span| {
            let mut times = Histogram::default();
            // As if each frame came ten seconds after the other.
            (1..film(0, length).frames.len()).for_each(|_| times.record(10_000_000_000));
            let summary = times.summary();
            let mut findings = Findings::default();
            claims(&mut findings, &|_| summary.as_ref());
            findings.claims.iter().map(|claim| claim.holds).collect::<Vec<_>>()
        };
        assert_eq!(holding(LENGTH_SHORT), [None; 5]);
        assert!(holding(LENGTH).contains(&Some(false)), "{:?}", holding(LENGTH));
    }
}
