//! Errors of the libraries as statuses.

use takt_dispatch::StartError;
use takt_dispatch::event::{ConnectError, EventError, NodeError};
use takt_linux::datagram::BindError;

use crate::status::{CallError, takt_status};

/// The status and text of a refused start.
pub(crate) fn refused(error: &StartError) -> CallError {
    let status = match error {
        StartError::Privilege { .. } => takt_status::Privilege,
        StartError::Refused { .. } | StartError::Spawn { .. } => takt_status::Refused,
        _ => takt_status::Invalid,
    };
    CallError::new(status, error)
}

/// Why a channel was not connected.
pub(crate) fn not_connected(error: &ConnectError) -> CallError {
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
    CallError::new(status, error)
}

/// The status of a push whose event the channel did not take.
pub(crate) fn not_taken(error: EventError) -> takt_status {
    match error {
        EventError::NotConnected => takt_status::Stopped,
        EventError::TooLong { .. } | EventError::Reserved(_) => takt_status::Invalid,
    }
}
