//! Why a channel refused something.

use thiserror::Error;

use super::channel::{PAYLOAD_MAX, ROOM_BYTES_MAX};
use super::filter::LEAVES_MAX;
use super::inbox::SLOTS_MAX;
use super::node::NodeError;
use crate::StartError;

/// Why a channel cannot have room for its [`Options`](super::Options).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum OptionsError {
    /// Longer payloads than there can be.
    #[error("events of this channel have up to {0} bytes; {PAYLOAD_MAX} are the most (Options::payload_max)")]
    Payload(usize),
    /// Larger groups than there can be.
    #[error("filters of this channel wait for up to {0} events; {LEAVES_MAX} are the most (Options::events_max)")]
    Events(usize),
    /// Too much together.
    #[error(
        "a history of {history} events, and groups of {events_max} for {SLOTS_MAX} jobs, of {payload_max} bytes each take more than {ROOM_BYTES_MAX} bytes (Options::history, events_max, payload_max)"
    )]
    Room {
        /// The longest payload.
        payload_max: usize,
        /// The most events of a group.
        events_max: usize,
        /// How many are remembered.
        history: usize,
    },
}

/// Why an operation cannot subscribe, or not to that.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum SubscribeError {
    /// The plan has no operation of that name.
    #[error("the plan has no operation \"{0}\" to subscribe")]
    Unknown(String),
    /// Only what the program pushes can consume events.
    #[error(
        "operation \"{0}\" is released by a timer or by the end of others; a consumer is to be sporadic, or released by events (Plan::released_by_events)"
    )]
    NotPushed(String),
    /// An operation consumes by one subscription.
    #[error("operation \"{0}\" has subscribed already; reconnect its subscription to change what it waits for")]
    Twice(String),
    /// The filter makes no sense.
    #[error("the filter of operation \"{operation}\": {wrong}")]
    Filter {
        /// Whose.
        operation: String,
        /// What is wrong.
        wrong: String,
    },
    /// A new filter that waits for more events than there is room for.
    #[error(
        "the filter of operation \"{operation}\" waits for {wanted} events, and there is room for {there}: ask for more at the start (Options::events_max)"
    )]
    Room {
        /// Whose.
        operation: String,
        /// How many it waits for.
        wanted: usize,
        /// How many there can be.
        there: usize,
    },
    /// More jobs may wait than a subscription keeps events for.
    #[error("operation \"{operation}\" has a backlog of {backlog}; a consumer has at most {most}")]
    Backlog {
        /// Whose.
        operation: String,
        /// What it has.
        backlog: u32,
        /// What it may have.
        most: u32,
    },
    /// It is to keep the latest events, and has no room for a job that waits beside one that runs.
    #[error(
        "operation \"{0}\" has a backlog of 1; a consumer that keeps the latest events (Keep::Latest) has 2 at least"
    )]
    Alone(String),
    /// The channel cannot have so much room.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// The channel delivers already.
    #[error("the channel is connected: operations subscribe and unsubscribe while it is not")]
    Connected,
    /// Another channel's, or one that was given up.
    #[error("the subscription of operation \"{0}\" is none of this channel's, or not any more")]
    Gone(String),
}

/// Why a channel was not connected to a dispatcher.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// It has been before.
    #[error("the channel is connected already")]
    Twice,
    /// The dispatcher has another plan than the operations subscribed with, which lacks one of them.
    #[error("the dispatcher has no operation \"{0}\", which has subscribed")]
    Unknown(String),
    /// The same, and one of them is an operation there that cannot consume, or not so.
    #[error(
        "{0}, in the dispatcher's plan; it subscribed with another one: subscribe with the plan that is dispatched"
    )]
    Plan(#[source] SubscribeError),
    /// The same, and more jobs may wait there than the subscription has room for.
    #[error(
        "operation \"{operation}\" has a backlog of {backlog} in the dispatcher's plan, and subscribed with one that gives it {room}: subscribe with the plan that is dispatched"
    )]
    Backlog {
        /// Whose.
        operation: String,
        /// What it has there.
        backlog: u32,
        /// What it had.
        room: u32,
    },
    /// An operation whose jobs would have nobody to give their events to.
    #[error(
        "operation \"{0}\" has subscribed, and no handler was made of its subscription: give the dispatcher Subscription::handler(..) for it"
    )]
    NoHandler(String),
    /// The channel cannot have so much room.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// A thread could not be had: that of timeouts, or one of a level between nodes.
    #[error(transparent)]
    Thread(#[from] StartError),
    /// It cannot be that node.
    #[error(transparent)]
    Node(#[from] NodeError),
}

/// Why an event was not taken by the channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum EventError {
    /// The payload is longer than events can be.
    #[error("the payload has {length} bytes, and events of this channel have {most} at most (Options::payload_max)")]
    TooLong {
        /// How long it is.
        length: usize,
        /// How long it may be.
        most: usize,
    },
    /// The type is one of the channel's own.
    #[error("events of type {0} are the channel's own (TIMEOUT, PEER_LOST, PEER_FOUND): choose a smaller one")]
    Reserved(u32),
    /// No dispatcher is there to deliver.
    #[error("the channel is not connected to a dispatcher, or not any more")]
    NotConnected,
}
