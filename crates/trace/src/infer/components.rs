//! The components of an inferred System, and the evidence for each.

use takt_model::file::validate;
use takt_model::{Auto, Component, ComponentId, NodeSpec, ServerRule, Span, System, Task};

use super::servers::{InferredComponent, PeriodSource};
use super::{Inferred, SystemOptions};

/// Why a component cannot stand in a System.
const NO_NODE: &str = "the log does not define its node";
const NO_FILE: &str = "no file can hold it beside the rest";
const GRUB: &str = "its rule grub reclaims time on one CPU only, and the placement of its node is not inferred";

/// The components of a System, and what became of the inferred ones.
#[derive(Clone, Debug, Default)]
pub(super) struct WrittenComponents {
    pub(super) components: Vec<Component>,
    /// By inferred component: its number.
    pub(super) place: Vec<Option<ComponentId>>,
    /// By component: comments.
    pub(super) comments: Vec<Vec<String>>,
    pub(super) left_out: Vec<(String, &'static str)>,
}

impl WrittenComponents {
    /// Removes the components of an invalid System if `helps` says of the System without them that this helps.
    /// `others` are further tasks that may stand in them.
    pub(super) fn give_up_if(&mut self, system: &mut System, others: &mut [Task], helps: impl FnOnce(&System) -> bool) {
        if system.components.is_empty() || validate(system).is_ok() {
            return;
        }
        let mut bare = system.clone();
        bare.components.clear();
        bare.tasks.iter_mut().for_each(|task| task.component = None);
        if !helps(&bare) {
            return;
        }
        others.iter_mut().for_each(|task| task.component = None);
        self.left_out.extend(system.components.drain(..).map(|component| (component.name, NO_FILE)));
        *system = bare;
    }
}

impl Inferred {
    /// The components for a System with these nodes.
    pub(super) fn written_components(&self, nodes: &[NodeSpec], options: &SystemOptions) -> WrittenComponents {
        let mut written = WrittenComponents::default();
        for component in &self.components {
            if let Some(why) = reason_left_out(component, nodes) {
                written.left_out.push((component.name.clone(), why));
                written.place.push(None);
                continue;
            }
            written.place.push(Some(ComponentId(written.components.len() as u32)));
            written.components.push(component_spec(component));
            written.comments.push(evidence(component));
        }
        let kept = self.components.iter().zip(&written.place).filter(|(_, place)| place.is_some());
        for ((inferred, _), component) in kept.zip(&mut written.components) {
            component.parent = inferred.parent.and_then(|outer| written.place[outer]);
        }
        if options.bind && !written.components.is_empty() {
            let bound = "Tasks in it are not bound to CPUs.".to_owned();
            written.comments.iter_mut().for_each(|lines| lines.push(bound.clone()));
        }
        written
    }
}

/// Why a component cannot be in the System. `None` if it can.
fn reason_left_out(component: &InferredComponent, nodes: &[NodeSpec]) -> Option<&'static str> {
    match nodes.get(component.node.index()) {
        None => Some(NO_NODE),
        Some(node) if node.cpus > 1 && component.rule == Some(ServerRule::Grub) => Some(GRUB),
        Some(_) => None,
    }
}

fn component_spec(component: &InferredComponent) -> Component {
    // A file holds no longer spans.
    let auto = |span: Option<Span>| span.filter(|span| *span <= Span::FILE_MAX).map_or(Auto::Auto, Auto::Value);
    let mut out = Component::new(&component.name, component.node, component.rule.unwrap_or(ServerRule::Ptps));
    out.budget = auto(component.budget);
    out.cpus = component.cpus;
    out.period = auto(component.period.map(|period| period.span));
    out
}

/// The evidence for a component's lines.
fn evidence(component: &InferredComponent) -> Vec<String> {
    let mut lines = Vec::new();
    let (rule, paid) = (component.rule.map_or("server", ServerRule::name), component.paid_most);
    let count = component.budgets;
    lines.push(match component.budget {
        None => format!("{rule}: no budget of it was seen, so \"takt size\" is to choose it."),
        Some(budget) => format!(
            "{rule}, {count} budgets of at most {budget}; {} ran out; at most {paid} was paid between two.",
            component.exhaustions
        ),
    });
    lines.push(match component.period {
        None => "Its events tell no period, so \"takt size\" is to choose it.".to_owned(),
        Some(period) => match (period.source, period.range) {
            (PeriodSource::Grid, Some((least, most))) => {
                format!("Period {least} to {most}: its budgets lie on a grid.")
            }
            (PeriodSource::Grid, None) => "Period: its budgets lie on a grid.".to_owned(),
            (PeriodSource::Distance, _) => "Period: the least distance of its budgets.".to_owned(),
            (PeriodSource::Throttled, _) => "Period: from a budget that ran out to the next one.".to_owned(),
            (PeriodSource::Returned, _) => "Period: the longest time from a payment to its return.".to_owned(),
            (PeriodSource::AtMost, _) => "Period: at most this; the longest one that explains its budgets.".to_owned(),
        },
    });
    if component.rule.is_none() {
        lines.push("The log does not name a rule that files know: ptps is written.".to_owned());
    }
    if component.changes > 0 {
        lines.push(format!("Its terms changed {} times: these are the last ones.", component.changes));
    }
    lines.push("The order of its tasks is not inferred: edf is written.".to_owned());
    lines
}
