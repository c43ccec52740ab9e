//! The player in a guest of the lab, and what the thread that takes packets in does meanwhile. The guest's script calls
//! it by `takt lab play`.

use std::fs;

use takt_linux::Class;
use takt_model::{Span, Time};
use takt_run::load::{LoadContext, Member, Place, ShowTimes, player, together};

use super::super::players;
use super::{FRAME_MS, frames_of, trials};
use crate::failure::Failure;

/// PREEMPT_RT gives interrupt threads 50. A more important player is above this.
const PLAYER_PRIORITY: u8 = 60;

/// A player of a trial.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Play {
    /// The number of the trial.
    pub trial: usize,
    /// How long its film is.
    pub length: Span,
    /// The seed of the film.
    pub seed: u64,
    /// The thread that takes packets in.
    pub thread: Option<u32>,
}

/// Plays the film of a trial in that trial's class. Returns lines for the experiment: `packets` with their number, the
/// thread's CPU time and the time in ns, and `shown` with the times of all frames in ns.
///
/// # Errors
/// There is no such trial, it has no player, or the kernel refuses its class.
pub fn play(play: &Play) -> Result<String, Failure> {
    let trial = trials().get(play.trial).copied();
    let class = match trial.and_then(|trial| trial.player) {
        Some(Class::Fifo { .. }) => Class::Fifo { priority: PLAYER_PRIORITY },
        Some(class) => class,
        None => return Err(Failure::input(format_args!("trial {} has no player", play.trial))),
    };
    let frame = frames_of("frame", FRAME_MS);
    let film = players::film(play.seed, play.length, |_| &frame);
    let members = vec![Member::new("takt player", class, |context: &mut LoadContext| player(context, &film))];
    // A player that is late takes longer.
    let most = Span::from_ns(play.length.as_ns().saturating_mul(3));
    let mut window: [Option<Seen>; 2] = [None, None];
    let ended = together(members, &Place::Anywhere, most, &mut |now: Time| {
        if let Some(seen) = play.thread.and_then(|thread| Seen::at(now, thread)) {
            window[0].get_or_insert(seen);
            window[1] = Some(seen);
        }
        true
    });
    let ended = ended.map_err(|error| Failure::of_run(&error))?;
    let shown: ShowTimes = ended.values.into_iter().next().unwrap_or_default();
    Ok(lines(window, &shown))
}

/// Packets of this machine and CPU time of a thread, since they began.
#[derive(Clone, Copy)]
struct Seen {
    packets: u64,
    used: u64,
    now: Time,
}

impl Seen {
    fn at(now: Time, thread: u32) -> Option<Seen> {
        let schedstat = fs::read_to_string(format!("/proc/{thread}/schedstat")).ok()?;
        let used = schedstat.split_ascii_whitespace().next()?.parse().ok()?;
        let packets = received(&fs::read_to_string("/proc/net/snmp").ok()?)?;
        Some(Seen { packets, used, now })
    }
}

/// InReceives of IP in /proc/net/snmp: a line of names, and a line of values.
fn received(snmp: &str) -> Option<u64> {
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Ip: "));
    let at = lines.next()?.split(' ').position(|name| name == "InReceives")?;
    lines.next()?.split(' ').nth(at)?.parse().ok()
}

fn lines(window: [Option<Seen>; 2], shown: &[Time]) -> String {
    let mut text = String::new();
    if let [Some(first), Some(last)] = window {
        let took = last.now.saturating_since(first.now).as_ns();
        let (packets, used) = (last.packets.saturating_sub(first.packets), last.used.saturating_sub(first.used));
        text.push_str(&format!("packets {packets} {used} {took}\n"));
    }
    text.push_str("shown");
    shown.iter().for_each(|time| text.push_str(&format!(" {}", time.as_ns())));
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_counted_by_the_name_of_their_column() {
        let snmp = "Ip: Forwarding DefaultTTL InReceives InHdrErrors\nIp: 2 64 1234 0\nIcmp: InMsgs\nIcmp: 7\n";
        assert_eq!(received(snmp), Some(1234));
        assert_eq!([received(""), received("Ip: Forwarding\nIp: 2\n")], [None, None]);
    }

    #[test]
    fn lines_have_differences_and_times() {
        let seen = |ms: u64| Seen { packets: 5 + ms, used: 10 * ms, now: Time::from_ns(ms * 1_000_000) };
        let shown = [40, 80].map(|ms| Time::from_ns(ms * 1_000_000));
        assert_eq!(lines([Some(seen(1)), Some(seen(4))], &shown), "packets 3 30 3000000\nshown 40000000 80000000\n");
        assert_eq!(lines([None, None], &[]), "shown\n");
    }

    #[test]
    fn a_trial_without_a_player_is_refused() {
        for trial in [0, 99] {
            let play = Play { trial, length: Span::from_ms(80), seed: 1, thread: None };
            assert!(super::play(&play).is_err(), "{trial}");
        }
    }
}
