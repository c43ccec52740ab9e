//! Errors of the libraries as statuses.

use takt_dispatch::StartError;
use takt_dispatch::event::{ConnectError, EventError, NodeError};
use takt_linux::datagram::BindError;
use takt_run::RunError;
use takt_run::node::NodeError as FlowNodeError;

use crate::status::{Wrong, takt_status};

/// The status and text of a refused start.
pub(crate) fn refused(error: &StartError) -> Wrong {
    let status = match error {
        StartError::Privilege { .. } => takt_status::Privilege,
        StartError::Refused { .. } | StartError::Spawn { .. } => takt_status::Refused,
        _ => takt_status::Invalid,
    };
    Wrong::new(status, error)
}

/// Why a channel was not connected.
pub(crate) fn not_connected(error: &ConnectError) -> Wrong {
    let status = match error {
        ConnectError::Thread(cause) => return refused(cause),
        ConnectError::Node(NodeError::Bind { cause, .. }) => {
            let denied = match cause {
                BindError::Address { cause, .. } | BindError::Priority { cause, .. } => {
                    cause.kind() == std::io::ErrorKind::PermissionDenied
                }
                _ => false,
            };
            if denied { takt_status::Privilege } else { takt_status::Refused }
        }
        _ => takt_status::Invalid,
    };
    Wrong::new(status, error)
}

/// The status of a push whose event the channel did not take.
pub(crate) fn not_taken(error: EventError) -> takt_status {
    match error {
        EventError::NotConnected => takt_status::Stopped,
        EventError::TooLong { .. } | EventError::Reserved(_) => takt_status::Invalid,
    }
}

/// Why a node with flows does not run, or did not end well.
pub(crate) fn not_run(error: &RunError) -> Wrong {
    let status = match error {
        RunError::Privilege { .. } | RunError::Node(FlowNodeError::Privilege(_)) => takt_status::Privilege,
        RunError::Plan(_) | RunError::Policy(_) | RunError::Levels { .. } | RunError::Overload { .. } => {
            takt_status::Unplannable
        }
        RunError::Stuck { .. } => takt_status::Trouble,
        RunError::Panicked { .. } => takt_status::Panic,
        error if error.exit_code() == 2 => takt_status::Invalid,
        _ => takt_status::Refused,
    };
    let text = match error {
        RunError::Privilege { missing, .. } => format!(
            "{missing}; grant it: sudo setcap cap_sys_nice,cap_ipc_lock+ep PROGRAM, or run without a guarantee: \
             best_effort"
        ),
        RunError::Overload { .. } => error.to_string().replace("--force", "force"),
        RunError::Node(error) => of_flow_node(error),
        error => error.to_string(),
    };
    Wrong::new(status, text)
}

/// The text for a program in C, whose options have other names than those of the command.
fn of_flow_node(error: &FlowNodeError) -> String {
    match error {
        FlowNodeError::NoAddress { node } => {
            format!("messages come to or leave node \"{node}\"; say where it receives: listen")
        }
        FlowNodeError::NoKey => "messages are authenticated; give all nodes the same key: key_file, made with \
             (umask 077; openssl rand -hex 32 > FILE)"
            .to_owned(),
        FlowNodeError::NoPeer { peer, flow } => {
            format!("flow \"{flow}\" goes on to node \"{peer}\"; say in peers where it receives")
        }
        FlowNodeError::UnknownPeer { peer } => {
            format!("the peers name node \"{peer}\", which the system does not have; leave it out")
        }
        FlowNodeError::NoClock { peer } => format!(
            "node \"{peer}\" sends to this node, and clocks_port asks how its clock differs; say in peers where it \
             receives"
        ),
        FlowNodeError::Started | FlowNodeError::Booted | FlowNodeError::Over => {
            let text = error.to_string();
            let (cause, _) = text.split_once(": --start-at").unwrap_or((&text, ""));
            format!("{cause}: start_at_ns")
        }
        error => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_of_a_node_names_an_option_of_the_command() {
        let name = || "n".to_owned();
        let errors = [
            FlowNodeError::NoAddress { node: name() },
            FlowNodeError::NoKey,
            FlowNodeError::NoPeer { peer: name(), flow: name() },
            FlowNodeError::UnknownPeer { peer: name() },
            FlowNodeError::NoClock { peer: name() },
            FlowNodeError::Started,
            FlowNodeError::Booted,
            FlowNodeError::Over,
        ];
        for error in errors {
            let wrong = not_run(&RunError::Node(error));
            assert!(!wrong.text.contains("--") && wrong.status == takt_status::Invalid, "{}", wrong.text);
        }
    }
}
