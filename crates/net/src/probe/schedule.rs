//! The schedule of a prober's messages: times, sizes, deadlines and servers.
//!
//! Times count from the first send. Each draw depends only on the seed and the message's number. So
//! the same seed gives the same messages, even if they leave late.

use takt_model::draw::Purpose;
use takt_model::{Draw, Span, Time};

use super::wire::HEAD;

/// How fast messages follow each other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Pace {
    /// As fast as they are taken, or as replies come.
    Max,
    /// So many bursts a second, above zero.
    BurstsPerSecond(u32),
    /// At these times, with these sizes; then the schedule ends.
    Playback(Vec<(Time, u32)>),
}

/// What is sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScheduleSpec {
    /// How fast.
    pub pace: Pace,
    /// The least and the greatest number of messages of a burst, uniform. At least 1.
    pub burst: (u32, u32),
    /// The least and the greatest size of a message in bytes, uniform.
    pub size: (u32, u32),
    /// `D`: deadlines are uniform in `[D, 2D]`, from the intended send.
    pub deadline: Option<Span>,
    /// Each message with a number that this divides wants a reply; zero: none.
    pub reply_every: u32,
    /// Messages go to so many servers in turn, at least 1.
    pub servers: u32,
    /// Of all draws.
    pub seed: u64,
}

impl ScheduleSpec {
    /// Single messages of the least size to one server, each with a reply, without deadlines.
    #[must_use]
    pub fn new(pace: Pace) -> ScheduleSpec {
        let size = HEAD as u32;
        ScheduleSpec { pace, burst: (1, 1), size: (size, size), deadline: None, reply_every: 1, servers: 1, seed: 1 }
    }
}

/// A message to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Send {
    /// Its number, from zero.
    pub number: u64,
    /// The burst that it belongs to, from zero.
    pub burst: u64,
    /// When it should leave.
    pub at: Time,
    /// Its bytes.
    pub size: u32,
    /// Relative to `at`.
    pub deadline: Option<Span>,
    /// Whether the server shall reply.
    pub wants_reply: bool,
    /// To which server, from zero.
    pub server: u32,
}

/// The messages in their order.
#[derive(Clone, Debug)]
pub struct Schedule {
    spec: ScheduleSpec,
    sizes: Draw,
    deadlines: Draw,
    bursts: Draw,
    number: u64,
    burst: u64,
    /// Messages of the present burst that are left.
    left: u32,
}

impl Schedule {
    /// The schedule from its start.
    #[must_use]
    pub fn new(spec: &ScheduleSpec) -> Schedule {
        let draw = |what| Draw::new(spec.seed, what);
        let (sizes, deadlines, bursts) = (draw("size"), draw("deadline"), draw("burst"));
        let mut schedule = Schedule { spec: spec.clone(), sizes, deadlines, bursts, number: 0, burst: 0, left: 0 };
        schedule.left = schedule.messages();
        schedule
    }

    /// Messages of the present burst.
    fn messages(&self) -> u32 {
        draw(&self.bursts, self.burst, self.spec.burst).max(1)
    }

    fn at(&self) -> Option<(Time, u32)> {
        let size = draw(&self.sizes, self.number, self.spec.size);
        match &self.spec.pace {
            Pace::Max => Some((Time::ZERO, size)),
            Pace::BurstsPerSecond(rate) => {
                let ns = u128::from(self.burst) * 1_000_000_000 / u128::from((*rate).max(1));
                Some((Time::from_ns(u64::try_from(ns).ok()?), size))
            }
            Pace::Playback(sends) => sends.get(usize::try_from(self.number).ok()?).copied(),
        }
    }
}

impl Iterator for Schedule {
    type Item = Send;

    fn next(&mut self) -> Option<Send> {
        let (at, size) = self.at()?;
        let (number, every) = (self.number, u64::from(self.spec.reply_every));
        let send = Send {
            number,
            burst: self.burst,
            at,
            size,
            deadline: self.spec.deadline.map(|d| {
                let twice = d.checked_mul(2).unwrap_or(d);
                self.deadlines.uniform(Purpose::Exec, number, d, twice)
            }),
            wants_reply: every > 0 && number.is_multiple_of(every),
            // With replies to some only, the servers take turns among those.
            server: (number / every.max(1) % u64::from(self.spec.servers.max(1))) as u32,
        };
        self.number += 1;
        self.left -= 1;
        if self.left == 0 {
            self.burst += 1;
            self.left = self.messages();
        }
        Some(send)
    }
}

/// Uniform in `[min, max]`.
fn draw(draw: &Draw, number: u64, (min, max): (u32, u32)) -> u32 {
    let drawn = draw.uniform(Purpose::Exec, number, Span::from_ns(min.into()), Span::from_ns(max.max(min).into()));
    u32::try_from(drawn.as_ns()).unwrap_or(max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_sizes_and_deadlines_are_uniform_in_their_ranges() {
        let spec = ScheduleSpec {
            burst: (20, 40),
            size: (64, 67),
            deadline: Some(Span::from_ns(1_000)),
            reply_every: 1,
            servers: 3,
            ..ScheduleSpec::new(Pace::BurstsPerSecond(300))
        };
        let sends: Vec<Send> = Schedule::new(&spec).take_while(|send| send.burst < 2_100).collect();
        let mut bursts = vec![0_u32; 2_100];
        for (number, send) in (0..).zip(&sends) {
            assert_eq!((send.number, send.server), (number, (number % 3) as u32));
            assert_eq!(send.at.as_ns(), send.burst * 1_000_000_000 / 300);
            assert!((1_000..=2_000).contains(&send.deadline.unwrap().as_ns()));
            bursts[send.burst as usize] += 1;
        }
        // Each of the 21 sizes of bursts about a hundred times, each of the 4 sizes of messages a quarter.
        let near = |count: usize, expected: usize| assert!(count.abs_diff(expected) < expected / 2, "{count}");
        (20..=40).for_each(|n| near(bursts.iter().filter(|burst| **burst == n).count(), 100));
        (64..=67).for_each(|n| near(sends.iter().filter(|send| send.size == n).count(), sends.len() / 4));
        let below = sends.iter().filter(|send| send.deadline.unwrap().as_ns() < 1_500).count();
        near(below, sends.len() / 2);
        assert!(Schedule::new(&spec).take(1000).eq(sends.iter().take(1000).copied()));
        let other = ScheduleSpec { seed: 2, ..spec };
        assert!(!Schedule::new(&other).take(1000).eq(sends.iter().take(1000).copied()));
    }

    #[test]
    fn servers_take_turns_among_the_messages_with_replies() {
        let spec = ScheduleSpec { reply_every: 2, servers: 2, ..ScheduleSpec::new(Pace::Max) };
        let told: Vec<_> = Schedule::new(&spec).take(6).map(|send| (send.server, send.wants_reply)).collect();
        assert_eq!(told, [(0, true), (0, false), (1, true), (1, false), (0, true), (0, false)]);
        let none = ScheduleSpec { reply_every: 0, ..ScheduleSpec::new(Pace::Max) };
        assert!(Schedule::new(&none).take(9).all(|send| !send.wants_reply && send.at == Time::ZERO));
    }

    #[test]
    fn a_playback_ends() {
        let sends = vec![(Time::from_ns(5), 100), (Time::from_ns(9), 64)];
        let schedule = Schedule::new(&ScheduleSpec::new(Pace::Playback(sends.clone())));
        assert_eq!(schedule.map(|send| (send.at, send.size)).collect::<Vec<_>>(), sends);
    }
}
