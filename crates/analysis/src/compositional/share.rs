//! Values for a server that `size` cannot choose, so that it can be simulated all the same.

use takt_model::{Auto, Component, ComponentId, Span, System};

use super::around::given;
use super::sized::{QUANTUM, SizeError};

/// The period of a server where neither tasks nor inner servers suggest one.
const PERIOD: Span = Span::from_ms(1);

/// Fills in the `"auto"` values of the component that an error names with its [share](share_of).
/// If that component has none, all others get theirs. Says which; `None` if nothing is `"auto"`.
#[must_use]
pub fn with_share(system: &System, error: &SizeError) -> Option<(System, Vec<ComponentId>)> {
    let (SizeError::NotEnough { component: named, .. }
    | SizeError::NotCovered { component: named, .. }
    | SizeError::Limit { component: named, .. }) = error;
    let is_open = |component: &Component| component.period == Auto::Auto || component.budget == Auto::Auto;
    let open = |only: Option<&str>| -> Vec<ComponentId> {
        let wanted = |one: &Component| is_open(one) && only.is_none_or(|only| one.name == only);
        let all = (0..).map(ComponentId).zip(&system.components);
        all.filter(|(_, one)| wanted(one)).map(|(id, _)| id).collect()
    };
    let mut ids = open(Some(named));
    if ids.is_empty() {
        ids = open(None);
    }
    let mut changed = system.clone();
    for id in &ids {
        let (period, budget) = share_of(system, *id);
        let component = &mut changed.components[id.index()];
        (component.period, component.budget) = (Auto::Value(period), Auto::Value(budget));
    }
    (!ids.is_empty()).then_some((changed, ids))
}

/// The period and budget of a server that gets the utilisation of its tasks and inner servers, and
/// no more. Nothing is proven of it.
///
/// An `"auto"` period is half of the shortest period inside, or 1 ms if nothing is inside. An
/// `"auto"` budget is the utilisation times the period, but at least one quantum and at most all of
/// its CPUs. Both are multiples of the quantum as far as that is possible.
#[must_use]
pub fn share_of(system: &System, id: ComponentId) -> (Span, Span) {
    let component = &system.components[id.index()];
    let quantum = component.quantum.unwrap_or(QUANTUM).as_ns().max(1);
    let cpus = u64::from(component.cpus.max(1));
    let tasks = system.tasks.iter().filter(|task| task.component == Some(id));
    let mut inside: Vec<(u64, u64)> = tasks.map(|task| (task.wcet.as_ns(), task.period.as_ns())).collect();
    for (i, inner) in system.components.iter().enumerate().filter(|(_, inner)| inner.parent == Some(id)) {
        let (period, budget) = match (given(inner.period), given(inner.budget)) {
            (Some(period), Some(budget)) => (period, budget),
            _ => {
                let (period, budget) = share_of(system, ComponentId(i as u32));
                (period.as_ns(), budget.as_ns())
            }
        };
        inside.push((budget, period));
    }
    let up = |ns: u64| ns.div_ceil(quantum).max(1).saturating_mul(quantum).min(Span::FILE_MAX.as_ns());
    let wanted = given(component.budget);
    let period = given(component.period).unwrap_or_else(|| {
        let half = inside.iter().map(|(_, period)| period / 2).min().unwrap_or(PERIOD.as_ns());
        let half = half / quantum * quantum;
        half.max(up(wanted.map_or(1, |budget| budget.div_ceil(cpus))))
    });
    let budget = wanted.unwrap_or_else(|| {
        let part = |(wcet, of): &(u64, u64)| (u128::from(period) * u128::from(*wcet)).div_ceil(u128::from(*of).max(1));
        let asked = inside.iter().map(part).fold(0, u128::saturating_add);
        up(u64::try_from(asked).unwrap_or(u64::MAX)).min(period.saturating_mul(cpus))
    });
    (Span::from_ns(period), Span::from_ns(budget))
}

#[cfg(test)]
mod tests {
    use super::*;
    use takt_model::{Builtin, NodeId, ServerRule, Task};

    fn values(period: Auto<Span>, budget: Auto<Span>, quantum: Option<Span>) -> (u64, u64) {
        let ms = Span::from_ms;
        let mut system = System::local(1, Builtin::Mlf, Vec::new());
        let outer = Component { period, budget, quantum, ..Component::new("outer", NodeId(0), ServerRule::Cbs) };
        let inner = Component { parent: Some(ComponentId(0)), ..Component::new("inner", NodeId(0), ServerRule::Grub) };
        system.components = vec![outer, inner];
        let task = |name: &str, c: u32, of: Task| Task { name: name.to_owned(), component: Some(ComponentId(c)), ..of };
        system.tasks.push(task("a", 0, Task::periodic("", ms(20), ms(5))));
        system.tasks.push(task("b", 1, Task::periodic("", ms(30), ms(10))));
        let (period, budget) = share_of(&system, ComponentId(0));
        (period.as_ns(), budget.as_ns())
    }

    #[test]
    fn a_server_gets_the_utilisation_of_what_it_serves() {
        let us = |us| Auto::Value(Span::from_us(us));
        // The inner server gets 5 ms in each 15 ms; together 7/12.
        assert_eq!(values(Auto::Auto, Auto::Auto, None), (7_500_000, 4_375_000));
        assert_eq!(values(Auto::Auto, Auto::Auto, Some(Span::from_ms(2))), (6_000_000, 4_000_000));
        assert_eq!(values(us(1_200), Auto::Auto, None), (1_200_000, 700_000));
        assert_eq!(values(Auto::Auto, us(9_000), None), (9_000_000, 9_000_000));
    }

    #[test]
    fn a_server_of_nothing_gets_a_quantum_of_each_millisecond() {
        let mut system = System::local(1, Builtin::Edf, Vec::new());
        system.components.push(Component::new("empty", NodeId(0), ServerRule::Ptps));
        assert_eq!(share_of(&system, ComponentId(0)), (Span::from_ms(1), Span::from_us(1)));
    }
}
