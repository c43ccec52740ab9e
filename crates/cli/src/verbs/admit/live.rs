//! `takt admit --live`: a change of the components of a running system, by its socket.

use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;

use serde_json::json;
use takt_linux::seqpacket::{Connection, Poll, Received, Sent};
use takt_model::admission::{Answer, MESSAGE_MAX, Request};
use takt_model::{Span, Time};

use crate::args;
use crate::failure::{Failure, Outcome, Status};
use crate::input;
use crate::output::{Target, print, print_json};
use crate::progress;

/// How long an answer takes at most: the run proves the system, and waits for the end of a period.
const ANSWER_MAX: u32 = 600;
/// The time between two looks.
const TURN: Span = Span::from_ms(100);

pub(super) fn execute(options: &args::Admit, socket: &Path, json: bool) -> Outcome {
    let request = request(options)?;
    let mut client = Client::connect(socket)?;
    let answer = client.ask(&request)?;
    let status = match answer.status {
        0 => Status::Yes,
        1 => Status::No,
        2 => Status::Input,
        3 => Status::Cannot,
        _ => Status::Trouble,
    };
    if !matches!(status, Status::Yes | Status::No) {
        return Err(Failure { status, message: format!("takt: {}", answer.text) });
    }
    if let (Status::Yes, Some(target)) = (status, &options.output) {
        let system = client.ask(&Request::Show)?;
        if system.status != 0 {
            return Err(Failure::trouble(format_args!("the change holds; the system is not written: {}", system.text)));
        }
        target.write(system.text.as_bytes())?;
    }
    let ns = |at: Option<Time>| at.filter(|_| status == Status::Yes).map(Time::as_ns);
    if json {
        print_json(&json!({
            "admitted": status == Status::Yes, "why": answer.text,
            "at_ns": ns(Some(answer.at)), "since_ns": ns(answer.since),
        }))?;
    } else if options.output.as_ref().is_some_and(Target::is_stdout) {
        if status == Status::No {
            return Err(Failure::no(answer.text));
        }
    } else {
        print(&format!("{}\n", render(options, &answer)))?;
    }
    Ok(status)
}

fn render(options: &args::Admit, answer: &Answer) -> String {
    if answer.status != 0 {
        return answer.text.clone();
    }
    let what = match (&options.add, options.remove.first(), &options.change) {
        (Some(file), ..) => format!("admitted {}", input::shown(file)),
        (_, Some(name), _) => format!("removed {name}"),
        (.., name) => format!("changed {}", name.as_deref().unwrap_or_default()),
    };
    let since = match answer.since {
        Some(since) => format!("its server has its terms since {}", time(since)),
        None => "its server gets its terms at the end of its period".to_owned(),
    };
    format!("{what} at {} of the run; {since}", time(answer.at))
}

fn time(at: Time) -> Span {
    at.saturating_since(Time::ZERO)
}

fn request(options: &args::Admit) -> Result<Request, Failure> {
    let spans = [("--period", options.period), ("--budget", options.budget)];
    if let Some((option, _)) = spans.iter().find(|(_, span)| span.is_some_and(Span::is_zero)) {
        return Err(Failure::input(format_args!(
            "{option}: a server needs more than 0; to take the component out, use --remove NAME"
        )));
    }
    let terms = options.rule.is_some() || options.period.is_some() || options.budget.is_some();
    let request = match (&options.add, &options.remove[..], &options.change) {
        (Some(file), [], None) if !terms => Request::Add(input::text(file, "TOML")?),
        (None, [name], None) if !terms => Request::Remove(name.strip_prefix("component:").unwrap_or(name).to_owned()),
        (None, [], Some(component)) if terms => Request::Change {
            component: component.clone(),
            rule: options.rule,
            period: options.period,
            budget: options.budget,
        },
        (None, [], Some(_)) => return Err(Failure::input("--change needs --rule, --period or --budget")),
        _ => {
            let one = "--live takes one change at a time: --add FILE, --remove NAME, or --change NAME with --rule, \
                       --period or --budget";
            return Err(Failure::input(one));
        }
    };
    if request.write().is_none() {
        return Err(Failure::input(format_args!(
            "a request takes at most {MESSAGE_MAX} bytes; add fewer parts at once"
        )));
    }
    Ok(request)
}

struct Client {
    connection: Connection,
    buffer: Vec<u8>,
}

impl Client {
    fn connect(socket: &Path) -> Result<Client, Failure> {
        let connection = Connection::connect(socket).map_err(|error| {
            let shown = socket.display();
            match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Failure::cannot(format_args!(
                    "nobody listens at {shown}; start \"takt run FILE --admit {shown}\" first"
                )),
                io::ErrorKind::PermissionDenied => {
                    Failure::cannot(format_args!("{shown} belongs to another user; ask as the user who runs takt run"))
                }
                _ => Failure::trouble(format_args!("{shown}: {error}")),
            }
        })?;
        Ok(Client { connection, buffer: vec![0; MESSAGE_MAX + 1] })
    }

    fn ask(&mut self, request: &Request) -> Result<Answer, Failure> {
        let gone = || Failure::trouble("the run closed the connection without an answer; it may be over");
        let bytes = request.write().ok_or_else(gone)?;
        if self.connection.send([&bytes, &[]], None) != Sent::Yes {
            return Err(gone());
        }
        let bar = progress::bar("waiting for the run", u64::from(ANSWER_MAX));
        let mut poll = Poll::default();
        for turn in 0..ANSWER_MAX {
            poll.clear();
            poll.add(self.connection.as_fd(), true, false);
            poll.wait(Some(TURN));
            bar.set_position(u64::from(turn));
            match self.connection.receive(&mut self.buffer) {
                Received::Nothing => {}
                Received::Closed => return Err(gone()),
                Received::Message(length, _) => {
                    bar.finish_and_clear();
                    let answer = self.buffer.get(..length).and_then(Answer::read);
                    return answer.ok_or_else(|| Failure::trouble("the run answers in another version; use one takt"));
                }
            }
        }
        Err(Failure::trouble("the run does not answer; whether the change holds is in its log"))
    }
}
