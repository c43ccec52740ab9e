//! The objects "global" and "resources": checked, and listed as far as they have no counterpart.

use super::read::Reader;
use crate::file::hint;
use crate::import::json::{Member, Node, Value};

impl Reader<'_> {
    pub(super) fn global(&mut self, node: &Node) {
        let Some(members) = self.object(node, "global") else { return };
        self.once(members, "global");
        // Keys that say how rt-app logs: one warning is enough for all.
        let mut logging: Vec<&Member> = Vec::new();
        for member in members {
            let (key, node) = (member.key.as_str(), &member.node);
            let path = format!("global.{key}");
            let warning = match key {
                "duration" => match self.int(node, &path, -1, i32::MAX, "seconds, or -1 for ever") {
                    Some(-1) | None => None,
                    Some(s) => Some(format!("no part of a system; say it to sim and run as --for {s}s")),
                },
                "default_policy" => {
                    if let Some(policy) = self.text(node, &path)
                        && self.policy(policy, node.at, &path).is_some()
                    {
                        self.default_policy = policy.to_owned();
                    }
                    None
                }
                "calibration" => match &node.value {
                    Value::Int(_) => Some("takt calibrates its work by itself, so that run means CPU time".to_owned()),
                    Value::Text(text) if text.starts_with("CPU") => {
                        Some("takt calibrates its work by itself, on every CPU that it uses".to_owned())
                    }
                    _ => self.wrong_type(node, &path, "nanoseconds per loop, or a string such as \"CPU0\""),
                },
                "lock_pages" => match node.value {
                    Value::Bool(true) => None,
                    Value::Bool(false) => Some("takt always locks its memory in a live run".to_owned()),
                    _ => self.wrong_type(node, &path, "true or false"),
                },
                "pi_enabled" => match node.value {
                    Value::Bool(false) => None,
                    Value::Bool(true) => {
                        Some("locks have no counterpart, so neither has their priority inheritance".to_owned())
                    }
                    _ => self.wrong_type(node, &path, "true or false"),
                },
                "gnuplot" | "cumulative_slack" => {
                    match node.value {
                        Value::Bool(false) => {}
                        Value::Bool(true) => logging.push(member),
                        _ => self.wrong_type(node, &path, "true or false").unwrap_or(()),
                    }
                    None
                }
                "ftrace" | "log_size" => {
                    match node.value {
                        Value::Text(_) | Value::Bool(_) | Value::Int(_) => logging.push(member),
                        _ => self.wrong_type(node, &path, "a string").unwrap_or(()),
                    }
                    None
                }
                "logdir" | "log_basename" => {
                    logging.extend(self.text(node, &path).map(|_| member));
                    None
                }
                "io_device" => self.text(node, &path).map(|_| "input and output have no counterpart".to_owned()),
                "mem_buffer_size" => self
                    .int(node, &path, 0, i32::MAX, "bytes, an integer from 0 to 2147483647")
                    .map(|_| "no counterpart; a task's wss is the memory that its jobs touch".to_owned()),
                _ => {
                    let keys = [
                        "duration",
                        "default_policy",
                        "calibration",
                        "lock_pages",
                        "pi_enabled",
                        "gnuplot",
                        "cumulative_slack",
                        "ftrace",
                        "log_size",
                        "logdir",
                        "log_basename",
                        "io_device",
                        "mem_buffer_size",
                    ];
                    self.unknown(member.at, &path, key, keys);
                    None
                }
            };
            if let Some(warning) = warning {
                self.notes.warn(member.at, &path, warning);
            }
        }
        if let Some(first) = logging.first() {
            let keys = logging.iter().map(|member| member.key.as_str()).collect::<Vec<_>>().join(", ");
            let message = format_args!("how rt-app logs is no part of a system ({keys}); takt's verbs take -o FILE");
            self.notes.warn(first.at, "global", message);
        }
    }

    pub(super) fn resources(&mut self, node: &Node) {
        let Some(members) = self.object(node, "resources") else { return };
        self.once(members, "resources");
        for member in members {
            let path = format!("resources.{}", member.key);
            let Some(inner) = self.object(&member.node, &path) else { continue };
            let mut kind = "mutex";
            for key in inner {
                let path = format!("{path}.{}", key.key);
                if key.key != "type" {
                    self.unknown(key.at, &path, &key.key, ["type"]);
                } else if let Some(text) = self.text(&key.node, &path) {
                    let kinds = [
                        "mutex",
                        "timer",
                        "wait",
                        "signal",
                        "broadcast",
                        "barrier",
                        "suspend",
                        "resume",
                        "mem",
                        "iorun",
                    ];
                    if kinds.contains(&text) {
                        kind = text;
                    } else {
                        let hint = hint(text, kinds, || format!("it takes {}", kinds.join(", ")));
                        self.notes.error(key.node.at, &path, format_args!("\"{text}\" is no type of resource{hint}"));
                    }
                }
            }
            if kind != "timer" {
                self.notes.warn(member.at, &path, format_args!("a resource of type \"{kind}\" has no counterpart"));
            }
        }
    }
}
