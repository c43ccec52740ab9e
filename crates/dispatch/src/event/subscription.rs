//! A subscription as a program uses it.

use std::sync::{Arc, Weak};

use takt_model::Time;

use super::delivery::Delivery;
use super::error::SubscribeError;
use super::inbox::{Counts, Inbox, can_keep};
use super::quality::Quality;
use super::state::{Change, Inner};
use crate::{Dispatcher, Job, StartError};

impl Dispatcher {
    /// Sets the handler of the subscribed operation. It is called with the events of each job, and
    /// runs as one set by [`Dispatcher::on`] does.
    ///
    /// # Errors
    /// The plan has no such operation, or the operation has a handler already.
    pub fn on_events(
        self,
        subscription: &Subscription,
        handler: impl FnMut(&Delivery<'_>, &Job<'_>) + Send + 'static,
    ) -> Result<Dispatcher, StartError> {
        self.on(subscription.operation(), subscription.handler(handler))
    }
}

/// An operation's subscription. Clones share it. Dropping it does not end it;
/// [`Channel::unsubscribe`](super::Channel::unsubscribe) does.
#[derive(Clone)]
pub struct Subscription {
    pub(super) inbox: Arc<Inbox>,
    pub(super) channel: Weak<Inner>,
}

impl Subscription {
    /// Makes a handler for [`Dispatcher::on`](crate::Dispatcher::on) that calls yours with the
    /// events of each job. If you give it to another operation, yours is never called, and
    /// [`Subscription::misplaced`] counts that operation's jobs.
    /// [`Dispatcher::on_events`](crate::Dispatcher::on_events) avoids this error.
    pub fn handler(
        &self,
        mut handler: impl FnMut(&Delivery<'_>, &Job<'_>) + Send + 'static,
    ) -> impl FnMut(&Job<'_>) + Send + 'static {
        let inbox = self.inbox.clone();
        inbox.will_be_handled();
        move |job| inbox.handle(job, &mut handler)
    }

    /// The operation's name.
    #[must_use]
    pub fn operation(&self) -> &str {
        &self.inbox.operation
    }

    /// The outcomes of the complete sets.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.inbox.counts()
    }

    /// Jobs of other operations that ran this subscription's handler. The program has a defect: it
    /// attached the handler to the wrong operation. These jobs got no events. The events for the
    /// right operation's jobs are omitted ([`Counts::omitted`]).
    #[must_use]
    pub fn misplaced(&self) -> u64 {
        self.inbox.misplaced()
    }

    /// Ignores events until [`Subscription::resume`], and forgets partial groups. Complete sets
    /// stay.
    pub fn suspend(&self) {
        self.inbox.suspend();
        self.notify(Change::Suspended);
    }

    /// Waits again, from now on.
    pub fn resume(&self) {
        self.inbox.resume(|dispatching| self.now_of(dispatching));
        self.notify(Change::Resumed);
    }

    /// Changes the quality of service. Sets that wait for the handler keep the former quality. To
    /// change level and deadline, switch the dispatcher to another mode.
    ///
    /// # Errors
    /// The filter is invalid, or waits for more events than there is room for; or the backlog is
    /// too small for the latest events.
    pub fn reconnect(&self, quality: impl Into<Quality>) -> Result<(), SubscribeError> {
        let (inbox, quality) = (&self.inbox, quality.into());
        checked(&inbox.operation, &quality, inbox.backlog(), inbox.events_max)?;
        inbox.reconnect(&quality, |dispatching| self.now_of(dispatching));
        self.notify(Change::Reconnected);
        Ok(())
    }

    /// The time by the clock of a dispatcher, if the channel is connected to it.
    fn now_of(&self, dispatching: u64) -> Option<Time> {
        self.channel.upgrade()?.now_of(dispatching)
    }

    fn notify(&self, change: Change) {
        if let Some(channel) = self.channel.upgrade() {
            channel.changed(&self.inbox.operation, change);
        }
    }
}

/// Checks a quality of service for an operation with this backlog.
pub(super) fn checked(
    operation: &str,
    quality: &Quality,
    backlog: u32,
    events_max: usize,
) -> Result<(), SubscribeError> {
    let wanted = quality.filter.leaves();
    if let Some(wrong) = quality.filter.wrong() {
        return Err(SubscribeError::Filter { operation: operation.to_owned(), wrong });
    }
    if wanted > events_max {
        return Err(SubscribeError::Room { operation: operation.to_owned(), wanted, there: events_max });
    }
    can_keep(operation, quality.keep, backlog)
}
