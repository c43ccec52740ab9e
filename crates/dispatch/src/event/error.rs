//! Errors of the channel.

use thiserror::Error;

use super::filter::LEAVES_MAX;
use super::limits::{PAYLOAD_MAX, ROOM_BYTES_MAX, SLOTS_MAX};
use super::node::NodeError;
use crate::StartError;

/// Why a channel cannot have room for its [`Options`](super::Options).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum OptionsError {
    /// Payloads above the limit.
    #[error("events of this channel have up to {0} bytes; {PAYLOAD_MAX} are the most (Options::payload_max)")]
    Payload(usize),
    /// Groups above the limit.
    #[error("filters of this channel wait for up to {0} events; {LEAVES_MAX} are the most (Options::events_max)")]
    Events(usize),
    /// The product of the options is above the limit.
    #[error(
        "a history of {history} events, and groups of {events_max} for {SLOTS_MAX} jobs, of {payload_max} \
         bytes each take more than {ROOM_BYTES_MAX} bytes (Options::history, events_max, payload_max)"
    )]
    Room {
        /// The longest payload in bytes.
        payload_max: usize,
        /// The most events of a group.
        events_max: usize,
        /// The length of the history.
        history: usize,
    },
}

/// Why an operation cannot subscribe, or not with this quality of service.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum SubscribeError {
    /// The plan has no operation of that name.
    #[error("the plan has no operation \"{0}\" to subscribe")]
    Unknown(String),
    /// Only operations that the program pushes can consume events.
    #[error(
        "operation \"{0}\" is released by a timer or by the end of others; a consumer must be sporadic, or \
         released by events (Plan::released_by_events)"
    )]
    NotPushed(String),
    /// An operation has at most one subscription.
    #[error("operation \"{0}\" has subscribed already; reconnect its subscription to change what it waits for")]
    Twice(String),
    /// The filter is invalid.
    #[error("the filter of operation \"{operation}\": {wrong}")]
    Filter {
        /// The operation's name.
        operation: String,
        /// The fault of the filter.
        wrong: String,
    },
    /// A new filter waits for more events than the subscription has room for.
    #[error(
        "the filter of operation \"{operation}\" waits for {wanted} events, and there is room for {there}: ask \
         for more at the start (Options::events_max)"
    )]
    Room {
        /// The operation's name.
        operation: String,
        /// The number of events that the filter waits for.
        wanted: usize,
        /// The number of events that the subscription holds.
        there: usize,
    },
    /// More jobs may wait than a subscription has room for.
    #[error("operation \"{operation}\" has a backlog of {backlog}; a consumer has at most {most}")]
    Backlog {
        /// The operation's name.
        operation: String,
        /// Its backlog.
        backlog: u32,
        /// The largest backlog of a consumer.
        most: u32,
    },
    /// A consumer of the latest events needs a backlog of two: one running job and one waiting job.
    #[error(
        "operation \"{0}\" has a backlog of 1; a consumer that keeps the latest events (Keep::Latest) has 2 at least"
    )]
    Alone(String),
    /// The channel's options are invalid.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// The channel is connected.
    #[error("the channel is connected: operations subscribe and unsubscribe while it is not")]
    Connected,
    /// The subscription belongs to another channel, or has ended.
    #[error("the subscription of operation \"{0}\" is none of this channel's, or not any more")]
    Gone(String),
}

/// Why a channel was not connected to a dispatcher.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// The channel is connected already.
    #[error("the channel is connected already")]
    Twice,
    /// The dispatcher's plan differs from the plan used to subscribe, and lacks an operation.
    #[error("the dispatcher has no operation \"{0}\", which has subscribed")]
    Unknown(String),
    /// The dispatcher's plan differs, and an operation cannot consume events under it.
    #[error(
        "{0}, in the dispatcher's plan; it subscribed with another plan: subscribe with the plan that is dispatched"
    )]
    Plan(#[source] SubscribeError),
    /// The dispatcher's plan differs, and gives an operation a larger backlog than its subscription
    /// has room for.
    #[error(
        "operation \"{operation}\" has a backlog of {backlog} in the dispatcher's plan, and subscribed with a plan \
         that gives {room}: subscribe with the plan that is dispatched"
    )]
    Backlog {
        /// The operation's name.
        operation: String,
        /// Its backlog in the dispatcher's plan.
        backlog: u32,
        /// The backlog that the subscription has room for.
        room: u32,
    },
    /// A subscribed operation has no handler for events.
    #[error(
        "operation \"{0}\" has subscribed, and no handler was made of its subscription: give the dispatcher \
         Subscription::handler(..) for it"
    )]
    NoHandler(String),
    /// The channel's options are invalid.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// The timeout thread or a thread of a level between nodes could not start.
    #[error(transparent)]
    Thread(#[from] StartError),
    /// The node is invalid.
    #[error(transparent)]
    Node(#[from] NodeError),
}

/// Why the channel refused an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum EventError {
    /// The payload is longer than events can be.
    #[error("the payload has {length} bytes, and events of this channel have {most} at most (Options::payload_max)")]
    TooLong {
        /// The payload's length in bytes.
        length: usize,
        /// The channel's limit.
        most: usize,
    },
    /// The type is reserved for the channel itself.
    #[error("events of type {0} are the channel's own (TIMEOUT, PEER_LOST, PEER_FOUND): choose a smaller one")]
    Reserved(u32),
    /// The channel is not connected.
    #[error("the channel is not connected to a dispatcher, or not any more")]
    NotConnected,
}
