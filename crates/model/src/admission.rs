//! The messages of `takt admit --live`: bytes of a request, and of its answer.
//!
//! Each message is one packet of at most [`MESSAGE_MAX`] bytes. Numbers are little-endian. Texts are UTF-8 and fill the
//! rest of the message. A message of another version, or with bytes that mean nothing, is none.
//!
//! | message | bytes |
//! |---|---|
//! | request | version, kind, and by kind: nothing; text; name; rule, period, budget, name |
//! | answer | version, status, instant, start of the new terms, text |
//!
//! A rule, period or budget of 0 stays as it is.

use crate::{ServerRule, Span, Time};

/// The version of these messages.
pub const VERSION: u8 = 1;
/// The most bytes of a message.
pub const MESSAGE_MAX: usize = 64 << 10;
/// The bytes of an answer before its text.
const ANSWER_HEAD: usize = 18;

/// A request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// The running system, as a file.
    Show,
    /// The components and tasks of this text join. The text is the end of a system file.
    Add(String),
    /// The component of this name leaves.
    Remove(String),
    /// The server of a component changes.
    Change {
        /// Its component.
        component: String,
        /// The rule; `None`: as before.
        rule: Option<ServerRule>,
        /// The period, more than 0.
        period: Option<Span>,
        /// The budget, more than 0.
        budget: Option<Span>,
    },
}

/// An answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// An exit status: 0 granted, 1 refused, 2 a bad request, 3 not possible, 4 a failure.
    pub status: u8,
    /// The instant of the change.
    pub at: Time,
    /// From when on the server has its new terms; `None` if they are still to come.
    pub since: Option<Time>,
    /// Why; or the system.
    pub text: String,
}

/// The byte of each kind of request.
mod kind {
    pub(super) const SHOW: u8 = 1;
    pub(super) const ADD: u8 = 2;
    pub(super) const REMOVE: u8 = 3;
    pub(super) const CHANGE: u8 = 4;
}

impl Request {
    /// The request of these bytes.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Request> {
        let ([VERSION, kind], rest) = bytes.split_first_chunk::<2>()? else { return None };
        if bytes.len() > MESSAGE_MAX {
            return None;
        }
        match *kind {
            kind::SHOW => rest.is_empty().then_some(Request::Show),
            kind::ADD => Some(Request::Add(text(rest)?)),
            kind::REMOVE => Some(Request::Remove(text(rest)?)),
            kind::CHANGE => {
                let ([rule], rest) = rest.split_first_chunk::<1>()?;
                let (period, rest) = rest.split_first_chunk::<8>()?;
                let (budget, rest) = rest.split_first_chunk::<8>()?;
                let rule = match rule.checked_sub(1) {
                    None => None,
                    Some(at) => Some(*ServerRule::ALL.get(usize::from(at))?),
                };
                let span = |bytes: &[u8; 8]| Some(Span::from_ns(u64::from_le_bytes(*bytes))).filter(|of| !of.is_zero());
                let component = text(rest)?;
                Some(Request::Change { component, rule, period: span(period), budget: span(budget) })
            }
            _ => None,
        }
    }

    /// Its bytes. `None` if they are too many, or if a period or budget is 0, which would mean another request.
    #[must_use]
    pub fn write(&self) -> Option<Vec<u8>> {
        let mut bytes = vec![VERSION];
        match self {
            Request::Show => bytes.push(kind::SHOW),
            Request::Add(text) => {
                bytes.push(kind::ADD);
                bytes.extend(text.as_bytes());
            }
            Request::Remove(name) => {
                bytes.push(kind::REMOVE);
                bytes.extend(name.as_bytes());
            }
            Request::Change { component, rule, period, budget } => {
                bytes.push(kind::CHANGE);
                let rule = rule.and_then(|rule| ServerRule::ALL.iter().position(|other| *other == rule));
                bytes.push(rule.map_or(0, |at| at as u8 + 1));
                for span in [period, budget] {
                    if span.is_some_and(Span::is_zero) {
                        return None;
                    }
                    bytes.extend(span.unwrap_or(Span::ZERO).as_ns().to_le_bytes());
                }
                bytes.extend(component.as_bytes());
            }
        }
        (bytes.len() <= MESSAGE_MAX).then_some(bytes)
    }
}

impl Answer {
    /// An answer without an instant.
    #[must_use]
    pub fn new(status: u8, text: impl Into<String>) -> Answer {
        Answer { status, at: Time::ZERO, since: None, text: text.into() }
    }

    /// The answer of these bytes.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Answer> {
        let ([VERSION, status], rest) = bytes.split_first_chunk::<2>()? else { return None };
        let (at, rest) = rest.split_first_chunk::<8>()?;
        let (since, rest) = rest.split_first_chunk::<8>()?;
        let time = |bytes: &[u8; 8]| Time::from_ns(u64::from_le_bytes(*bytes));
        let since = Some(time(since)).filter(|since| *since < Time::MAX);
        let answer = Answer { status: *status, at: time(at), since, text: text(rest)? };
        (*status <= 4 && bytes.len() <= MESSAGE_MAX).then_some(answer)
    }

    /// Its bytes. A text that is too long is cut.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION, self.status];
        bytes.extend(self.at.as_ns().to_le_bytes());
        bytes.extend(self.since.unwrap_or(Time::MAX).as_ns().to_le_bytes());
        let fits = |end: &usize| self.text.is_char_boundary(*end);
        let end = (0..=self.text.len().min(MESSAGE_MAX - ANSWER_HEAD)).rev().find(fits).unwrap_or(0);
        bytes.extend(self.text.as_bytes().iter().take(end));
        bytes
    }
}

fn text(bytes: &[u8]) -> Option<String> {
    std::str::from_utf8(bytes).ok().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back_from_their_bytes() {
        let changes = ServerRule::ALL.map(Some).into_iter().chain([None]).map(|rule| Request::Change {
            component: "vision é".to_owned(),
            rule,
            period: rule.map(|_| Span::from_ms(10)),
            budget: None,
        });
        let others = [Request::Show, Request::Add("[[component]]\n".to_owned()), Request::Remove("c".to_owned())];
        for request in others.into_iter().chain(changes) {
            assert_eq!(Request::read(&request.write().unwrap()), Some(request));
        }
        for since in [None, Some(Time::from_ns(9))] {
            let answer = Answer { since, at: Time::from_ns(7), ..Answer::new(1, "no") };
            assert_eq!(Answer::read(&answer.write()), Some(answer));
        }
    }

    #[test]
    fn bytes_that_are_no_request_are_none() {
        let change = Request::Change { component: "c".to_owned(), rule: None, period: None, budget: None };
        let bytes = change.write().unwrap();
        (0..18).for_each(|length| assert!(Request::read(&bytes[..length]).is_none_or(|of| of != change)));
        for bytes in [&[][..], &[1], &[2, 1], &[1, 9], &[1, 1, 0], &[1, 2, 0xFF], &[1, 4, 99]] {
            assert_eq!(Request::read(bytes), None, "{bytes:?}");
            assert_eq!(Answer::read(bytes), None, "{bytes:?}");
        }
        assert_eq!(Request::Add("x".repeat(MESSAGE_MAX)).write(), None);
        let (component, zero) = ("c".to_owned(), Some(Span::ZERO));
        assert_eq!(Request::Change { component, rule: None, period: None, budget: zero }.write(), None);
        assert_eq!(Request::read(&[1; MESSAGE_MAX + 1]), None);
        let long = Answer::new(0, "é".repeat(MESSAGE_MAX)).write();
        assert!(long.len() <= MESSAGE_MAX && Answer::read(&long).is_some());
    }
}
