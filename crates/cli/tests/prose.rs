//! How plain the prose of the project reads: Markdown and the comments of Rust and C, by folder. The messages of all
//! crates are measured together: the string literals of their sources, without tests.
//!
//! A riddle is a sentence that opens with a word of [`OPENERS`], or that holds three or more of [`PRONOUNS`].
//! A sentence has at least four words. Code between backticks counts as one word.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use literals::literals;

#[path = "../src/literals.rs"]
mod literals;

const OPENERS: [&str; 8] = ["what", "who", "whose", "whatever", "whoever", "where", "that", "of"];
const PRONOUNS: [&str; 11] =
    ["what", "who", "whom", "whose", "which", "that", "those", "one", "it", "whatever", "whoever"];

/// The most of each fault: riddles and sentences above 30 words in percent, and lines above 120 characters.
const TARGET: (f64, f64, usize) = (3.0, 5.0, 0);

#[derive(Default)]
struct Prose {
    sentences: usize,
    riddles: usize,
    long: usize,
    wide: usize,
    /// Places and their scores. A high score is bad.
    places: Vec<(usize, String)>,
}

impl Prose {
    fn read(&mut self, path: &Path, number: usize, paragraph: &str) {
        for sentence in sentences(paragraph) {
            let (words, pronouns, opener) = measure(&sentence);
            self.sentences += 1;
            self.riddles += usize::from(opener || pronouns >= 3);
            self.long += usize::from(words > 30);
            let score = words + 6 * pronouns + if opener { 15 } else { 0 };
            self.places.push((score, format!("{}:{number}: {sentence}", path.display())));
        }
    }

    /// The shares and the worst places if a share is above its target, else nothing.
    fn failure(mut self, name: &str) -> String {
        let percent = |n: usize| 100.0 * n as f64 / self.sentences.max(1) as f64;
        let found = (percent(self.riddles), percent(self.long), self.wide);
        if found.0 <= TARGET.0 && found.1 <= TARGET.1 && found.2 <= TARGET.2 {
            return String::new();
        }
        let mut failure =
            format!("\n{name}: riddles %, long sentences %, wide lines: {found:.1?}; at most {TARGET:?}\n");
        self.places.sort_by(|a, b| b.cmp(a));
        for (_, place) in self.places.iter().take(10) {
            let _ = writeln!(failure, "  {}", place.chars().take(240).collect::<String>());
        }
        failure
    }
}

#[test]
fn prose_is_plain() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut failures = messages(&root).failure("messages");
    for folder in folders(&root) {
        let mut prose = Prose::default();
        for path in files(&root, &folder) {
            let text = std::fs::read_to_string(root.join(&path)).unwrap();
            let mut output = false;
            for (number, line) in text.lines().enumerate() {
                output = if output { !line.starts_with("```") } else { ["```console", "```text"].contains(&line) };
                // Tables, links and what a command prints cannot be wrapped.
                let table = line.trim_start().trim_start_matches(['/', '!']).trim_start().starts_with('|');
                let excepted = table || line.contains("](") || line.contains("://");
                let excepted = excepted || output && !line.starts_with("$ ");
                let conflict = line.starts_with("<<<<<<< ") || line.starts_with(">>>>>>> ");
                if conflict || (line.chars().count() > 120 && !excepted) {
                    prose.wide += 1;
                    let score = if conflict { 1000 } else { 40 };
                    prose.places.push((score, format!("{}:{}: {line}", path.display(), number + 1)));
                }
            }
            for (number, paragraph) in paragraphs(&text, path.extension().is_some_and(|e| e == "md")) {
                prose.read(&path, number, &paragraph);
            }
        }
        failures += &prose.failure(&folder.to_string_lossy());
    }
    assert!(
        failures.is_empty(),
        "Rewrite the places below: one idea per sentence, the subject first, the field's terms, lines of 100 \
         characters.\n{failures}"
    );
}

/// The string literals of the crates' sources, without those of tests.
fn messages(root: &Path) -> Prose {
    let mut messages = Prose::default();
    for path in files(root, Path::new("crates")) {
        let source = path.components().nth(2).is_some_and(|part| part.as_os_str() == "src");
        let rust = path.extension().is_some_and(|e| e == "rs");
        if !source || !rust || path.to_string_lossy().contains("tests") {
            continue;
        }
        let text = std::fs::read_to_string(root.join(&path)).unwrap();
        for (first, literal) in literals(text.split("mod tests {").next().unwrap_or_default()) {
            for (number, paragraph) in paragraphs(&message(&literal), true) {
                messages.read(&path, first + number - 1, &paragraph);
            }
        }
    }
    assert!(messages.sentences > 1_000, "only {} sentences in messages", messages.sentences);
    messages
}

/// A literal with `X` for each placeholder, and without examples: lines that begin with two spaces.
fn message(literal: &str) -> String {
    let lines = literal.lines().map(|line| if line.starts_with("  ") { "" } else { line });
    let mut text = lines.collect::<Vec<_>>().join("\n");
    while let Some(end) = text.find('}') {
        let Some(start) = text[..end].rfind('{') else { break };
        text.replace_range(start..=end, "X");
    }
    text
}

/// Folders that are measured by themselves: each crate, each other folder at the top, and the top itself.
fn folders(root: &Path) -> Vec<PathBuf> {
    let (mut found, mut open) = (vec![PathBuf::new()], vec!["", "crates"]);
    while let Some(at) = open.pop() {
        for entry in std::fs::read_dir(root.join(at)).unwrap().map(|entry| entry.unwrap()) {
            let folder = Path::new(at).join(entry.file_name());
            if entry.path().is_dir() && ![".git", "target", "crates"].iter().any(|skip| folder == Path::new(skip)) {
                found.push(folder);
            }
        }
    }
    found.sort();
    found
}

/// Markdown, Rust and C below a folder; of the top only what lies in it directly.
fn files(root: &Path, folder: &Path) -> Vec<PathBuf> {
    let (mut found, mut open) = (Vec::new(), vec![folder.to_path_buf()]);
    while let Some(at) = open.pop() {
        for entry in std::fs::read_dir(root.join(&at)).unwrap().map(|entry| entry.unwrap()) {
            let path = at.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                if folder != Path::new("") && entry.file_name() != "target" {
                    open.push(path);
                }
            } else if path.extension().is_some_and(|e| ["md", "rs", "c", "h"].iter().any(|known| e == *known)) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Paragraphs and list items of Markdown or of comments, each with the number of its first line.
fn paragraphs(text: &str, markdown: bool) -> Vec<(usize, String)> {
    let (mut found, mut block, mut fenced) = (Vec::new(), (0, String::new()), false);
    for (number, line) in text.lines().chain([""]).enumerate() {
        let line = line.trim();
        let comment = || Some(line.strip_prefix("//")?.trim_start_matches(['/', '!']));
        let mut words = match markdown {
            true => Some(line),
            false => comment().or_else(|| line.strip_prefix("* ")),
        }
        .map_or("", str::trim);
        let fence = words.starts_with("```");
        fenced ^= fence;
        let skip = ["#", "|", "<", "http", "---", "===", "SPDX", "SAFETY"].iter().any(|start| words.starts_with(start));
        if fence || fenced || skip {
            words = "";
        }
        let bullet = words.trim_start_matches(|c: char| c.is_ascii_digit());
        let marks: &[&str] = if bullet.len() < words.len() { &[". "] } else { &["- ", "* "] };
        let item = marks.iter().find_map(|mark| bullet.strip_prefix(mark));
        if (words.is_empty() || item.is_some()) && !block.1.is_empty() {
            found.push(std::mem::take(&mut block));
        }
        if block.1.is_empty() {
            block.0 = number + 1;
        }
        block.1 += item.unwrap_or(words);
        block.1 += if words.is_empty() { "" } else { " " };
    }
    found
}

/// Sentences of at least four words, with links as their text and code as `X`.
fn sentences(paragraph: &str) -> Vec<String> {
    let mut text = paragraph.to_owned();
    while let Some(middle) = text.find("](") {
        let (Some(start), Some(end)) = (text[..middle].rfind('['), text[middle..].find(')')) else { break };
        text = format!("{}{}{}", &text[..start], &text[start + 1..middle], &text[middle + end + 1..]);
    }
    let text = text.split('`').enumerate().map(|(i, part)| if i % 2 == 1 { "X" } else { part }).collect::<String>();
    let (mut found, mut sentence) = (Vec::new(), Vec::new());
    for word in text.split_whitespace() {
        let begins = word.starts_with(|c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '"' || c == '(');
        if begins && sentence.last().is_some_and(|last: &&str| last.ends_with(['.', '!', '?', ':', ';'])) {
            found.push(std::mem::take(&mut sentence).join(" "));
        }
        sentence.push(word);
    }
    found.push(sentence.join(" "));
    found.retain(|sentence| sentence.split(' ').count() > 3);
    found
}

/// Words of a sentence, its pronouns, and whether it opens like a riddle.
fn measure(sentence: &str) -> (usize, usize, bool) {
    let lower = sentence.to_lowercase();
    let words = || lower.split(|c: char| !c.is_alphanumeric() && c != '_');
    let pronouns = words().filter(|word| PRONOUNS.contains(word)).count();
    (sentence.split(' ').count(), pronouns, words().next().is_some_and(|word| OPENERS.contains(&word)))
}
