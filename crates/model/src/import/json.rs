//! JSON as rt-app reads it. It allows comments and commas before closing brackets. Objects keep the
//! order of their keys, and keys may repeat. Every value knows its place.

use crate::file::Found;

/// How deep values may nest (json-c's own limit).
const DEPTH_MAX: usize = 32;

/// A value and where it starts.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Node {
    /// Byte offset of its first character.
    pub(super) at: usize,
    /// What it is.
    pub(super) value: Value,
}

#[derive(Clone, PartialEq, Debug)]
pub(super) enum Value {
    Null,
    Bool(bool),
    /// An integer within 64 bits.
    Int(i64),
    /// Any other number, as it stands.
    Number(String),
    Text(String),
    Array(Vec<Node>),
    /// In the order of the file; a key may stand several times.
    Object(Vec<Member>),
}

/// A key of an object.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Member {
    pub(super) key: String,
    /// The place of the key.
    pub(super) at: usize,
    pub(super) node: Node,
}

impl Value {
    /// The type in words.
    pub(super) fn noun(&self) -> &'static str {
        match self {
            Value::Null => "null",
            Value::Bool(_) => "a boolean",
            Value::Int(_) => "an integer",
            Value::Number(number) if !number.contains(['.', 'e', 'E']) => "an integer beyond 64 bits",
            Value::Number(_) => "a number that is no integer",
            Value::Text(_) => "a string",
            Value::Array(_) => "an array",
            Value::Object(_) => "an object",
        }
    }
}

/// Reads a whole text.
pub(super) fn parse(text: &str) -> Result<Node, Found> {
    let mut parser = Parser { text, at: 0 };
    if text.starts_with('\u{feff}') {
        parser.at = '\u{feff}'.len_utf8();
    }
    parser.blanks()?;
    let node = parser.value(0)?;
    parser.blanks()?;
    match parser.peek() {
        None => Ok(node),
        Some(_) => parser.error(parser.at, "text after the end of the JSON object; remove it"),
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl Parser<'_> {
    fn error<T>(&self, at: usize, message: impl Into<String>) -> Result<T, Found> {
        Err(Found::new(at, format!("not JSON: {}", message.into())))
    }

    fn rest(&self) -> &str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn take(&mut self, c: char) -> bool {
        let is = self.peek() == Some(c);
        if is {
            self.at += c.len_utf8();
        }
        is
    }

    /// Skips white space and comments.
    fn blanks(&mut self) -> Result<(), Found> {
        loop {
            let rest = self.rest();
            self.at += rest.len() - rest.trim_start_matches([' ', '\t', '\n', '\r']).len();
            let rest = self.rest();
            if rest.starts_with("//") {
                self.at += rest.find('\n').unwrap_or(rest.len());
            } else if rest.starts_with("/*") {
                match rest.find("*/") {
                    Some(end) => self.at += end + 2,
                    None => return self.error(self.at, "a comment that does not end; close it with */"),
                }
            } else {
                return Ok(());
            }
        }
    }

    fn value(&mut self, depth: usize) -> Result<Node, Found> {
        let at = self.at;
        if depth > DEPTH_MAX {
            return self.error(at, format!("values nest deeper than {DEPTH_MAX}"));
        }
        let value = match self.peek() {
            None => return self.error(at, "the text ends where a value should stand"),
            Some('{') => self.object(depth)?,
            Some('[') => self.array(depth)?,
            Some('"') => Value::Text(self.string()?),
            Some(c) if c == '-' || c.is_ascii_digit() => self.number()?,
            Some(_) => {
                let word: String = self.rest().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                self.at += word.len();
                match word.as_str() {
                    "true" => Value::Bool(true),
                    "false" => Value::Bool(false),
                    "null" => Value::Null,
                    "" => return self.error(at, format!("unexpected {:?}", self.peek().unwrap_or(' '))),
                    _ => return self.error(at, format!("unknown word {word}; strings stand in double quotes")),
                }
            }
        };
        Ok(Node { at, value })
    }

    fn object(&mut self, depth: usize) -> Result<Value, Found> {
        let open = self.at;
        self.at += 1;
        let mut members = Vec::new();
        loop {
            self.blanks()?;
            if self.take('}') {
                return Ok(Value::Object(members));
            }
            let at = self.at;
            match self.peek() {
                Some('"') => {}
                None => return self.error(open, "an object that does not end; close it with }"),
                Some(c) => return self.error(at, format!("a key in double quotes or }} should stand here, not {c:?}")),
            }
            let key = self.string()?;
            self.blanks()?;
            if !self.take(':') {
                return self.error(self.at, format!("a colon should follow the key \"{key}\""));
            }
            self.blanks()?;
            let node = self.value(depth + 1)?;
            members.push(Member { key, at, node });
            self.blanks()?;
            if !self.take(',') && self.peek().is_some_and(|c| c != '}') {
                return self.error(self.at, "a comma or } should stand here");
            }
        }
    }

    fn array(&mut self, depth: usize) -> Result<Value, Found> {
        let open = self.at;
        self.at += 1;
        let mut values = Vec::new();
        loop {
            self.blanks()?;
            if self.take(']') {
                return Ok(Value::Array(values));
            }
            if self.peek().is_none() {
                return self.error(open, "an array that does not end; close it with ]");
            }
            values.push(self.value(depth + 1)?);
            self.blanks()?;
            if !self.take(',') && self.peek().is_some_and(|c| c != ']') {
                return self.error(self.at, "a comma or ] should stand here");
            }
        }
    }

    fn string(&mut self) -> Result<String, Found> {
        let open = self.at;
        self.at += 1;
        let mut out = String::new();
        loop {
            let Some(c) = self.peek() else {
                return self.error(open, "a string that does not end; close it with a double quote");
            };
            let at = self.at;
            self.at += c.len_utf8();
            match c {
                '"' => return Ok(out),
                '\n' => return self.error(open, "a string that does not end on its line"),
                '\\' => out.push(self.escape(at)?),
                c => out.push(c),
            }
        }
    }

    fn escape(&mut self, at: usize) -> Result<char, Found> {
        let Some(c) = self.peek() else { return self.error(at, "the text ends in an escape") };
        self.at += c.len_utf8();
        Ok(match c {
            '"' | '\\' | '/' => c,
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => {
                let mut unit = self.hex(at)?;
                if (0xd800..0xdc00).contains(&unit) && self.rest().starts_with("\\u") {
                    self.at += 2;
                    let low = self.hex(at)?;
                    unit = 0x10000 + ((unit - 0xd800) << 10) + (low.wrapping_sub(0xdc00) & 0x3ff);
                }
                match char::from_u32(unit) {
                    Some(c) => c,
                    None => return self.error(at, "an escape of half a character"),
                }
            }
            _ => return self.error(at, format!("unknown escape \\{c}")),
        })
    }

    fn hex(&mut self, at: usize) -> Result<u32, Found> {
        let digits = self.text.get(self.at..self.at + 4).filter(|digits| digits.bytes().all(|c| c.is_ascii_hexdigit()));
        match digits.and_then(|digits| u32::from_str_radix(digits, 16).ok()) {
            Some(unit) => {
                self.at += 4;
                Ok(unit)
            }
            None => self.error(at, "\\u wants four hexadecimal digits"),
        }
    }

    fn number(&mut self) -> Result<Value, Found> {
        let at = self.at;
        let len = self.rest().bytes().take_while(|c| c.is_ascii_digit() || b"+-.eE".contains(c)).count();
        let number = self.rest()[..len].to_owned();
        self.at += len;
        if let Ok(int) = number.parse::<i64>() {
            return Ok(Value::Int(int));
        }
        match number.parse::<f64>() {
            Ok(_) => Ok(Value::Number(number)),
            Err(_) => self.error(at, format!("{number} is no number")),
        }
    }
}

/// Keys that stand more than once in an object, each with the place of its second appearance.
pub(super) fn twice(members: &[Member]) -> Vec<(&str, usize)> {
    let mut seen = std::collections::BTreeSet::new();
    members
        .iter()
        .filter(|member| !seen.insert(member.key.as_str()))
        .map(|member| (member.key.as_str(), member.at))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> String {
        let found = parse(text).unwrap_err();
        format!("{}: {}", found.at.unwrap(), found.message)
    }

    #[test]
    fn the_extensions_of_json_c_are_accepted() {
        let text = "// head\n{ /* a */ \"a\": [1, -2.5, true, null,], \"a\": \"x\\u00e9\\ud83d\\ude00\\n\", }\n";
        let Value::Object(members) = parse(text).unwrap().value else { panic!("an object") };
        assert_eq!(members.len(), 2);
        assert_eq!(members[1].node.value, Value::Text("x\u{e9}\u{1f600}\n".to_owned()));
        let Value::Array(values) = &members[0].node.value else { panic!("an array") };
        assert_eq!(values[1].value, Value::Number("-2.5".to_owned()));
        assert_eq!(twice(&members), [("a", text.rfind("\"a\"").unwrap())]);
    }

    #[test]
    fn json_errors_have_a_position() {
        assert_eq!(message(""), "0: not JSON: the text ends where a value should stand");
        assert_eq!(message("{\"a\" 1}"), "5: not JSON: a colon should follow the key \"a\"");
        assert_eq!(message("{\"a\": 1 \"b\": 2}"), "8: not JSON: a comma or } should stand here");
        assert_eq!(message("{\"a\": True}"), "6: not JSON: unknown word True; strings stand in double quotes");
        assert_eq!(message("{\"a\": [1, 2"), "6: not JSON: an array that does not end; close it with ]");
        assert_eq!(message("{} x"), "3: not JSON: text after the end of the JSON object; remove it");
        assert_eq!(message("{ /* x"), "2: not JSON: a comment that does not end; close it with */");
        assert_eq!(message("{\"\\x\": 1}"), "2: not JSON: unknown escape \\x");
        assert_eq!(message("{\"\\ud800\": 1}"), "2: not JSON: an escape of half a character");
        assert_eq!(message("[1-2]"), "1: not JSON: 1-2 is no number");
        assert!(message(&"[".repeat(100_000)).ends_with("values nest deeper than 32"));
    }
}
