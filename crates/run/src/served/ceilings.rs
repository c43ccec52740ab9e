//! Limits of control groups (cpu.max). The kernel leaves them to the scheduler, which does not keep them. So this back
//! end refuses a machine with such limits.

use std::collections::BTreeMap;
use std::path::PathBuf;

use takt_linux::ceiling::{Ceiling, ceilings};
use takt_linux::foreign::ForeignGroup;
use takt_model::{ComponentId, NodeId, System};

use super::{OTHERS, plan};
use crate::contract::Obstacle;
use crate::foreign;

/// The obstacles for the node, with these limits on the machine.
pub(crate) fn obstacles(system: &System, node: NodeId, ceilings: &[Ceiling]) -> Vec<Obstacle> {
    let groups = foreign::components(system, node).filter_map(|(id, component)| {
        let group = ForeignGroup::find(component.threads.as_ref()?).ok()?;
        Some((group.folder, id))
    });
    for_groups(system, &groups.collect(), ceilings)
}

/// `groups`: by folder, the components of existing threads.
fn for_groups(system: &System, groups: &BTreeMap<PathBuf, ComponentId>, ceilings: &[Ceiling]) -> Vec<Obstacle> {
    let (mut obstacles, mut others) = (Vec::new(), Vec::new());
    for ceiling in ceilings {
        let of = groups.get(&ceiling.folder).copied();
        let Some((id, component)) = of.and_then(|id| Some((id, system.components.get(id.index())?))) else {
            others.push(ceiling.clone());
            continue;
        };
        // A budget that keeps the limit, in each mode, is no obstacle.
        let terms = plan::terms_of(system, id, component);
        if let Some((_, _, period, budget)) = terms.into_iter().find(|terms| ceiling.is_below(terms.3, terms.2)) {
            let part = format!("component \"{}\"", component.name);
            let why = format!("its group has a limit of {ceiling}, below its budget of {budget} in {period}");
            obstacles.push(Obstacle::new(part, why, format!("lower the budget, or {}", ceiling.removal())));
        }
    }
    if let (Some(told), Some(first)) = (told(&others), others.first()) {
        let why = format!("{told}, and a sched_ext scheduler keeps only the limits of components");
        let remedy = format!("take such limits away for the run ({}), or {OTHERS}", first.removal());
        obstacles.push(Obstacle::new("this machine", why, remedy));
    }
    obstacles
}

/// Limits of other groups than these that came during a run; `None` if there are none.
pub(crate) fn note(own: &[PathBuf]) -> Option<String> {
    let others: Vec<Ceiling> = ceilings().into_iter().filter(|ceiling| !own.contains(&ceiling.folder)).collect();
    let told = told(&others)?;
    Some(format!("{told}, set during the run: no such limit was kept until the run ended"))
}

/// The beginning of a sentence; `None` without limits.
fn told(ceilings: &[Ceiling]) -> Option<String> {
    let [first, others @ ..] = ceilings else { return None };
    let more = match others.len() {
        0 => String::new(),
        1 => ", as one other group has".to_owned(),
        count => format!(", as {count} other groups have"),
    };
    Some(format!("the control group {} has a limit of {first} of CPU time{more}", first.folder.display()))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use takt_model::{Auto, Builtin, Component, ServerRule, Span};

    use super::*;

    #[test]
    fn limits_that_nobody_would_keep_are_obstacles() {
        let mut system = System::local(1, Builtin::Rm, Vec::new());
        let mut guest = Component::new("guest", NodeId(0), ServerRule::Deferrable);
        (guest.budget, guest.period) = (Auto::Value(Span::from_ms(6)), Auto::Value(Span::from_ms(20)));
        system.components.push(guest);
        let groups = BTreeMap::from([(PathBuf::from("/g/guest"), ComponentId(0))]);
        let limit = |folder: &str, quota: u64| {
            let quota = (quota * 1000).to_string();
            Ceiling::new(Path::new(folder), (&quota, "100000"), false).unwrap()
        };
        let refused = |ceilings: &[Ceiling]| -> Vec<String> {
            for_groups(&system, &groups, ceilings).iter().map(ToString::to_string).collect()
        };
        assert!(refused(&[]).is_empty());
        assert!(refused(&[limit("/g/guest", 30)]).is_empty());
        let [text] = &refused(&[limit("/g/guest", 29)])[..] else { panic!("one obstacle") };
        let wanted = "component \"guest\": its group has a limit of 29ms in 100ms, below its budget of 6ms in 20ms; ";
        assert_eq!(text, &format!("{wanted}lower the budget, or echo max > /g/guest/cpu.max"));
        // A group around, one below, and one elsewhere, with any limit.
        for other in ["/g", "/g/guest/inner", "/g/web"] {
            let [text] = &refused(&[limit(other, 99), limit("/z", 1)])[..] else { panic!("{other}") };
            assert!(
                text.starts_with(&format!("this machine: the control group {other} has a limit of 99ms in ")),
                "{text}"
            );
            assert!(text.contains("as one other group has") && text.contains("--backend manager"), "{text}");
        }
    }
}
