//! The string literals of Rust sources, for the tests that read messages.

/// Each literal with the number of its first line, without comments and characters. Lines that a backslash continues
/// are joined. Quotes and line ends are unescaped; other escapes stay.
pub(crate) fn literals(source: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut rest = source;
    let after = |text: &'_ str, end: &str| text.find(end).map_or(text.len(), |at| at + end.len());
    let mut push = |body: &str, rest: &str| {
        let lines = body.split("\\\n").enumerate().map(|(i, line)| if i > 0 { line.trim_start() } else { line });
        let text = lines.collect::<String>().replace("\\\"", "\"").replace("\\n", "\n");
        found.push((source[..source.len() - rest.len()].matches('\n').count() + 1, text));
    };
    while let Some(at) = rest.find(['"', '/', '\'', 'r']) {
        let word = rest[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_') && !rest[..at].ends_with('b');
        rest = &rest[at..];
        let hashes = rest[1..].len() - rest[1..].trim_start_matches('#').len();
        let skip = if rest.starts_with("//") {
            after(rest, "\n")
        } else if rest.starts_with("/*") {
            after(rest, "*/")
        } else if rest.starts_with('r') && !word && rest[1 + hashes..].starts_with('"') {
            let body = &rest[hashes + 2..];
            let end = format!("\"{}", "#".repeat(hashes));
            push(&body[..body.find(&end).unwrap_or(body.len())], rest);
            hashes + 2 + after(body, &end)
        } else if let Some(body) = rest.strip_prefix('"') {
            let mut escaped = false;
            let end = body.find(|c| {
                let before = escaped;
                escaped = c == '\\' && !before;
                c == '"' && !before
            });
            let end = end.unwrap_or(body.len());
            push(&body[..end], rest);
            end + 2
        } else if let Some(body) = rest.strip_prefix('\'') {
            // A character, or a lifetime.
            match body.strip_prefix('\\') {
                Some(escape) => 2 + escape.chars().next().map_or(0, char::len_utf8) + after(&escape[1..], "'"),
                None => body
                    .chars()
                    .next()
                    .filter(|c| body[c.len_utf8()..].starts_with('\''))
                    .map_or(1, |c| c.len_utf8() + 2),
            }
        } else {
            1
        };
        rest = rest.get(skip..).unwrap_or_default();
    }
    found
}
