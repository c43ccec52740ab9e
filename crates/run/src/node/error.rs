//! Why a node with flows cannot run.

use std::net::SocketAddr;

use takt_linux::datagram::BindError;
use thiserror::Error;

/// Why a node with flows cannot run here.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum NodeError {
    /// No such node.
    #[error("the system has no such node")]
    NoNode,
    /// No flows.
    #[error("no flow visits node \"{node}\", and it has no receiving or sending task; choose another with --node")]
    NoFlows {
        /// The node.
        node: String,
    },
    /// A node that learns of messages in another way.
    #[error(
        "node \"{node}\" cannot be run: only arrivals = \"table\" exists live; change the key, or simulate the system"
    )]
    Arrivals {
        /// The node.
        node: String,
    },
    /// A hop without its table task.
    #[error("node \"{node}\" has no {task} task, so no message of a flow can pass; write {task} = {{ period, wcet }}")]
    NoTable {
        /// The node.
        node: String,
        /// The missing task.
        task: &'static str,
    },
    /// No address to receive at.
    #[error("messages come to or leave node \"{node}\"; say where it receives: --listen ADDRESS:PORT")]
    NoAddress {
        /// The node.
        node: String,
    },
    /// No key.
    #[error(
        "messages are authenticated; give all nodes the same key: --key FILE, made with \
         (umask 077; openssl rand -hex 32 > FILE)"
    )]
    NoKey,
    /// The address of a peer is missing.
    #[error("flow \"{flow}\" goes on to node \"{peer}\"; say where it receives: --peer {peer}=ADDRESS:PORT")]
    NoPeer {
        /// The other node.
        peer: String,
        /// The flow.
        flow: String,
    },
    /// A peer that is no node.
    #[error("--peer {peer}=..: the system has no node \"{peer}\"")]
    UnknownPeer {
        /// The name.
        peer: String,
    },
    /// IPv4 and IPv6.
    #[error(
        "peer {peer} cannot be reached from {listen}: one is IPv4, the other IPv6; listen at an address of its kind"
    )]
    Family {
        /// The address of this node.
        listen: SocketAddr,
        /// That of the peer.
        peer: SocketAddr,
    },
    /// Messages that no datagram holds.
    #[error("messages of flow \"{flow}\" are longer than {most} bytes, the most that a datagram holds; lower its size")]
    Size {
        /// The flow.
        flow: String,
        /// The most.
        most: u64,
    },
    /// An address where it cannot listen.
    #[error("{0}")]
    Listen(String),
    /// The socket.
    #[error("{0}")]
    Socket(String),
    /// The socket needs a privilege.
    #[error("{0}")]
    Privilege(String),
    /// No number to tell this process's messages from those of others.
    #[error("the kernel gives no random numbers, so messages cannot be encrypted; allow the system call getrandom")]
    Random,
    /// Clocks are to be measured, and the peer is not known.
    #[error(
        "node \"{peer}\" sends to this node, and --clocks asks how its clock differs; say where it receives: \
         --peer {peer}=ADDRESS:PORT"
    )]
    NoClock {
        /// The other node.
        peer: String,
    },
    /// The start has passed, and the node has servers, whose budgets count from it.
    #[error(
        "the common start of the nodes has passed, and a node with components cannot come to a run that has begun; \
         start all nodes earlier, or with a later one: --start-at $(date -d '+10 sec' +%s)"
    )]
    Started,
    /// The machine was started after the common start.
    #[error(
        "this machine started after the common start of the nodes, so its clock has no such time; start all nodes \
         with a later one: --start-at $(date -d '+10 sec' +%s)"
    )]
    Booted,
    /// The whole run has passed.
    #[error(
        "the run of the nodes is over: its common start and its duration have passed; start all nodes with a \
         later one: --start-at $(date -d '+10 sec' +%s)"
    )]
    Over,
}

impl NodeError {
    /// Whether the request is at fault, not the machine.
    pub(crate) fn is_input(&self) -> bool {
        !matches!(
            self,
            NodeError::Arrivals { .. }
                | NodeError::Size { .. }
                | NodeError::Socket(_)
                | NodeError::Privilege(_)
                | NodeError::Random
        )
    }
}

impl From<BindError> for NodeError {
    fn from(error: BindError) -> NodeError {
        match error {
            _ if error.is_privilege() => NodeError::Privilege(error.to_string()),
            BindError::Address { .. } => NodeError::Listen(error.to_string()),
            other => NodeError::Socket(other.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use takt_linux::datagram::Datagrams;
    use takt_model::Span;

    use super::*;

    #[test]
    fn an_address_of_another_machine_is_a_wrong_request() {
        let elsewhere = "203.0.113.1:7000".parse().unwrap();
        let error = NodeError::from(Datagrams::bind(elsewhere, 0, 1, Span::from_ms(1)).err().unwrap());
        assert!(error.is_input() && error.to_string().contains("give an address of this machine"), "{error}");
    }
}
