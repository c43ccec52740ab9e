//! The socket of `takt run --admit`: changes of the running components, each proven before it is made.
//!
//! One ordinary thread serves all clients, one request after another. It trusts no client: a message that is none ends
//! its connection.

use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use takt_analysis::Admission;
use takt_analysis::admit::Refusal;
use takt_linux::clock;
use takt_linux::seqpacket::{Connection, Listener, Poll, Received};
use takt_model::admission::{Answer, MESSAGE_MAX, Request};
use takt_model::system::Costs;
use takt_model::{Span, System, file};
use takt_run::{LiveChange, LiveError, RunHandle};

use crate::failure::{Failure, Status};
use crate::verbs::admit::without_version;

/// The most clients at once. The one that has been silent for longest makes room for another.
const CLIENTS_MAX: usize = 16;
const TURN: Span = Span::from_ms(100);

/// The longest wait for the thread at the end. A proof may take longer, and nobody reads its answer.
const END_MAX: Span = Span::from_ms(500);

/// The thread that serves the socket. It ends after this is dropped, and the socket is gone.
pub(super) struct AdmissionSocket {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    path: PathBuf,
}

impl AdmissionSocket {
    /// Listens at `path`, where only this user may connect.
    pub(super) fn open(path: &Path, handle: &RunHandle) -> Result<AdmissionSocket, Failure> {
        let shown = path.display();
        let listener = Listener::bind_private(path).map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => Failure::input(format_args!(
                "--admit {shown}: a process listens there, or it is no socket; give another path"
            )),
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::InvalidInput => {
                Failure::input(format_args!("--admit {shown}: {error}; give a path in a folder that exists"))
            }
            _ => Failure::trouble(format_args!("--admit {shown}: {error}")),
        })?;
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, handle) = (stop.clone(), handle.clone());
        let serve = move || Server { listener, handle, clients: Vec::new() }.serve(&stopped);
        let thread = std::thread::Builder::new().name("takt admit".to_owned()).spawn(serve);
        let thread = thread.map_err(|error| Failure::trouble(format_args!("--admit: no thread: {error}")))?;
        Ok(AdmissionSocket { stop, thread: Some(thread), path: path.to_owned() })
    }
}

impl Drop for AdmissionSocket {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        let Some(thread) = self.thread.take() else { return };
        let until = clock::monotonic_ns().saturating_add(END_MAX.as_ns());
        while !thread.is_finished() {
            if clock::monotonic_ns() >= until {
                let _ = std::fs::remove_file(&self.path);
                return;
            }
            clock::pause(Span::from_ms(5));
        }
        let _ = thread.join();
    }
}

struct Server {
    listener: Listener,
    handle: RunHandle,
    /// The one that has been silent for longest first.
    clients: Vec<Connection>,
}

impl Server {
    fn serve(mut self, stop: &AtomicBool) {
        let mut poll = Poll::default();
        let mut buffer = vec![0; MESSAGE_MAX + 1];
        while !stop.load(Ordering::Acquire) {
            poll.clear();
            let places: Vec<usize> = self.clients.iter().map(|client| poll.add(client.as_fd(), true, false)).collect();
            let listener = poll.add(self.listener.as_fd(), true, false);
            poll.wait(Some(TURN));
            for (at, place) in places.iter().enumerate().rev() {
                if poll.is_ready(*place) {
                    let client = self.clients.remove(at);
                    self.clients.extend(self.answer(client, &mut buffer));
                }
            }
            if poll.is_ready(listener)
                && let Ok(Some(client)) = self.listener.accept()
            {
                if self.clients.len() >= CLIENTS_MAX {
                    self.clients.remove(0);
                }
                self.clients.push(client);
            }
        }
    }

    /// Serves one request. A client that has gone, or sends what is none, is not kept.
    fn answer(&self, client: Connection, buffer: &mut [u8]) -> Option<Connection> {
        let length = match client.receive(buffer) {
            Received::Nothing => return Some(client),
            Received::Closed => return None,
            Received::Message(length, _) => length,
        };
        let answer = match buffer.get(..length).and_then(Request::read) {
            Some(request) => self.decide(&request),
            None => Answer::new(Status::Input as u8, "this is no request of this version; nothing was changed"),
        };
        let keep = answer.status != Status::Input as u8;
        // An answer that finds no reader is lost. What was granted holds.
        let sent = client.send([&answer.write(), &[]], None);
        (keep && sent == takt_linux::seqpacket::Sent::Yes).then_some(client)
    }

    fn decide(&self, request: &Request) -> Answer {
        let Some(system) = self.handle.system() else {
            let why = "the run has not begun, or is over; nothing was changed";
            return Answer::new(Status::Cannot as u8, why);
        };
        let change = match request {
            Request::Show => return show(&system),
            Request::Add(text) => match joining(&system, text) {
                Ok(change) => change,
                Err(why) => return Answer::new(Status::Input as u8, format!("{why}; nothing was changed")),
            },
            Request::Remove(name) => LiveChange::Leave(name.clone()),
            Request::Change { component, rule, period, budget } => {
                LiveChange::Server { component: component.clone(), rule: *rule, period: *period, budget: *budget }
            }
        };
        let (costs, leaves) = (self.handle.costs(), matches!(change, LiveChange::Leave(_)));
        let decided = |system: &System| if leaves { Ok(()) } else { prove(system, costs) };
        match self.handle.apply(&change, decided) {
            Ok(effect) => Answer { at: effect.at, since: effect.since, ..Answer::new(Status::Yes as u8, "") },
            Err(error) => Answer::new(status(&error) as u8, error.to_string()),
        }
    }
}

fn status(error: &LiveError) -> Status {
    match error {
        LiveError::Refused(_) => Status::No,
        LiveError::Invalid(_) => Status::Input,
        LiveError::Cannot(_) | LiveError::NotRunning => Status::Cannot,
        LiveError::Failed(_) => Status::Trouble,
    }
}

fn show(system: &System) -> Answer {
    let text = file::write(system);
    let answer = Answer::new(Status::Yes as u8, text);
    if Answer::read(&answer.write()).as_ref() == Some(&answer) {
        return answer;
    }
    let why = format!("the running system is longer than {MESSAGE_MAX} bytes, the most of a message");
    Answer::new(Status::Cannot as u8, why)
}

/// What joins: the end of the system's file.
fn joining(system: &System, more: &str) -> Result<LiveChange, String> {
    let parse = |text: &str| file::parse(text, "the running system").map_err(|errors| errors.to_string());
    let text = file::write(system);
    let lines = text.lines().count() + 1;
    let before = parse(&text)?;
    let changed = parse(&format!("{text}\n{}", without_version(more)))
        .map_err(|errors| format!("{}\nLines from {} on are those of the file to add", errors.trim_end(), lines + 1))?;
    let components = changed.components.get(before.components.len()..).unwrap_or_default().to_vec();
    let tasks = changed.tasks.get(before.tasks.len()..).unwrap_or_default().to_vec();
    let kept = System {
        components: changed.components.get(..before.components.len()).unwrap_or_default().to_vec(),
        tasks: changed.tasks.get(..before.tasks.len()).unwrap_or_default().to_vec(),
        ..changed
    };
    if kept != before || components.is_empty() {
        return Err("the file may add components with their tasks, one component at least, and nothing else".to_owned());
    }
    Ok(LiveChange::Join { components, tasks })
}

/// Proves the system with what decisions of the managers have cost so far.
fn prove(system: &System, measured: Option<(Span, Span)>) -> Result<(), String> {
    let mut charged = system.clone();
    for node in &mut charged.nodes {
        node.costs = Some(charge(node.costs.unwrap_or(Costs::NONE), measured));
    }
    match Admission::new(charged) {
        Ok(_) => Ok(()),
        Err(Refusal::NotProven(why) | Refusal::Invalid(why)) => Err(format!("not admitted: {why}")),
    }
}

/// The larger of the file's costs and the measured ones. A job costs two decisions, and so does each time that it gets
/// the CPU. The latency is the lateness of a decision.
fn charge(costs: Costs, measured: Option<(Span, Span)>) -> Costs {
    let Some((decision, late)) = measured else { return costs };
    let twice = decision.saturating_add(decision);
    Costs {
        release: costs.release.max(twice),
        switch: costs.switch.max(twice),
        latency: costs.latency.max(late),
        ..costs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUNNING: &str = "takt = 1\n[[node]]\nname = \"n1\"\nstrategy = \"edf\"\n[[component]]\nname = \"a\"\n\
        server = \"ptps\"\nperiod = \"10ms\"\nbudget = \"3ms\"\n[[task]]\nname = \"t\"\ncomponent = \"a\"\n\
        period = \"100ms\"\nwcet = \"3ms\"\n";

    #[test]
    fn a_file_adds_components_with_their_tasks_and_nothing_else() {
        let system = file::parse(RUNNING, "running").unwrap();
        let more = "takt = 1\n[[component]]\nname = \"b\"\nserver = \"cbs\"\nperiod = \"20ms\"\nbudget = \"1ms\"\n";
        match joining(&system, more) {
            Ok(LiveChange::Join { components, tasks }) => assert_eq!((components.len(), tasks.len()), (1, 0)),
            other => panic!("{other:?}"),
        }
        for wrong in
            ["", "[[component]]\nname = \"a\"", "[[node]]\nname = \"n2\"", "[[task]]\nname = \"u\"\nperiod = 3"]
        {
            assert!(joining(&system, wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_measured_costs_are_charged_where_they_are_more_than_those_of_the_file() {
        let us = Span::from_us;
        let file = Costs { release: us(50), switch: us(1), ..Costs::NONE };
        let charged = charge(file, Some((us(10), us(30))));
        assert_eq!((charged.release, charged.switch, charged.latency), (us(50), us(20), us(30)));
        let system = file::parse(RUNNING, "running").unwrap();
        assert_eq!(prove(&system, None), Ok(()));
        assert!(prove(&system, Some((us(4_000), us(9_000)))).unwrap_err().starts_with("not admitted"));
    }
}
