//! Components, flows and chains that come and go, against `check` from scratch.

use takt_model::{Network, NodeSpec, TableTask};

use super::*;

fn ns(ns: u64) -> Span {
    Span::from_ns(ns)
}

/// The change as the names say it, made without any of the numbering of [`Admission`]; what comes
/// refers to others by names.
#[derive(Clone, Debug, Default)]
struct Plain {
    remove: Vec<Part>,
    /// With the name of the component around it.
    components: Vec<(Component, Option<String>)>,
    /// With the names of its component and of those before it.
    tasks: Vec<(Task, Option<String>, Vec<String>)>,
    flows: Vec<Flow>,
}

impl Plain {
    /// The system with it; `None` where a name is missing.
    fn made(&self, system: &System) -> Option<System> {
        let gone = |part: Part| self.remove.contains(&part);
        let parent = |c: &Component| c.parent.map(|id| system.components[id.index()].name.clone());
        let kept = system.components.iter().filter(|c| !gone(Part::Component(c.name.clone())));
        let components: Vec<_> = kept.map(|c| (c.clone(), parent(c))).chain(self.components.iter().cloned()).collect();
        let component = |name: &Option<String>| match name {
            Some(name) => {
                let at = components.iter().position(|(c, _)| c.name == *name)?;
                Some(Some(ComponentId(at as u32)))
            }
            None => Some(None),
        };
        let around = |task: &Task| task.component.map(|id| system.components[id.index()].name.clone());
        let before = |task: &Task| task.after.iter().map(|id| system.tasks[id.index()].name.clone()).collect();
        let kept = system.tasks.iter().filter(|task| !gone(Part::Task(task.name.clone())));
        let kept = kept.map(|task| (task.clone(), around(task), before(task)));
        let tasks: Vec<(Task, Option<String>, Vec<String>)> = kept.chain(self.tasks.iter().cloned()).collect();
        let number = |name: &String| Some(TaskId(tasks.iter().position(|(task, ..)| task.name == *name)? as u32));
        let mut made = system.clone();
        made.components = components
            .iter()
            .map(|(c, parent)| Some(Component { parent: component(parent)?, ..c.clone() }))
            .collect::<Option<_>>()?;
        made.tasks = tasks
            .iter()
            .map(|(task, around, before)| {
                let after = before.iter().map(number).collect::<Option<_>>()?;
                Some(Task { component: component(around)?, after, ..task.clone() })
            })
            .collect::<Option<_>>()?;
        made.flows.retain(|flow| !gone(Part::Flow(flow.name.clone())));
        made.flows.extend(self.flows.iter().cloned());
        Some(made)
    }

    /// As [`Admission`] takes it: numbers as `made` has them.
    fn change(&self, made: &System) -> Change {
        let last = |all: usize, come: usize| all - come..;
        Change {
            remove: self.remove.clone(),
            components: made.components[last(made.components.len(), self.components.len())].to_vec(),
            tasks: made.tasks[last(made.tasks.len(), self.tasks.len())].to_vec(),
            flows: self.flows.clone(),
        }
    }
}

struct Source {
    random: Random,
    next: u32,
}

impl Source {
    fn one_in(&mut self, n: u64) -> bool {
        self.random.between(1, n) == 1
    }

    fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.random.between(0, of.len() as u64 - 1) as usize].clone()
    }

    fn name(&mut self, kind: &str) -> String {
        self.next += 1;
        format!("{kind}{}", self.next)
    }

    fn task(&mut self, node: NodeId, light: u64) -> Task {
        let t = self.random.between(60, 400);
        let c = self.random.between(1, (t / light).max(1));
        let mut task = Task::periodic(&self.name("t"), ns(t), ns(c));
        task.node = node;
        task.priority = Some(self.random.between(1, 5) as u32);
        if self.one_in(3) {
            task.deadline = ns(self.random.between(t / 2, t));
        }
        if self.one_in(6) {
            task.jitter = ns(self.random.between(1, 4));
        }
        if self.one_in(8) {
            task.blocking = ns(self.random.between(1, 3));
        }
        task
    }

    /// Two nodes for components, four with a table, one of them of two CPUs and so not covered.
    fn system(&mut self) -> System {
        let builtins = [Builtin::Edf, Builtin::Rm, Builtin::Dm, Builtin::Fp, Builtin::Mlf];
        let mut system = System::local(1, self.pick(&builtins), Vec::new());
        let mut two = NodeSpec::new("two", 2, StrategyRef::Builtin(self.pick(&builtins)));
        two.placement = self.pick(&[Placement::Global, Placement::Partitioned]);
        system.nodes.push(two);
        for name in ["a", "b", "c"] {
            let mut node = NodeSpec::new(name, 1, StrategyRef::Builtin(Builtin::Edf));
            let cost = self.one_in(2).then(|| ns(1));
            node.receive = Some(TableTask { period: ns(self.random.between(12, 20)), wcet: ns(2), cost });
            node.send = Some(TableTask { period: ns(self.random.between(10, 20)), wcet: ns(1), cost: None });
            system.nodes.push(node);
        }
        let (delay_min, delay_max) = (ns(1), ns(self.random.between(1, 9)));
        system.networks = vec![Network::any(delay_min, delay_max)];
        for (i, node) in system.nodes.iter_mut().enumerate() {
            if self.one_in(3) {
                let costs = Costs { switch: ns(self.random.between(0, 1)), release: ns(1), ..Costs::NONE };
                let (interrupt, latency) =
                    (ns(self.random.between(0, 1)), ns(if i < 2 { self.random.between(0, 3) / 3 } else { 0 }));
                node.costs = Some(Costs { interrupt, interrupt_period: ns(50), latency, ..costs });
            }
        }
        if self.one_in(3) {
            system.clock.drift_ppm = self.random.between(0, 100) as u32;
            system.clock.sync = Some(TableTask { period: ns(200), wcet: ns(1), cost: None });
        }
        system
    }

    fn component(&mut self, node: NodeId) -> Component {
        use ServerRule as R;
        let rules = [R::Ptps, R::Ptps, R::Wcps, R::Crps, R::Polling, R::Deferrable, R::Sporadic, R::CbsHard, R::Cbs];
        let period = self.random.between(10, 60);
        let strategies = [Builtin::Rm, Builtin::Dm, Builtin::Edf, Builtin::Fp].map(StrategyRef::Builtin);
        Component {
            name: self.name("c"),
            node,
            parent: None,
            strategy: self.pick(&strategies),
            server: self.pick(&rules),
            period: Auto::Value(ns(period)),
            budget: Auto::Value(ns(self.random.between(period / 6, period / 2).max(1))),
            quantum: None,
            cpus: if node.index() == 1 && self.one_in(3) { 2 } else { 1 },
            server_cpus: Vec::new(),
            priority: Some(self.random.between(1, 5) as u32),
            threads: None,
        }
    }

    fn change(&mut self, system: &System) -> Plain {
        let mut change = Plain::default();
        let names = |of: Vec<&String>| of.into_iter().cloned().collect::<Vec<String>>();
        let tasks = names(system.tasks.iter().map(|task| &task.name).collect());
        let components = names(system.components.iter().map(|c| &c.name).collect());
        match self.random.between(0, 9) {
            0 | 1 => {
                let node = NodeId(self.random.between(0, 1) as u32);
                let component = self.component(node);
                let name = component.name.clone();
                let inside = |c: &&Component| c.node == node;
                let outer = names(system.components.iter().filter(inside).map(|c| &c.name).collect());
                let parent = (!outer.is_empty() && self.one_in(3)).then(|| self.pick(&outer));
                change.components.push((component, parent));
                for _ in 0..self.random.between(0, 2) {
                    let task = self.task(node, 20);
                    change.tasks.push((task, Some(name.clone()), Vec::new()));
                }
            }
            2 if !components.is_empty() => {
                let name = self.pick(&components);
                let id = system.components.iter().position(|c| c.name == name);
                // With what it holds, mostly.
                if !self.one_in(4) {
                    let holds = |task: &&Task| task.component.map(ComponentId::index) == id;
                    change.remove.extend(system.tasks.iter().filter(holds).map(|t| Part::Task(t.name.clone())));
                }
                change.remove.push(Part::Component(name));
            }
            3 if !components.is_empty() => {
                let at = self.random.between(0, components.len() as u64 - 1) as usize;
                let task = self.task(system.components[at].node, 30);
                change.tasks.push((task, Some(components[at].clone()), Vec::new()));
            }
            4 | 5 => {
                let mut path = vec![NodeId(self.random.between(2, 4) as u32)];
                for _ in 0..self.random.between(0, 2) {
                    let next = NodeId(if self.one_in(20) { 0 } else { self.random.between(2, 4) as u32 });
                    if path.last() != Some(&next) {
                        path.push(next);
                    }
                }
                let period = self.random.between(300, 2000);
                let reply = path.len() > 1 && path.first() != path.last() && self.one_in(3);
                change.flows.push(Flow {
                    name: self.name("f"),
                    path,
                    reply,
                    period: ns(period),
                    wcet: ns(self.random.between(1, 8)),
                    deadline: ns(self.random.between(200, 1500)),
                    send_gap: ns(self.random.between(1, period / 2)),
                    hop_wcet: ns(self.random.between(1, 8)),
                    size: takt_model::Bytes::default(),
                    hop_deadlines: Vec::new(),
                });
            }
            6 if !system.flows.is_empty() => {
                let at = self.random.between(0, system.flows.len() as u64 - 1) as usize;
                change.remove.push(Part::Flow(system.flows[at].name.clone()));
            }
            7 if !tasks.is_empty() => change.remove.push(Part::Task(self.pick(&tasks))),
            8 if !tasks.is_empty() => {
                let before = self.random.between(0, tasks.len() as u64 - 1) as usize;
                let task = &system.tasks[before];
                let wcet = ns(self.random.between(1, (task.period.as_ns() / 20).max(1)));
                let mut next = Task::periodic(&self.name("t"), task.period, wcet);
                (next.node, next.priority) = (task.node, task.priority);
                let around = task.component.map(|id| components[id.index()].clone());
                change.tasks.push((next, around, vec![task.name.clone()]));
            }
            _ => {
                let node = NodeId(self.random.between(0, 4) as u32);
                change.tasks.push((self.task(node, 10), None, Vec::new()));
                if !tasks.is_empty() && self.one_in(3) {
                    change.remove.push(Part::Task(self.pick(&tasks)));
                }
            }
        }
        change
    }
}

#[test]
fn admission_agrees_with_check_after_every_change() {
    let mut seen: BTreeMap<&str, u32> = BTreeMap::new();
    // A round takes 70 ms in debug builds.
    for round in 0..(cases(25) / 20).max(25) {
        let mut source = Source { random: Random::new(777 + round), next: 0 };
        let system = source.system();
        let Ok(mut admission) = Admission::new(system.clone()) else {
            // Costs that even this system has no time for.
            assert_ne!(decide(&system), Answer::Yes, "{round}: {system:?}");
            continue;
        };
        for step in 0..40 {
            let plain = source.change(admission.system());
            let before = admission.system().clone();
            let Some(made) = plain.made(&before) else {
                // A task that others follow, or a component that holds something.
                let change = Change { remove: plain.remove.clone(), ..Change::default() };
                assert!(matches!(admission.change(&change), Err(Refusal::Invalid(_))), "{round}.{step}: {plain:?}");
                assert_eq!(admission.system(), &before);
                *seen.entry("held").or_default() += 1;
                continue;
            };
            let found = admission.change(&plain.change(&made));
            let proven = valid(&made).is_ok() && decide(&made) == Answer::Yes;
            assert_eq!(found.is_ok(), proven, "{round}.{step}: {found:?} {plain:?} {before:?}");
            assert_eq!(admission.system(), if proven { &made } else { &before }, "{round}.{step}: {plain:?}");
            let kinds = [
                ("a component came", !plain.components.is_empty()),
                ("a flow came", !plain.flows.is_empty()),
                ("a component went", plain.remove.iter().any(|part| matches!(part, Part::Component(_)))),
                ("a flow went", plain.remove.iter().any(|part| matches!(part, Part::Flow(_)))),
                ("a successor came", plain.tasks.iter().any(|(.., before)| !before.is_empty())),
                ("in a component", plain.components.is_empty() && plain.tasks.iter().any(|(_, c, _)| c.is_some())),
            ];
            for (kind, _) in kinds.iter().filter(|(_, is)| *is && proven) {
                *seen.entry(kind).or_default() += 1;
            }
            *seen.entry(found.map_or("refused", DecidedBy::name)).or_default() += 1;
        }
        // The kept data equals the data of a fresh start.
        let mut fresh = Admission::new(admission.system().clone()).expect("it is proven");
        for _ in 0..5 {
            let plain = source.change(admission.system());
            let Some(made) = plain.made(admission.system()) else { continue };
            let change = plain.change(&made);
            assert_eq!(fresh.clone().change(&change).is_ok(), admission.clone().change(&change).is_ok(), "{plain:?}");
        }
        assert_eq!(admission.report().schedulable, Answer::Yes);
        fresh = admission.clone();
        assert_eq!(fresh.system(), admission.system());
    }
    for way in [
        "parts",
        "refused",
        "held",
        "a component came",
        "a component went",
        "a flow came",
        "a flow went",
        "a successor came",
        "in a component",
    ] {
        assert!(seen.contains_key(way), "{way}: {seen:?}");
    }
}
