//! The kernel's text within JSON: `{"traceEvents": [...], "systemTraceEvents": "# tracer:
//! nop\n..."}`, as Chrome and catapult's tools save it.
//!
//! Only that one text is taken out. The events of programs beside it are none of the kernel's.

/// Whether `bytes` begin as JSON does: with an object that has a key, or a list of objects.
pub(crate) fn is_json(bytes: &[u8]) -> bool {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes).trim_ascii_start();
    let inner = |first: u8, next: &[u8]| {
        let rest = bytes.strip_prefix(&[first]).map(<[u8]>::trim_ascii_start);
        rest.and_then(<[u8]>::first).is_some_and(|byte| next.contains(byte))
    };
    inner(b'{', b"\"}") || inner(b'[', b"{]")
}

/// The text of the outermost object's key `systemTraceEvents`, as far as it goes where the file is
/// cut.
pub(crate) fn system_trace(bytes: &[u8]) -> Option<Vec<u8>> {
    const KEY: &[u8] = b"systemTraceEvents";
    let (mut at, mut depth) = (0, 0_usize);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => {
                let text = &bytes[at + 1..];
                let length = length_of(text);
                at += length + 1;
                let value = bytes.get(at + 1..).unwrap_or_default().trim_ascii_start();
                if depth == 1
                    && &text[..length] == KEY
                    && let Some(value) = value.strip_prefix(b":").map(<[u8]>::trim_ascii_start)
                    && let Some(value) = value.strip_prefix(b"\"")
                {
                    return Some(plain(&value[..length_of(value)]));
                }
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// Bytes before the quote that ends a text.
fn length_of(text: &[u8]) -> usize {
    let mut from = 0;
    while let Some(at) = text.get(from..).and_then(|rest| memchr::memchr2(b'"', b'\\', rest)) {
        if text[from + at] == b'"' {
            return from + at;
        }
        from += at + 2;
    }
    text.len()
}

fn plain(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        out.extend_from_slice(&rest[..at]);
        let escaped = rest.get(at + 1).copied();
        rest = rest.get(at + 2..).unwrap_or_default();
        match escaped {
            Some(b'n') => out.push(b'\n'),
            Some(b't') => out.push(b'\t'),
            Some(b'r') => out.push(b'\r'),
            Some(b'b' | b'f') => out.push(b' '),
            Some(b'u') => {
                let digits = rest.get(..4).and_then(|hex| std::str::from_utf8(hex).ok());
                let code = digits.and_then(|hex| u32::from_str_radix(hex, 16).ok());
                // Halves of a pair stand for themselves: nothing in a kernel's text needs them.
                let c = code.and_then(char::from_u32).unwrap_or(char::REPLACEMENT_CHARACTER);
                out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                rest = rest.get(4..).unwrap_or_default();
            }
            Some(other) => out.push(other),
            None => {}
        }
    }
    out.extend_from_slice(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_text_is_taken_out() {
        let json = br##" {"traceEvents": [{"name": "\"systemTraceEvents\": \"no\""}],
            "other": {"systemTraceEvents": "nor this"},
            "systemTraceEvents" : "# tracer: \u006eop\n\ta \"b\" \\ c\n", "rest": 1}"##;
        assert!(is_json(json));
        assert_eq!(system_trace(json).as_deref(), Some(&b"# tracer: nop\n\ta \"b\" \\ c\n"[..]));
        let cut = &json[..json.len() - 40];
        let whole = system_trace(json).unwrap();
        assert!(whole.starts_with(&system_trace(cut).unwrap()));
        for other in [
            &br#"{"traceEvents": []}"#[..],
            br#"[{"systemTraceEvents": "x"}]"#,
            br#"{"systemTraceEvents": {}}"#,
            b"{\"a",
        ] {
            assert!(is_json(other) && system_trace(other).is_none(), "{other:?}");
        }
        for text in ["", "{", "[   12.000000] a-1 [000] 1.0: e: x", " {x}-12 [000] 1.0: e: x", "# tracer: nop"] {
            assert!(!is_json(text.as_bytes()), "{text}");
        }
    }
}
