//! The systems of [HEDF IV-C], as texts of System files.

use takt_model::{System, file};

use crate::failure::Failure;

/// Nodes of the paper's cluster.
pub(super) const NODES: usize = 8;
/// The delays in ms between two nodes of a local cluster. The paper says only that they are small.
const LOCAL: &str = r#"["0.07ms", "0.17ms"]"#;
/// The delays that the paper measured after it had added 10 +- 5 ms.
const ADDED: &str = r#"["5.25ms", "15.89ms"]"#;

pub(super) struct Setup {
    pub(super) file: &'static str,
    pub(super) text: String,
    /// Its hops that receive: the row's name, and k in the paper by Eq. 5 and as observed there.
    pub(super) hops: Vec<(&'static str, Option<f64>, Option<f64>)>,
}

pub(super) fn parse(text: &str, name: &str) -> Result<System, Failure> {
    file::parse(text, name).map_err(|errors| Failure::trouble(&errors))
}

/// The table tasks of nodes in the three set-ups.
const SEND: &str = "send = { period = \"5ms\", wcet = \"200us\" }\n";
const RECEIVE: &str = "receive = { period = \"10ms\", wcet = \"200us\" }\n";

fn node(name: &str, tables: &str) -> String {
    format!("[[node]]\nname = \"{name}\"\n{tables}\n")
}

impl Setup {
    /// The same on all nodes of the cluster. Nodes without a part in the flow have the usual table tasks.
    pub(super) fn on_all_nodes(&self) -> String {
        let names = (0..NODES).map(|number| format!("n{number}"));
        let further = names.filter(|name| !self.text.contains(&format!("name = \"{name}\"")));
        let nodes: String = further.map(|name| node(&name, &[RECEIVE, SEND].concat())).collect();
        format!("{}{nodes}", self.text)
    }
}

/// The three set-ups in the order of the paper.
///
/// The paper does not state the sending task's WCET. Its node 0 needs 93.3 % without it. Clocks are
/// not synchronised there, so every clock drifts here, and the phases of all table tasks come by.
pub(super) fn setups() -> [Setup; 3] {
    let local = "[[task]]\nname = \"local\"\nnode = \"n0\"\nperiod = \"60ms\"\nwcet = \"50ms\"\n\n";
    let flow = |path: &str| {
        format!(
            "[[flow]]\nname = \"put\"\npath = {path}\nperiod = \"10ms\"\nsend-gap = \"5ms\"\nwcet = \"1ms\"\n\
             deadline = \"100ms\"\nsize = \"400B\"\n\n"
        )
    };
    let network = |from: &str, delay: &str| format!("[[network]]\nfrom = \"{from}\"\ndelay = {delay}\n\n");
    let system = |name: &str, parts: &[&str]| {
        format!("takt = 1\nname = \"{name}\"\nclock = {{ drift-ppm = 50 }}\n\n{}", parts.concat())
    };
    let (n0, n1) = (node("n0", SEND), node("n1", RECEIVE));
    let [n3, n4] = ["n3", "n4"].map(|name| node(name, &[RECEIVE, SEND].concat()));
    let near = flow(r#"["n0", "n1"]"#);
    [
        Setup {
            file: "one-hop.toml",
            text: system("one-hop", &[&n0, &n1, local, &near, &network("n0", LOCAL)]),
            hops: vec![("node 0 to 1, small delays", Some(3.0), Some(3.0))],
        },
        Setup {
            file: "one-hop-delayed.toml",
            text: system("one-hop-delayed", &[&n0, &n1, local, &near, &network("n0", ADDED)]),
            hops: vec![("node 0 to 1, delays of 5.25 to 15.89 ms", Some(5.0), Some(4.0))],
        },
        Setup {
            file: "two-hops-delayed.toml",
            text: system(
                "two-hops-delayed",
                &[&n0, &n3, &n4, local, &flow(r#"["n0", "n3", "n4"]"#), &network("n0", ADDED), &network("n3", LOCAL)],
            ),
            hops: vec![
                ("nodes 0, 3, 4: at node 3, same delays", None, Some(4.0)),
                ("nodes 0, 3, 4: at node 4, small delays", None, Some(4.0)),
            ],
        },
    ]
}

/// Flows from each node of the open question.
pub(super) const FLOWS: usize = 4;

/// The set-up of the paper's open question: four flows from each of eight nodes over two more,
/// every 40 ms.
///
/// The paper does not state what a message costs. Here a receiving job of 1 ms takes five. With
/// clocks that drift, the gap of a flow must be below its period.
pub(super) fn busy(name: &str, cost: &str) -> String {
    let mut text = format!("takt = 1\nname = \"{name}\"\nclock = {{ drift-ppm = 50 }}\n\n");
    for node in 0..NODES {
        text.push_str(&format!(
            "[[node]]\nname = \"n{node}\"\nreceive = {{ period = \"10ms\", wcet = \"1ms\", cost = \"{cost}\" }}\n\
             send = {{ period = \"5ms\", wcet = \"1ms\", cost = \"{cost}\" }}\n\n"
        ));
    }
    for node in 0..NODES {
        for flow in 0..FLOWS {
            // All go over the next node, which gets four messages at once.
            let (second, third) = ((node + 1) % NODES, (node + 2 + flow) % NODES);
            text.push_str(&format!(
                "[[flow]]\nname = \"put-{node}-{}\"\npath = [\"n{node}\", \"n{second}\", \"n{third}\"]\n\
                 period = \"40ms\"\nsend-gap = \"20ms\"\nwcet = \"1ms\"\ndeadline = \"120ms\"\nsize = \"400B\"\n\n",
                flow + 1
            ));
        }
    }
    text.push_str(&format!("[[network]]\ndelay = {LOCAL}\n"));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_ups_are_system_files() {
        for setup in setups() {
            let system = parse(&setup.text, setup.file).map_err(|failure| failure.message).unwrap();
            assert_eq!(system.flows[0].hops().count(), setup.hops.len() + 1);
        }
        let system = parse(&busy("busy", "200us"), "busy.toml").map_err(|failure| failure.message).unwrap();
        // Every node is the second or the third of eight flows.
        let visits = |node: usize| {
            system.flows.iter().flat_map(|flow| flow.hops().skip(1)).filter(|hop| hop.index() == node).count()
        };
        assert!((0..NODES).all(|node| visits(node) == 8));
    }
}
