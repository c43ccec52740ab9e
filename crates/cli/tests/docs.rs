//! Every command of README.md and docs/ runs, and says what is shown; every link leads somewhere. Pages with a live
//! block are those of docs_live.rs.
//!
//! Blocks of the language `console` are a session. The test gives each line that starts with `$ ` to bash; a line that
//! ends in `\` continues. The lines up to the next command are the output, with standard error. `? N` is the exit
//! status if it is not 0. `...` alone on a line stands for any lines, `[..]` for any text. Each page runs in a folder
//! of its own that holds `examples` only.
//!
//! - A block after `<!-- live -->` starts real-time threads. The test skips it, and says why, if
//!   the machine or user cannot. Numbers are compared by place only. Warnings and missed deadlines
//!   do not count, because a machine may pause.
//! - A block after `<!-- file: NAME -->` is written to NAME before the commands run.
//! - A picture `images/NAME.svg` must equal the file NAME.svg that the page's commands wrote, here or in `out`. A
//!   picture with `live` in its name shows a real run and is not compared.
//! - A block after `<!-- source: FILE -->` must equal that file of the repository.
//! - Lines that start with `takt: note:` speak of the machine and are left out.
//! - In a block of the language `sh` each line is a command. Commands of takt run here and must succeed. Any other must
//!   stand in [`ELSEWHERE`], with the script that runs it.
//!
//! `TAKT_DOCS=write cargo test -p takt --test docs --test docs_live` writes what is printed into the pages.

use std::fs;

use crate::pages::{blurred, is_takt, pages, root, run_pages};

mod pages;

/// Commands of `sh` blocks, and what runs them.
const ELSEWHERE: &[(&str, &str)] = &[
    ("make demo", ".ci/run"),
    ("make test", ".ci/run"),
    ("make live", ".ci/nightly"),
    ("make lab", ".ci/nightly"),
    ("make lab-binary", ".ci/lab"),
    ("make nightly", "a person"),
    ("make fuzz", ".ci/nightly"),
    ("make invariants-selftest", "make test"),
    ("make deny", "make test"),
    ("make doc", "make test"),
    ("make docs", ".ci/nightly"),
    ("make invariants", "make test"),
    ("make bench", ".ci/nightly"),
    ("make soak", ".ci/nightly"),
    ("make zenoh", ".ci/nightly"),
    ("cargo run --manifest-path crates/zenoh/Cargo.toml --target-dir target/zenoh --example fleet", "make zenoh"),
    ("cargo install --locked --path crates/cli", ".ci/nightly"),
    ("sudo apt-get install build-essential git", "a person, on Debian 12"),
    ("make deb", ".ci/nightly"),
    ("sudo apt-get install ./target/debian/takt_*.deb", "a person"),
    ("make c-library", ".ci/run"),
    ("make install-c PREFIX=\"$PWD/target/c\"", ".ci/run"),
    ("export PKG_CONFIG_PATH=\"$PWD/target/c/lib/pkgconfig\" LD_LIBRARY_PATH=\"$PWD/target/c/lib\"", ".ci/run"),
    ("cc crates/c/examples/radar.c $(pkg-config --cflags --libs takt) -o target/radar", ".ci/run"),
    ("sudo setcap cap_sys_nice,cap_ipc_lock+ep \"$(command -v takt)\"", ".ci/run"),
    ("ulimit -r 98", ".ci/run"),
    ("ulimit -l unlimited", ".ci/run"),
];

#[test]
fn every_documented_command_does_what_is_shown() {
    run_pages(false);
}

#[test]
fn commands_that_do_not_run_here_run_elsewhere() {
    let ci = fs::read_to_string(root().join(".ci/run")).expect("CI has a script");
    let mut unknown = Vec::new();
    for path in pages() {
        let text = fs::read_to_string(&path).expect("a page is text");
        let mut language = None;
        for (number, line) in text.lines().enumerate() {
            match (line.trim_start().strip_prefix("```"), language) {
                (Some(opened), None) => language = Some(opened.to_owned()),
                (Some(_), Some(_)) => language = None,
                (None, open) => {
                    let command = line.split(" #").next().unwrap_or_default().trim();
                    let shell = open.as_deref().is_some_and(|name| name == "sh");
                    if shell
                        && !command.is_empty()
                        && !is_takt(line)
                        && !ELSEWHERE.iter().any(|(known, _)| *known == command)
                    {
                        unknown.push(format!("{}:{}: {command}", path.display(), number + 1));
                    }
                    language = open;
                }
            }
        }
    }
    assert!(unknown.is_empty(), "who runs these?\n{}", unknown.join("\n"));
    for (command, by) in ELSEWHERE {
        assert!(
            *by != ".ci/run" || ci.contains(command.trim_start_matches("sudo ")),
            ".ci/run does not run \"{command}\""
        );
    }
}

#[test]
fn shown_sources_are_the_files() {
    let mut shown = 0;
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        for part in text.split("\n<!-- source: ").skip(1) {
            let (file, rest) = part.split_once(" -->\n```").expect("a block follows the name");
            let block =
                rest.split_once('\n').and_then(|(_, rest)| rest.split_once("\n```\n")).expect("a whole block").0;
            let source = fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
            assert_eq!(block, source.trim_end(), "{} shows another {file}", page.display());
            shown += 1;
        }
    }
    assert!(shown > 0, "at least the lesson in Rust shows its program");
}

#[test]
fn the_book_and_the_index_hold_every_page() {
    let summary = fs::read_to_string(root().join("docs/SUMMARY.md")).expect("the book has a table of contents");
    let index = fs::read_to_string(root().join("docs/README.md")).expect("the manual has an index");
    for page in pages() {
        let Ok(page) = page.strip_prefix(root().join("docs")) else { continue };
        let page = page.display().to_string();
        let is_listed = |list: &str| list.contains(&format!("({page})"));
        assert!(page == "SUMMARY.md" || is_listed(&summary), "docs/SUMMARY.md does not list {page}");
        // Verbs and tests have an index of their own.
        let own = ["README.md", "SUMMARY.md"].contains(&page.as_str())
            || ["reference/verbs/", "reference/tests/"].iter().any(|folder| page.starts_with(folder));
        assert!(own || is_listed(&index), "docs/README.md does not list {page}");
    }
}

#[test]
fn every_link_leads_somewhere() {
    let (mut dead, mut seen) = (Vec::new(), 0);
    for page in pages().into_iter().chain([root().join("ARCHITECTURE.md")]) {
        let text = fs::read_to_string(&page).expect("a page");
        // The targets of `[words](target)`, other than those outside.
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let target = target.split('#').next().unwrap_or_default();
            if target.contains("://") || target.is_empty() {
                continue;
            }
            seen += 1;
            if !page.with_file_name(target).exists() {
                dead.push(format!("{}: {target}", page.display()));
            }
        }
    }
    assert!(dead.is_empty() && seen > 50, "{seen} links, of which lead nowhere:\n{}", dead.join("\n"));
}

#[test]
fn an_ellipsis_after_a_number_hides_the_rest_of_the_line() {
    let assert = || snapbox::Assert::new().normalize_paths(false);
    let agrees = |page: &str, ran: &str| {
        let (ran, page) = blurred(ran, page);
        assert().try_eq(None, ran.into(), page.into()).is_ok()
    };
    assert!(agrees("reserved for 120.4ms[..]", "reserved for 102ms; nothing of it is booked any more"));
    assert!(agrees("reserved for 120.4ms[..]", "reserved for 99.1ms"));
    assert!(!agrees("reserved for 120.4ms", "reserved for 102ms; nothing of it is booked any more"));
    assert!(!agrees("reserved for 120.4ms[..]", "kept for 102ms"));
    let page = "late  jobs  throttled[..]\na  2  5[..]";
    assert!(agrees(page, "late  jobs  throttled  longest\na  2  5  rustc  7"));
    assert!(agrees(page, "late  jobs  throttled  longest\na  2  5  rustc  7\nb  1  -  a  2"));
    assert!(!agrees(page, "late  jobs  throttled  longest\nb  1  -  a  2"));
}

#[test]
fn late_jobs_of_a_busy_machine_are_no_difference_of_a_live_run() {
    let quiet = "task released missed class\na 5 0 FIFO\n\nover 1s, no deadline missed\n\nend\n";
    let busy = "task released missed unfinished class\na 5 2 1 FIFO\n\nover 1s, 2 deadlines missed\n\n\
                late  jobs  others\na  2\n\nend\n";
    let (ran, page) = blurred(busy, quiet);
    assert_eq!(ran, page);
    assert!(ran.ends_with("missed\n\nend\n"), "{ran}");
    let (ran, page) = blurred(&busy.replace("a 5", "b 5"), quiet);
    assert_ne!(ran, page);
}
