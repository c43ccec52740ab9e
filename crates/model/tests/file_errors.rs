//! Bad System files and exactly what is said about them.
//!
//! Each case is a file after `--- what it shows`, without its `takt = 1` first line unless it starts with one, then the
//! errors after `=>`. `UPDATE=1 cargo test -p takt-model --test file_errors` rewrites them; read what it wrote.

use takt_model::file::parse;

const CASES: &str = include_str!("files/errors.txt");

fn errors_of(text: &str) -> String {
    let text = text.replace('\u{23ce}', "\r\n");
    match parse(&text, "robot.toml") {
        Ok(_) => "(no error)".to_owned(),
        Err(errors) => errors.to_string(),
    }
}

#[test]
fn every_error_says_what_and_where_and_what_would_be_right() {
    let mut again = String::new();
    let mut wrong = Vec::new();
    let (head, cases) = CASES.split_once("--- ").expect("the file of cases has cases");
    again.push_str(head);
    for case in cases.split("\n--- ") {
        let (title, rest) = case.split_once('\n').expect("a case has a title line");
        let (text, expected) = rest.split_once("=>\n").expect("a case has errors");
        let text = text.strip_suffix('\n').unwrap_or(text);
        let found = errors_of(text);
        if found.trim_end() != expected.trim_end() {
            wrong.push(format!("{title}\n{}\nis said:\n{found}\nshould be:\n{expected}", text));
        }
        again.push_str(&format!("--- {title}\n{text}\n=>\n{found}\n\n"));
    }
    if std::env::var_os("UPDATE").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/files/errors.txt");
        std::fs::write(path, format!("{}\n", again.trim_end())).expect("the file of cases can be written");
    } else {
        assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    }
}
