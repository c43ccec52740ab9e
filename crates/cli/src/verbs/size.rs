//! `takt size`: periods and budgets of components, CPUs of tasks, and what flows need, filled in.

mod reserve;

use serde_json::{Value, json};
use takt_analysis::distributed::assign::Choice;
use takt_analysis::distributed::network::{NetworkChange, SizedNetwork, assume_delay, size_network};
use takt_analysis::distributed::shares::Weigh;
use takt_analysis::distributed::size::{FlowOptions, MessageCosts, SizedFlows, size_flows};
use takt_analysis::{Answer, CheckOptions, SizedSystem, check, contradictions, equally_critical, size};
use takt_dispatch::to_completion;
use takt_model::file::{Document, Edit};
use takt_model::{
    Auto, Component, ComponentId, NodeId, Placement, Rate, Span, StrategyRef, System, TableTask, Task, TaskId,
};

use crate::args;
use crate::failure::{Failure, Outcome, Status};
use crate::input;
use crate::output::{Target, note, only_one, print, print_json};
use crate::table::{Rows, Table, time};
use crate::verbs::check::word;

pub(crate) fn execute(options: &args::Size, json: bool) -> Outcome {
    let to_stdout = options.output.as_ref().is_some_and(Target::is_stdout);
    only_one(json, to_stdout, "system")?;
    if let Some(task) = &options.reserve {
        return reserve::execute(options, task, json);
    }
    let (given, text) = input::system_and_text(&options.file)?;
    let given = input::has_work(&options.file, given, false)?;
    let system = if options.run_to_completion { to_completion(&given) } else { given.clone() };
    let sized = size(&system).map_err(input::size_failure)?;
    let (placed, bound) = place(&sized)?;
    let (flows, network, placed) = distribute(placed, options)?;
    let report = check(&placed, &CheckOptions::default());
    let notes: Vec<&String> = sized.notes.iter().chain(network.iter().flat_map(|network| &network.notes)).collect();
    let mut warnings = contradictions(&placed);
    warnings.extend(equally_critical(&placed));
    for text in notes.iter().copied().chain(&warnings) {
        note(format_args!("warning: {text}"));
    }
    if let Some(target) = &options.output {
        let name = input::shown(&options.file);
        let mut document = Document::parse(&text, &name).map_err(Failure::located)?;
        document.apply(&of_strategies(&given, &system)).map_err(Failure::located)?;
        document.apply(&edits(&sized, &placed, &bound, &flows, network.as_ref())).map_err(Failure::located)?;
        target.write(document.text().as_bytes())?;
        if report.schedulable != Answer::Yes {
            note(format_args!("warning: the written file is {}: takt check says why", word(report.schedulable)));
        }
    }
    if json {
        print_json(&json!({
            "system": system.name,
            "schedulable": report.schedulable.known(),
            "components": sized.components,
            "partition": partition(&placed, &bound),
            "reservations": [],
            "flows": flows.flows,
            "tables": flows.tables,
            "total_rate_bps": network.as_ref().map(|network| network.total_rate),
            "shares": network.as_ref().map_or(&[][..], |network| &network.shares),
            "delays": network.as_ref().map_or(&[][..], |network| &network.delays),
            "notes": notes,
            "warnings": warnings,
        }))?;
    } else if !to_stdout {
        print(&describe(&sized, &placed, &bound, &of_flows(&flows, network.as_ref()), report.schedulable))?;
    }
    Ok(if report.schedulable == Answer::Yes { Status::Yes } else { Status::No })
}

/// Flows and the network between them, sized, and the system with both.
fn distribute(placed: System, options: &args::Size) -> Result<(SizedFlows, Option<SizedNetwork>, System), Failure> {
    let flow_options = flow_options(options);
    let Some(wanted) = options.network_delay else {
        let flows = size_flows(&placed, &flow_options).map_err(Failure::no)?;
        let placed = flows.system.clone();
        return Ok((flows, None, placed));
    };
    // No message will take longer, so what is sized for that holds.
    let mut flows = size_flows(&assume_delay(&placed, wanted), &flow_options).map_err(Failure::no)?;
    flows.system.networks = placed.networks;
    let network = size_network(&flows.system, weigh(options), wanted).map_err(Failure::no)?;
    let placed = network.system.clone();
    Ok((flows, Some(network), placed))
}

struct Bound {
    tasks: Vec<TaskId>,
    components: Vec<ComponentId>,
}

impl Bound {
    fn is_empty(&self) -> bool {
        self.tasks.is_empty() && self.components.is_empty()
    }
}

/// The system with its tasks and servers bound to CPUs, and which ones that concerns.
fn place(sized: &SizedSystem) -> Result<(System, Bound), Failure> {
    let system = &sized.system;
    let binds = |node: NodeId| system.nodes[node.index()].placement != Placement::Global;
    let loose = |task: &Task| binds(task.node) && task.component.is_none() && task.cpus.is_none();
    let loose_server =
        |component: &Component| binds(component.node) && component.parent.is_none() && component.server_cpus.is_empty();
    let tasks = (0..).zip(&system.tasks).filter(|(_, task)| loose(task)).map(|(id, _)| TaskId(id));
    let components = (0..).zip(&system.components).filter(|(_, one)| loose_server(one)).map(|(id, _)| ComponentId(id));
    let bound = Bound { tasks: tasks.collect(), components: components.collect() };
    if bound.is_empty() { Ok((system.clone(), bound)) } else { Ok((input::place(system.clone())?, bound)) }
}

/// Edits of `-o` for changed strategies.
fn of_strategies(given: &System, system: &System) -> Vec<Edit> {
    let name = |strategy: StrategyRef| system.strategy_name(strategy).to_owned();
    let new = system.strategies.iter().skip(given.strategies.len());
    let new = new.map(|strategy| Edit::AddStrategy { strategy: strategy.clone() });
    let nodes =
        given.nodes.iter().zip(&system.nodes).zip(0..).filter(|((before, now), _)| before.strategy != now.strategy);
    let nodes = nodes.map(|((_, now), node)| Edit::NodeStrategy { node: NodeId(node), name: name(now.strategy) });
    let modes = given.modes.iter().zip(&system.modes).enumerate();
    let modes = modes.filter(|(_, (before, now))| before.strategy != now.strategy);
    let modes = modes.map(|(mode, (_, now))| Edit::ModeStrategy { mode, name: name(now.strategy) });
    new.chain(nodes).chain(modes).collect()
}

/// Edits of `-o`: values that were `"auto"`, and the CPUs of unbound tasks.
fn edits(
    sized: &SizedSystem,
    placed: &System,
    bound: &Bound,
    flows: &SizedFlows,
    network: Option<&SizedNetwork>,
) -> Vec<Edit> {
    let chosen = sized.components.iter().filter(|component| component.chosen);
    let components = chosen.map(|component| Edit::Component {
        component: component.id,
        period: Auto::Value(component.period),
        budget: Auto::Value(component.budget),
    });
    let tasks = bound.tasks.iter().map(|task| Edit::TaskCpus { task: *task, cpus: placed.tasks[task.index()].cpus });
    let servers = bound
        .components
        .iter()
        .map(|id| Edit::ServerCpus { component: *id, cpus: placed.components[id.index()].server_cpus.clone() });
    let tables = flows.tables.iter().map(|table| Edit::TableTask {
        node: table.id,
        receives: table.task == "receive",
        task: TableTask { period: table.period, wcet: table.wcet, cost: Some(table.cost) },
    });
    let flows = flows.flows.iter().filter(|flow| flow.chosen).map(|flow| Edit::HopDeadlines {
        flow: flow.id,
        deadlines: flow.hops.iter().map(|hop| hop.deadline).collect(),
    });
    let changes = network.iter().flat_map(|network| &network.changes).map(|change| match change {
        NetworkChange::Delay(network, delay) => Edit::Delay { network: *network, delay: *delay },
        NetworkChange::Bucket(node, bucket) => Edit::Bucket { node: *node, bucket: *bucket },
        NetworkChange::Add(network) => Edit::AddNetwork { network: network.clone() },
    });
    components.chain(tasks).chain(servers).chain(tables).chain(flows).chain(changes).collect()
}

fn partition(placed: &System, bound: &Bound) -> Vec<Value> {
    let node = |node: NodeId| &placed.nodes[node.index()].name;
    let task = |id: &TaskId| {
        let task = &placed.tasks[id.index()];
        let cpus: Vec<u32> = task.cpus.map(|cpus| cpus.iter().collect()).unwrap_or_default();
        json!({ "task": task.name, "node": node(task.node), "cpus": cpus })
    };
    let server = |id: &ComponentId| {
        let component = &placed.components[id.index()];
        json!({ "component": component.name, "node": node(component.node), "cpus": component.server_cpus })
    };
    bound.tasks.iter().map(task).chain(bound.components.iter().map(server)).collect()
}

fn flow_options(options: &args::Size) -> FlowOptions {
    let costs = options.receive_cost.zip(options.send_cost).map(|(receive, send)| MessageCosts {
        receive,
        send,
        quantum: options.table_quantum.unwrap_or(Span::from_us(1)),
        periods: options.table_periods,
    });
    FlowOptions { deadlines: options.deadlines.as_deref().and_then(Choice::by_name), costs }
}

fn weigh(options: &args::Size) -> Weigh {
    match options.weigh.as_deref() {
        Some("messages") => Weigh::Messages,
        Some("fair") => Weigh::Fair,
        _ => Weigh::Bytes,
    }
}

fn of_flows(flows: &SizedFlows, network: Option<&SizedNetwork>) -> String {
    let mut text = String::new();
    let mut add = |table: Table| {
        if !table.is_empty() {
            text.push('\n');
            text.push_str(&table.render_long(Rows::Most, "rows", |_, _| 0));
        }
    };
    let mut hops = Table::new(&["FLOW", "HOP", "NODE", "DEADLINE"]);
    for flow in &flows.flows {
        for (number, hop) in flow.hops.iter().enumerate() {
            hops.row(vec![flow.flow.clone(), number.to_string(), hop.node.clone(), time(hop.deadline)]);
        }
    }
    add(hops);
    let mut tables = Table::new(&["NODE", "TABLE TASK", "PERIOD", "WCET", "COST", "MESSAGES"]);
    for table in &flows.tables {
        let times = [table.period, table.wcet, table.cost].map(time);
        let [period, wcet, cost] = times;
        tables.row(vec![table.node.clone(), table.task.to_owned(), period, wcet, cost, table.messages.to_string()]);
    }
    add(tables);
    if let Some(SizedNetwork { total_rate, shares, delays, .. }) = network {
        let mut table = Table::new(&["NODE", "SHARE", "RATE", "BURST", "DELAY"]);
        let rate = |bps: u64| Rate::from_bps(bps).to_string();
        for share in shares {
            let weight = format!("{:.3}%", 100.0 * share.weight);
            let burst = format!("{}B", share.burst_bytes);
            table.row(vec![share.node.clone(), weight, rate(share.rate_bps), burst, time(share.delay)]);
        }
        table.row(vec!["all".to_owned(), "100%".to_owned(), rate(*total_rate), String::new(), String::new()]);
        add(table);
        let mut table = Table::new(&["FROM", "TO", "SENDER", "PORTS", "ONCE", "DELAY"]);
        for way in delays {
            let ports: Vec<String> =
                way.ports.iter().map(|port| format!("{} {}", port.port, time(port.delay))).collect();
            let once = way.once.map(time).unwrap_or_default();
            let (from, to) = (way.from.clone(), way.to.clone());
            table.row(vec![from, to, time(way.sender), ports.join(", "), once, time(way.delay)]);
        }
        add(table.without_empty_columns());
    }
    text
}

/// For people: the servers, where tasks run, and whether that is enough.
fn describe(sized: &SizedSystem, placed: &System, bound: &Bound, flows: &str, answer: Answer) -> String {
    let nothing = sized.components.is_empty() && bound.is_empty() && flows.is_empty();
    let with_these = if nothing { "" } else { " with these" };
    let mut text = format!("{}: {}{with_these}\n", placed.name, word(answer));
    let mut servers = Table::new(&["COMPONENT", "PERIOD", "BUDGET", "BANDWIDTH", "WORKLOAD", "SUPPLY", "COSTS"]);
    for component in &sized.components {
        let percent = |share: f64| format!("{:.3}%", 100.0 * share);
        servers.row(vec![
            component.component.clone(),
            time(component.period),
            time(component.budget),
            percent(component.bandwidth()),
            percent(component.workload_utilization),
            component.supply.to_owned(),
            if component.loss.is_zero() { String::new() } else { time(component.loss) },
        ]);
    }
    if !servers.is_empty() {
        text.push('\n');
        text.push_str(&servers.without_empty_columns().render_long(Rows::Most, "components", |_, _| 0));
    }
    let spelt = |cpus: &mut dyn Iterator<Item = u32>| cpus.map(|cpu| cpu.to_string()).collect::<Vec<_>>().join(",");
    let node = |node: NodeId| placed.nodes[node.index()].name.clone();
    let mut tasks = Table::new(&["TASK", "NODE", "CPUS"]);
    for task in bound.tasks.iter().map(|id| &placed.tasks[id.index()]) {
        let cpus = task.cpus.map(|cpus| spelt(&mut cpus.iter())).unwrap_or_default();
        tasks.row(vec![task.name.clone(), node(task.node), cpus]);
    }
    let mut servers = Table::new(&["SERVER", "NODE", "CPUS"]);
    for component in bound.components.iter().map(|id| &placed.components[id.index()]) {
        let cpus = spelt(&mut component.server_cpus.iter().copied());
        servers.row(vec![component.name.clone(), node(component.node), cpus]);
    }
    for (what, table) in [("tasks", tasks), ("servers", servers)].into_iter().filter(|(_, table)| !table.is_empty()) {
        text.push('\n');
        text.push_str(&table.render_long(Rows::Most, what, |_, _| 0));
    }
    text.push_str(flows);
    if nothing {
        text.push_str("\nThere is nothing to size: no component, and no task to bind to CPUs.\n");
    }
    text
}
