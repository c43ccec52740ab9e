//! Sets of tasks of a given total utilisation.

use super::convolution::Convolution;
use super::draws::{Draws, Use};
use super::error::{DISCARDS_MAX, GenerateError, TASKS_MAX};
use super::fixed_sum::FixedSum;
use super::math::{root, share_down, share_up};
use super::periods::{Drawer, Periods};
use crate::system::Task;
use crate::time::Span;

named! {
    /// How utilisations are drawn. Each method is uniform over all vectors with the sum and within the
    /// limits. The methods differ in their cost and in the limits that they accept.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
    pub enum Method {
        /// UUniFast (E. Bini, G. Buttazzo: Measuring the Performance of Schedulability Tests, RTS 30,
        /// 2005). Discards vectors outside the limits (R. Davis, A. Burns: Priority Assignment for
        /// Global Fixed Priority Pre-emptive Scheduling in Multiprocessor Real-Time Systems, RTSS
        /// 2009). Accepts any limits, and gives up after [`DISCARDS_MAX`] vectors.
        UUniFastDiscard => "uunifast-discard",
        /// Stafford's randfixedsum. All tasks have the same limits.
        #[default]
        RandFixedSum => "randfixedsum",
        /// Griffin and Davis's ConvolutionalFixedSum. Accepts any limits.
        ConvolutionalFixedSum => "cfs",
    }
}

/// The shape of sets.
#[derive(Clone, PartialEq, Debug)]
pub struct Spec {
    /// The number of tasks, 1 to [`TASKS_MAX`].
    pub tasks: usize,
    /// Their total utilisation. It lies within the sums of the limits.
    pub utilization: f64,
    /// How it is shared out.
    pub method: Method,
    /// Limits of a task's utilisation, least and most: one pair for all, or one per task. Within
    /// [0, 1].
    pub limits: Vec<(f64, f64)>,
    /// How periods are drawn.
    pub periods: Periods,
    /// The range of a uniform factor f. D = C + f (T - C) if f <= 1, and D = f T above. (1, 1)
    /// makes deadlines implicit.
    pub deadlines: (f64, f64),
    /// Periods, execution times and deadlines are multiples of this.
    pub grain: Span,
}

impl Spec {
    /// Implicit deadlines, utilisations up to 1 by randfixedsum, log-uniform periods from 10 ms to
    /// 1 s, in whole microseconds.
    #[must_use]
    pub fn new(tasks: usize, utilization: f64) -> Spec {
        Spec {
            tasks,
            utilization,
            method: Method::default(),
            limits: vec![(0.0, 1.0)],
            periods: Periods::LogUniform { min: Span::from_ms(10), max: Span::from_s(1) },
            deadlines: (1.0, 1.0),
            grain: Span::from_us(1),
        }
    }
}

/// A task as drawn; times in ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Drawn {
    /// C: a multiple of the grain, at least one grain, at most T.
    pub c: u64,
    /// D, at least C.
    pub d: u64,
    /// T.
    pub t: u64,
}

/// The distribution of a utilisation vector.
#[derive(Clone, PartialEq, Debug)]
enum Vectors {
    UUniFast,
    FixedSum(FixedSum),
    Convolution(Convolution),
    /// A single task.
    One,
}

/// A [`Spec`] made ready: sets by number.
#[derive(Clone, PartialEq, Debug)]
pub struct Generator {
    spec: Spec,
    vectors: Vectors,
    periods: Drawer,
    grain: u64,
    /// Per task, least and most.
    limits: Vec<(f64, f64)>,
    /// The total beyond the sum of the least.
    free: f64,
}

impl Generator {
    /// Checks the spec and prepares what all sets share: O(tasks^2) for randfixedsum.
    ///
    /// # Errors
    /// A value of the spec is out of its range.
    pub fn new(spec: &Spec) -> Result<Generator, GenerateError> {
        let (n, utilization) = (spec.tasks, spec.utilization);
        if n == 0 || n > TASKS_MAX {
            return Err(GenerateError::Tasks { tasks: n });
        }
        if spec.limits.len() != 1 && spec.limits.len() != n {
            return Err(GenerateError::Limits { limits: spec.limits.len(), tasks: n });
        }
        for (least, most) in &spec.limits {
            if !(0.0 <= *least && least <= most && *most <= 1.0) {
                return Err(GenerateError::Limit { least: *least, most: *most });
            }
        }
        let (from, to) = spec.deadlines;
        if !(0.0 <= from && from <= to && to <= 1000.0) {
            return Err(GenerateError::Deadlines { from, to });
        }
        let limits: Vec<(f64, f64)> = if spec.limits.len() == n {
            spec.limits.clone()
        } else {
            spec.limits.iter().copied().cycle().take(n).collect()
        };
        let least: f64 = limits.iter().map(|(least, _)| least).sum();
        let most: f64 = limits.iter().map(|(_, most)| most).sum();
        if !(utilization > 0.0 && least <= utilization && utilization <= most) {
            return Err(GenerateError::Utilization { utilization, least, most });
        }
        let free = utilization - least;
        let widths: Vec<f64> = limits.iter().map(|(least, most)| most - least).collect();
        let equal = limits.iter().all(|limit| *limit == limits[0]);
        let vectors = match spec.method {
            Method::RandFixedSum if !equal => return Err(GenerateError::LimitsDiffer),
            _ if n == 1 || free <= 0.0 => Vectors::One,
            Method::UUniFastDiscard => Vectors::UUniFast,
            Method::RandFixedSum => Vectors::FixedSum(FixedSum::new(n, free / widths[0])),
            Method::ConvolutionalFixedSum => Vectors::Convolution(Convolution::new(&widths, free)),
        };
        let grain = spec.grain.as_ns().max(1);
        let periods = Drawer::new(&spec.periods, grain).ok_or(GenerateError::Periods { grain: spec.grain })?;
        Ok(Generator { spec: spec.clone(), vectors, periods, grain, limits, free })
    }

    /// What was asked for.
    #[must_use]
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Fills `values` with the utilisations of set `number`, before any rounding.
    ///
    /// # Errors
    /// [`GenerateError::Discarded`].
    pub fn utilizations(&self, seed: u64, number: u64, values: &mut Vec<f64>) -> Result<(), GenerateError> {
        let draws = Draws::of_set(seed, number);
        match &self.vectors {
            Vectors::One => {
                values.clear();
                values.extend(self.limits.iter().map(|_| self.free / self.limits.len() as f64));
            }
            Vectors::FixedSum(section) => {
                section.draw(&draws, values);
                let width = self.limits[0].1 - self.limits[0].0;
                values.iter_mut().for_each(|value| *value *= width);
            }
            Vectors::Convolution(section) => section.draw(&draws, values),
            Vectors::UUniFast => {
                let found = (0..DISCARDS_MAX).any(|attempt| self.simplex(&draws, attempt, values));
                if !found {
                    return Err(GenerateError::Discarded { number });
                }
            }
        }
        for (value, (least, most)) in values.iter_mut().zip(&self.limits) {
            *value = (least + *value).clamp(*least, *most);
        }
        Ok(())
    }

    /// UUniFast; whether the vector lies within the limits.
    fn simplex(&self, draws: &Draws, attempt: u32, values: &mut Vec<f64>) -> bool {
        values.clear();
        let (n, mut left) = (self.limits.len(), self.free);
        for (i, (least, most)) in self.limits.iter().enumerate() {
            let others = (n - 1 - i) as u32;
            let rest =
                if others == 0 { 0.0 } else { left * root(draws.unit(i as u32, Use::Utilization, attempt), others) };
            let value = left - rest;
            if value > most - least {
                return false;
            }
            values.push(value);
            left = rest;
        }
        true
    }

    /// Fills `set` with set `number` under `seed`. C = U T, rounded down to a grain, and at least
    /// one grain. D is rounded to the nearest grain, and is at least C. The set never exceeds its
    /// utilisation: if short tasks round up to a grain, the tasks of the largest utilisation become
    /// shorter.
    ///
    /// # Errors
    /// [`GenerateError::Discarded`], [`GenerateError::Grain`].
    pub fn set(&self, seed: u64, number: u64, set: &mut Buffer) -> Result<(), GenerateError> {
        self.utilizations(seed, number, &mut set.values)?;
        let draws = Draws::of_set(seed, number);
        let Spec { deadlines: (from, to), utilization, grain, .. } = self.spec;
        set.tasks.clear();
        // Grains lost by rounding down, the longest period, and whether a task has more than it should.
        let (mut lost, mut longest, mut raised) = (0.0, 0, false);
        for i in 0..set.values.len() {
            let t = self.periods.draw(&draws, i as u32);
            set.tasks.push(Drawn { c: 0, d: t, t });
        }
        for (u, task) in set.values.iter().zip(&mut set.tasks) {
            let exact = u * task.t as f64;
            let whole = exact as u64;
            lost += exact - whole as f64;
            longest = longest.max(task.t);
            raised |= whole == 0;
            task.c = whole.clamp(1, task.t);
        }
        // Most sets lose more than the sum of their values can be off, so nobody has to add them up.
        let is_within = !raised && lost > SUM_ERROR * utilization * longest as f64;
        if !is_within && !keep_within(&mut set.tasks, utilization) {
            return Err(GenerateError::Grain { number, utilization, grain });
        }
        for (i, Drawn { c, d, t }) in set.tasks.iter_mut().enumerate() {
            if from != 1.0 || to != 1.0 {
                let factor = from + draws.unit(i as u32, Use::Deadline, 0) * (to - from);
                let exact = if factor <= 1.0 { *c as f64 + factor * (*t - *c) as f64 } else { factor * *t as f64 };
                *d = ((exact + 0.5) as u64).max(*c);
            }
            (*c, *d, *t) = (*c * self.grain, *d * self.grain, *t * self.grain);
        }
        Ok(())
    }

    /// Set `number` under `seed` as tasks "t1", "t2", .. of a System's first node.
    ///
    /// # Errors
    /// [`GenerateError::Discarded`], [`GenerateError::Grain`].
    pub fn tasks(&self, seed: u64, number: u64) -> Result<Vec<Task>, GenerateError> {
        let mut buffer = Buffer::default();
        self.set(seed, number, &mut buffer)?;
        let task = |(i, drawn): (usize, &Drawn)| Task {
            deadline: Span::from_ns(drawn.d),
            ..Task::periodic(&format!("t{}", i + 1), Span::from_ns(drawn.t), Span::from_ns(drawn.c))
        };
        Ok(buffer.tasks.iter().enumerate().map(task).collect())
    }
}

/// More than the relative error of a sum of utilisations: that of [`TASKS_MAX`] of them is below 1e-11.
const SUM_ERROR: f64 = 1e-9;

/// Shortens execution times (in grains), starting with the task of the largest utilisation, until
/// the tasks do not exceed a utilisation. Returns false if tasks of one grain each exceed it.
pub(super) fn keep_within(tasks: &mut [Drawn], most: f64) -> bool {
    while exceeds(tasks, most) {
        let share = |task: &Drawn| task.c as f64 / task.t as f64;
        let excess = utilization(tasks) - most;
        let largest = tasks.iter_mut().filter(|task| task.c > 1).max_by(|a, b| share(a).total_cmp(&share(b)));
        let Some(task) = largest else { return false };
        task.c -= ((excess * task.t as f64).max(0.0) as u64).saturating_add(1).min(task.c - 1);
    }
    true
}

/// Whether tasks may exceed a utilisation, with each task rounded up by less than 2^-64.
fn exceeds(tasks: &[Drawn], most: f64) -> bool {
    // Floating-point numbers decide nothing here.
    let near = utilization(tasks) > most * (1.0 - SUM_ERROR);
    near && tasks.iter().map(|task| share_up(task.c, task.t)).sum::<u128>() > share_down(most)
}

/// A set and its memory. Use it again for the next set.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Buffer {
    values: Vec<f64>,
    /// The tasks of the last set.
    pub tasks: Vec<Drawn>,
}

/// The utilisation of a set as it came out of rounding.
#[must_use]
pub fn utilization(tasks: &[Drawn]) -> f64 {
    tasks.iter().map(|task| task.c as f64 / task.t.max(1) as f64).sum()
}
