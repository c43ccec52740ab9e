use super::*;
use crate::{Bytes, Rate};

const COMMENTED: &str = include_str!("../../tests/files/design.toml");

fn comments(text: &str) -> Vec<String> {
    text.lines().filter_map(|line| line.find('#').map(|at| line[at..].to_owned())).collect()
}

#[test]
fn edits_change_their_values_and_nothing_else() {
    let mut document = Document::parse(COMMENTED, "design.toml").unwrap();
    assert_eq!(document.text(), COMMENTED);
    let edits = [
        Edit::TaskCpus { task: TaskId(0), cpus: Some(CpuSet::range(1, 2)) },
        Edit::TaskCpus { task: TaskId(1), cpus: Some(CpuSet::first(2)) },
        Edit::Component {
            component: ComponentId(0),
            period: Auto::Value(Span::from_ms(5)),
            budget: Auto::Value(Span::from_us(1500)),
        },
    ];
    document.apply(&edits).unwrap();
    let expected = COMMENTED
        .replace("cpus = [0]                     # affinity", "cpus = [1]                     # affinity")
        .replace("period = \"10ms\"                # or \"auto\"", "period = \"5ms\"                # or \"auto\"")
        .replace("budget = \"3ms\" ", "budget = \"1.5ms\" ")
        .replace("wcet = \"2ms\"\n", "wcet = \"2ms\"\ncpus = [0, 1]\n");
    assert_eq!(document.text(), expected);
    assert_eq!(comments(document.text()), comments(COMMENTED));
    assert_eq!(document.system().components[0].budget, Auto::Value(Span::from_us(1500)));
    document.apply(&[Edit::TaskCpus { task: TaskId(1), cpus: None }]).unwrap();
    assert_eq!(document.text(), expected.replace("cpus = [0, 1]\n", ""));
}

#[test]
fn flows_and_table_tasks_are_edited() {
    let mut document = Document::parse(COMMENTED, "design.toml").unwrap();
    let task = TableTask { period: Span::from_ms(7), wcet: Span::from_us(300), cost: Some(Span::from_us(20)) };
    let deadlines = vec![Span::from_ms(20); document.system().flows[0].hops().count()];
    let edits = [
        Edit::TableTask { node: NodeId(0), receives: true, task },
        Edit::HopDeadlines { flow: FlowId(0), deadlines: deadlines.clone() },
    ];
    document.apply(&edits).unwrap();
    assert_eq!(document.system().nodes[0].receive, Some(task));
    assert_eq!(document.system().flows[0].hop_deadlines, deadlines);
    assert_eq!(comments(document.text()), comments(COMMENTED));
}

#[test]
fn costs_are_edited_where_they_stand() {
    let (us, node) = (Span::from_us, NodeId(0));
    let edit = |values: &[(&'static str, Span)], comment: &[&str]| Edit::Costs {
        node,
        values: values.to_vec(),
        comment: comment.iter().map(|line| format!("{COSTS_COMMENT}{line}")).collect(),
    };
    let task = "[[task]]\nname = \"a\"\nperiod = \"1ms\"\nwcet = \"1us\"\n";
    let first = edit(&[("switch", us(3)), ("latency", us(90))], &["first", "more"]);
    let second = edit(&[("switch", us(4))], &["second"]);
    // A node of its own, an inline table, a table, no node at all, an inline node.
    let cases = [
        (
            format!("takt = 1\n[[node]]\nname = \"n\"\ncpus = 2 # two\n\n{task}"),
            format!(
                "takt = 1\n[[node]]\nname = \"n\"\ncpus = 2 # two\n# takt doctor: second\ncosts = \
                 {{ switch = \"4us\", latency = \"90us\" }}\n\n{task}"
            ),
        ),
        (
            format!(
                "takt = 1\n[[node]]\nname = \"n\"\n# ours\ncosts = {{ tick = \"1us\", switch = \"1us\" }} # \
                 all\n{task}"
            ),
            format!(
                "takt = 1\n[[node]]\nname = \"n\"\n# ours\n# takt doctor: second\ncosts = \
                 {{ tick = \"1us\", switch = \"4us\", latency = \"90us\" }} # all\n{task}"
            ),
        ),
        (
            format!("takt = 1\n[[node]]\nname = \"n\"\n# ours\n[node.costs]\ntick = \"1us\" # t\n{task}"),
            format!(
                "takt = 1\n[[node]]\nname = \"n\"\n# ours\n# takt doctor: second\n[node.costs]\ntick \
                 = \"1us\" # t\nswitch = \"4us\"\nlatency = \"90us\"\n{task}"
            ),
        ),
        (
            format!("takt = 1\n{task}"),
            format!(
                "takt = 1\n{task}\n[[node]]\nname = \"local\"\n# takt doctor: second\ncosts = \
                 {{ switch = \"4us\", latency = \"90us\" }}\n"
            ),
        ),
        (
            format!("takt = 1\nnode = [ {{ name = \"n\" }} ] # one\n{task}"),
            format!(
                "takt = 1\nnode = [ {{ name = \"n\", costs = {{ switch = \"4us\", latency = \"90us\" }} }} \
                 ] # one\n{task}"
            ),
        ),
    ];
    for (text, expected) in cases {
        let mut document = Document::parse(&text, "a.toml").unwrap();
        document.apply(std::slice::from_ref(&first)).unwrap();
        document.apply(std::slice::from_ref(&second)).unwrap();
        assert_eq!(document.text(), expected);
        let costs = document.system().nodes[0].costs.unwrap();
        assert_eq!((costs.switch, costs.latency), (us(4), us(90)));
        let whole = edit(&[("tick", Span::from_ms(5))], &[]);
        document.apply(&[whole]).unwrap_err();
        assert_eq!(document.text(), expected, "all time in ticks is refused, and nothing changes");
    }
}

#[test]
fn delays_are_edited_and_networks_added() {
    let mut document = Document::parse(COMMENTED, "design.toml").unwrap();
    let delay = (Span::ZERO, Span::from_us(1_234));
    document.apply(&[Edit::Delay { network: NetworkId(0), delay }]).unwrap();
    assert_eq!(document.system().networks[0].delay, Auto::Value(delay));
    assert_eq!(comments(document.text()), comments(COMMENTED));
    let mut network = Network::any(Span::ZERO, Span::from_ms(3));
    (network.from, network.to) = (Some(NodeId(1)), Some(NodeId(0)));
    let edit = Edit::AddNetwork { network: network.clone() };
    let before = document.text().to_owned();
    document.apply(std::slice::from_ref(&edit)).unwrap();
    let name = |node: usize| document.system().nodes[node].name.clone();
    let (from, to) = (name(1), name(0));
    let added = format!("\n[[network]]\nfrom = \"{from}\"\nto = \"{to}\"\ndelay = [\"0ns\", \"3ms\"]\n");
    assert_eq!(document.text(), format!("{before}{added}"));
    assert_eq!(document.system().networks[1], network);
    // A second one between them, and one to nowhere.
    document.apply(&[edit]).unwrap_err();
    network.to = Some(NodeId(9));
    document.apply(&[Edit::AddNetwork { network }]).unwrap_err();
    let text = "takt = 1\nnode = [ { name = \"a\" }, { name = \"b\" } ] # two\n";
    for text in [text.to_owned(), format!("{text}network = [ {{ from = \"a\" }} ]\n")] {
        let mut document = Document::parse(&text, "a.toml").unwrap();
        let mut network = Network::any(Span::ZERO, Span::from_ms(3));
        network.from = Some(NodeId(1));
        document.apply(&[Edit::AddNetwork { network: network.clone() }]).unwrap();
        assert_eq!(document.system().networks.last(), Some(&network));
        assert_eq!(comments(document.text()), comments(&text));
    }
}

#[test]
fn a_link_gets_its_token_bucket() {
    let bucket = Bucket { burst: Bytes::new(400), rate: Rate::from_bps(12_153_680) };
    let edit = |node: u32| Edit::Bucket { node: NodeId(node), bucket };
    let mut document = Document::parse(COMMENTED, "design.toml").unwrap();
    document.apply(&[edit(0)]).unwrap();
    assert_eq!(document.system().nodes[0].link.unwrap().bucket, Some(bucket));
    assert_eq!(comments(document.text()), comments(COMMENTED));
    let text = "takt = 1\n[[node]]\nname = \"a\"\n[node.link] # of the lab\nrate = \"1Gbit\"\n[[node]]\nname = \"b\"\n";
    let mut document = Document::parse(text, "a.toml").unwrap();
    document.apply(&[edit(0)]).unwrap();
    let with = "rate = \"1Gbit\"\nbucket = { burst = \"400B\", rate = \"12153680bit\" }\n";
    assert_eq!(document.text(), text.replace("rate = \"1Gbit\"\n", with));
    let error = document.apply(&[edit(1)]).unwrap_err();
    assert!(error.to_string().contains("node 2 has no link"), "{error}");
}

#[test]
fn a_removed_table_leaves_the_rest_unchanged() {
    let mut document = Document::parse(COMMENTED, "design.toml").unwrap();
    let (component, flow) = (ComponentId(0), FlowId(0));
    // It holds a task that names it, and others follow that task.
    for edit in [Edit::RemoveComponent { component }, Edit::RemoveTask { task: TaskId(0) }] {
        document.apply(&[edit]).unwrap_err();
        assert_eq!(document.text(), COMMENTED);
    }
    let tasks = [1, 0].map(|i| Edit::RemoveTask { task: TaskId(i) });
    let rest = [Edit::RemoveComponent { component }, Edit::RemoveFlow { flow }];
    document.apply(&[&tasks[..], &rest[..]].concat()).unwrap();
    let system = document.system();
    assert!(system.tasks.is_empty() && system.components.is_empty() && system.flows.is_empty());
    let head = COMMENTED.find("[[component]]").unwrap();
    assert_eq!(document.text()[..head], COMMENTED[..head]);
    document.apply(&[Edit::RemoveFlow { flow }]).unwrap_err();
}

#[test]
fn an_edit_that_would_break_the_file_is_refused_whole() {
    let mut document = Document::parse(COMMENTED, "design.toml").unwrap();
    let edits = [
        Edit::TaskCpus { task: TaskId(0), cpus: Some(CpuSet::range(7, 8)) },
        Edit::TaskCpus { task: TaskId(0), cpus: None },
        Edit::Component {
            component: ComponentId(0),
            period: Auto::Value(Span::from_ms(10)),
            budget: Auto::Value(Span::from_ms(12)),
        },
    ];
    assert_eq!(
        document.apply(&edits).unwrap_err().to_string(),
        "design.toml:43:10: budget 12ms exceeds period 10ms of component \"dom1\"; a budget is at most its period"
    );
    assert_eq!(document.text(), COMMENTED);
    let none = document.apply(&[Edit::TaskCpus { task: TaskId(9), cpus: None }]);
    assert_eq!(none.unwrap_err().to_string(), "design.toml: the file has no task 10");
}

#[test]
fn a_byte_order_mark_survives() {
    let text = "\u{feff}takt = 1\n[[task]]\nname = \"a\"\nperiod = \"1ms\"\nwcet = \"1us\"\n";
    let mut document = Document::parse(text, "a.toml").unwrap();
    document.apply(&[Edit::TaskCpus { task: TaskId(0), cpus: Some(CpuSet::first(1)) }]).unwrap();
    assert_eq!(document.text(), format!("{text}cpus = [0]\n"));
}

#[test]
fn line_ends_and_inline_tables_survive() {
    let text = "# head\r\ntakt = 1\r\ntask = [ { name = \"a\", period = \"1ms\", wcet = \"1us\" } ] # one\r\n# end";
    let mut document = Document::parse(text, "a.toml").unwrap();
    assert_eq!(document.text(), text);
    document.apply(&[Edit::TaskCpus { task: TaskId(0), cpus: Some(CpuSet::first(1)) }]).unwrap();
    assert_eq!(document.text(), text.replace("\"1us\" }", "\"1us\", cpus = [0] }"));
}
