//! Keys from the terminal, read by a thread. The thread ends with the terminal; the end is reported
//! as a key.

use std::fs::File;
use std::io::{self, Read as _};
use std::sync::mpsc::{Receiver, channel};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Key {
    Char(char),
    Enter,
    Esc,
    Backspace,
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    /// Ctrl-C, or nobody is there any more.
    Quit,
}

/// The keys that come, whatever standard input is. The thread ends with the terminal, the receiver or the process.
pub(super) fn listen() -> io::Result<Receiver<Key>> {
    let mut terminal = File::open("/dev/tty")?;
    let (to, from) = channel();
    std::thread::Builder::new().name("takt-keys".to_owned()).spawn(move || {
        let (mut bytes, mut buffer) = (Vec::new(), [0; 256]);
        loop {
            match terminal.read(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Ok(0) | Err(_) => break,
                Ok(n) => bytes.extend_from_slice(&buffer[..n]),
            }
            if keys(&mut bytes).into_iter().any(|key| to.send(key).is_err()) {
                return;
            }
        }
        let _ = to.send(Key::Quit);
    })?;
    Ok(from)
}

/// Takes the keys out of what a terminal sent; what may be the start of a letter is left.
pub(super) fn keys(bytes: &mut Vec<u8>) -> Vec<Key> {
    let mut keys = Vec::new();
    let mut rest = bytes.as_slice();
    while let [first, after @ ..] = rest {
        let (key, left) = match first {
            0x1b => escape(after),
            b'\r' | b'\n' => (Some(Key::Enter), after),
            0x7f | 0x08 => (Some(Key::Backspace), after),
            0x03 => (Some(Key::Quit), after),
            0..0x20 => (None, after),
            _ => match letter(rest) {
                Some((letter, length)) => (letter.map(Key::Char), &rest[length..]),
                None => break,
            },
        };
        keys.extend(key);
        rest = left;
    }
    *bytes = rest.to_vec();
    keys
}

/// The letter at the start and how many bytes it takes; `None` where more bytes have to come.
fn letter(bytes: &[u8]) -> Option<(Option<char>, usize)> {
    let most = &bytes[..bytes.len().min(4)];
    let whole = match std::str::from_utf8(most) {
        Ok(text) => text,
        Err(error) if error.valid_up_to() > 0 => std::str::from_utf8(&most[..error.valid_up_to()]).unwrap_or_default(),
        Err(error) => return error.error_len().map(|length| (None, length)),
    };
    whole.chars().next().map(|letter| (Some(letter), letter.len_utf8()))
}

/// The rest after an escape: a sequence in brackets, or nothing for the Escape key.
fn escape(after: &[u8]) -> (Option<Key>, &[u8]) {
    let Some((b'[' | b'O', parameters)) = after.split_first() else { return (Some(Key::Esc), after) };
    let Some(end) = parameters.iter().position(|byte| (0x40..=0x7e).contains(byte)) else { return (None, &[]) };
    let key = match &parameters[..=end] {
        b"A" => Some(Key::Up),
        b"B" => Some(Key::Down),
        b"H" | b"1~" | b"7~" => Some(Key::Home),
        b"5~" => Some(Key::PageUp),
        b"6~" => Some(Key::PageDown),
        _ => None,
    };
    (key, &parameters[end + 1..])
}
